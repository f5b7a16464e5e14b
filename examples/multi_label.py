# multi_label.py -- what multi_label.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/multi_label.py
import math
from random import random as uniform, seed

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, T, TONES, STEPS = 64, 64, 6, 141


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 32, 16)
        self.norm = nn.LayerNorm(32)
        self.fc1 = nn.Linear(32, 64)
        self.fc2 = nn.Linear(64, TONES)

    def forward(self, x):
        x = self.norm((self.conv(x)**2).mean(-1))  # the power in each band
        return self.fc2(F.relu(self.fc1(x)))


def make_batch():
    signals, labels = [], []
    for _ in range(N):
        tones = [(float(uniform() < 0.3), 2 * math.pi * uniform()) for _ in range(TONES)]
        labels.append([there for there, _ in tones])
        signals.append([[uniform() - 0.5 + sum(there * math.sin(phase + 0.4 * (k + 1) * t)
                                               for k, (there, phase) in enumerate(tones))
                         for t in range(T)]])
    return torch.tensor(signals), torch.tensor(labels)


def loss_of(model):
    x, y = make_batch()
    return F.binary_cross_entropy_with_logits(model(x), y)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seed(dist.get_rank())  # each rank has samples of its own
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
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
