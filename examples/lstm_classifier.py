# lstm_classifier.py -- what lstm_classifier.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/lstm_classifier.py
import math
from random import random as uniform, seed

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, T, STEPS = 32, 40, 241


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 32, batch_first=True)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        _, (last, _) = self.lstm(x)
        return self.fc(last.squeeze(0))


def make_batch():
    signals, labels = [], []
    for _ in range(N):
        labels.append(int(3 * uniform()))
        phase, signal = 2 * math.pi * uniform(), []
        for t in range(T):
            phase += 0.3 + 0.4 * (t / T - 0.5) * (labels[-1] - 1)
            signal.append([math.sin(phase) + 0.2 * (uniform() - 0.5)])
        signals.append(signal)
    return torch.tensor(signals), torch.tensor(labels)


def loss_of(model):
    x, y = make_batch()
    return F.cross_entropy(model(x), y)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seed(dist.get_rank())  # each rank has samples of its own
    model = DistributedDataParallel(Classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(STEPS):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step:3}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
