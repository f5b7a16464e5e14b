# mlp_mixer.py -- what mlp_mixer.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/mlp_mixer.py
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE, TOKENS, D, BLOCKS, EPOCHS = 16, 16, 32, 2, 4


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


class Squares(Dataset):
    """Noise with a bright square; the class is its quadrant."""

    def __len__(self):
        return 1600

    def __getitem__(self, n):
        random = torch.Generator().manual_seed(n)
        row, column = torch.randint(12, (2,), generator=random).tolist()
        image = torch.rand(1, SIDE, SIDE, generator=random) - 0.5
        image[:, row:row + 5, column:column + 5] += 1
        return image, 2 * (row >= 6) + (column >= 6)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Squares()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DistributedDataParallel(Mixer())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
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
