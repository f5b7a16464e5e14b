# unet.py -- what unet.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/unet.py
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

N, SIDE, STEPS = 16, 32, 101
state = 0


def uniform():
    """In [0, 1): the numbers of unet.c."""
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 40) / 2**24


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(1, 8, 3, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bottom = nn.Conv2d(16, 32, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.conv2 = nn.Conv2d(32, 16, 3, padding=1)
        self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.conv1 = nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        x = self.up2(F.relu(self.bottom(F.max_pool2d(b, 2))))
        x = self.up1(F.relu(self.conv2(torch.cat([x, b], 1))))
        return self.head(F.relu(self.conv1(torch.cat([x, a], 1))))


def make_batch():
    images, labels = [], []
    for _ in range(N):
        p = [6 + 20 * uniform() for _ in range(4)]
        for i in range(SIDE):
            for k in range(SIDE):
                square = abs(i - p[0]) < 5 and abs(k - p[1]) < 5
                disc = math.hypot(i - p[2], k - p[3]) < 5
                labels.append(2 if disc else int(square))
                images.append((disc or square) + uniform() - 0.5)
    return torch.tensor(images).view(N, 1, SIDE, SIDE), torch.tensor(labels).view(N, SIDE, SIDE)


def loss_of(model):
    x, y = make_batch()
    return F.cross_entropy(model(x), y)


def main():
    global state
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    state = dist.get_rank()  # each rank has samples of its own
    model = DistributedDataParallel(UNet())
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
