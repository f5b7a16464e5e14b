# siamese.py -- what siamese.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/siamese.py
import math
from random import random as uniform, seed

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, T, CLASSES, STEPS = 32, 64, 8, 141


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 9)
        self.conv2 = nn.Conv1d(16, 32, 9)
        self.fc = nn.Linear(32, 8)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return F.normalize(self.fc(x.mean(-1)))


def make_batch():
    """Anchor and positive of one frequency, negative of another."""
    signals = [[], [], []]
    for _ in range(N):
        kind = int(CLASSES * uniform())
        other = (kind + 1 + int((CLASSES - 1) * uniform())) % CLASSES
        for k in range(3):
            phase = 2 * math.pi * uniform()
            frequency = 0.1 + 0.2 * (other if k == 2 else kind)
            signals[k].append([[math.sin(phase + frequency * t) + uniform() - 0.5 for t in range(T)]])
    return torch.tensor(signals)


def loss_of(model):
    anchor, positive, negative = model(make_batch().flatten(0, 1)).chunk(3)
    return F.triplet_margin_loss(anchor, positive, negative, margin=0.5)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seed(dist.get_rank())  # each rank has samples of its own
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
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
