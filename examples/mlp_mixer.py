# mlp_mixer.py -- what mlp_mixer.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/mlp_mixer.py
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, SIDE, TOKENS, D, BLOCKS, STEPS = 32, 16, 16, 32, 2, 101
state = 0


def uniform():
    """In [0, 1): the numbers of mlp_mixer.c."""
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 40) / 2**24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(D)
        self.token1 = nn.Linear(TOKENS, 32)
        self.token2 = nn.Linear(32, TOKENS)
        self.norm2 = nn.LayerNorm(D)
        self.channel1 = nn.Linear(D, 64)
        self.channel2 = nn.Linear(64, D)

    def forward(self, x):
        x = x + self.token2(F.gelu(self.token1(self.norm1(x).mT))).mT
        return x + self.channel2(F.gelu(self.channel1(self.norm2(x))))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, D, 4, stride=4)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.head = nn.Linear(D, 4)

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).mT).mean(1))


def make_batch():
    images, labels = [], []
    for _ in range(N):
        row, column = int(12 * uniform()), int(12 * uniform())
        labels.append(2 * (row >= 6) + (column >= 6))
        images.append([[[(row <= i < row + 5 and column <= k < column + 5) + uniform() - 0.5
                         for k in range(SIDE)] for i in range(SIDE)]])
    return torch.tensor(images), torch.tensor(labels)


def loss_of(model):
    x, y = make_batch()
    return F.cross_entropy(model(x), y)


def main():
    global state
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    state = dist.get_rank()  # each rank has samples of its own
    model = DistributedDataParallel(Mixer())
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
