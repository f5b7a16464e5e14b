# resnet18.py -- what resnet18.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/resnet18.py
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 64


class Block(nn.Module):
    def __init__(self, channels_in, out):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, out, 3, out // channels_in, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.skip = nn.Identity()  # else where size and channels change
        if channels_in != out:
            self.skip = nn.Sequential(nn.Conv2d(channels_in, out, 1, 2, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet18(nn.Sequential):
    def __init__(self, classes):
        out = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        super().__init__(
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1),
            *(Block(out[i], out[i + 1]) for i in range(8)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Stripes(Dataset):
    """In noise; the class is direction and width."""

    def __len__(self):
        return 192

    def __getitem__(self, n):
        i = torch.arange(3 * SIDE * SIDE)
        at = n + (i // SIDE if n % 2 else i) % SIDE
        noise = torch.rand(len(i), generator=torch.Generator().manual_seed(n))
        return (at // (4 if n % 4 < 2 else 8) % 2 + noise - 1).view(3, SIDE, SIDE), n % 4


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    data = Stripes()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(ResNet18(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader))
    losses = []
    for step, (x, y) in enumerate(loader, 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if dist.get_rank() == 0 and step % 4 == 0:
            print(f"step {step}/{len(loader)}  loss {sum(losses[-4:]) / 4:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
