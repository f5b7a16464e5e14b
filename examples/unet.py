# unet.py -- what unet.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/unet.py
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE, EPOCHS = 32, 8


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


class Shapes(Dataset):
    """An image, and its mask of classes: 0 nothing, 1 square, 2 disc."""

    def __len__(self):
        return 1600

    def __getitem__(self, n):
        random = torch.Generator().manual_seed(n)
        p = 6 + 20 * torch.rand(4, generator=random)
        i, k = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        square = ((i - p[0]).abs() < 5) & ((k - p[1]).abs() < 5)
        disc = torch.hypot(i - p[2], k - p[3]) < 5
        image = (disc | square) + torch.rand(1, SIDE, SIDE, generator=random) - 0.5
        return image, torch.where(disc, 2, square.long())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Shapes()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(UNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if dist.get_rank() == 0 and len(losses) % 10 == 0:
                print(f"step {len(losses)}  loss {sum(losses[-10:]) / 10:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
