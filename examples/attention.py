# attention.py -- what attention.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/attention.py
import math
from random import random as uniform, seed

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, T, DIGITS, D, HEADS, STEPS = 64, 8, 10, 32, 2, 201


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.randn(T, D))
        self.token = nn.Embedding(DIGITS, D)
        self.norm1 = nn.LayerNorm(D)
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)
        self.norm2 = nn.LayerNorm(D)
        self.fc1 = nn.Linear(D, 4 * D)
        self.fc2 = nn.Linear(4 * D, D)
        self.head = nn.Linear(D, DIGITS)

    def attention(self, x):
        q, k, v = self.qkv(x).view(N, T, 3 * HEADS, D // HEADS).transpose(1, 2).chunk(3, 1)
        x = torch.softmax(q @ k.mT / math.sqrt(D // HEADS), -1) @ v
        return self.out(x.transpose(1, 2).reshape(N, T, D))

    def forward(self, x):
        x = self.token(x) + self.position
        x = x + self.attention(self.norm1(x))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return self.head(x)


def loss_of(model):
    x = torch.tensor([[int(DIGITS * uniform()) for _ in range(T)] for _ in range(N)])
    return F.cross_entropy(model(x).flatten(0, 1), x.sort(1).values.flatten())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    seed(dist.get_rank())  # each rank has samples of its own
    model = DistributedDataParallel(Block())
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
