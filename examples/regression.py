# regression.py -- what regression.c does, in PyTorch.   SPDX-License-Identifier: MIT
#     tutti run -n 2 examples/regression.py examples/regression.csv price
import csv
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 20


def read(path, target):
    """Features, standardised by the training rows, and targets; a fifth of the rows is for the test."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    x = torch.tensor([[float(value) for name, value in row.items() if name != target] for row in rows])
    y = torch.tensor([[float(row[target])] for row in rows])
    is_test = torch.arange(len(rows)) % 5 == 4
    x = (x - x[~is_test].mean(0)) / x[~is_test].std(0, correction=0)
    return TensorDataset(x[~is_test], y[~is_test]), (x[is_test], y[is_test])


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    train, (x_test, y_test) = read(sys.argv[1], sys.argv[2])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    net = nn.Sequential(nn.Linear(x_test.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if dist.get_rank() == 0 and (epoch == 0 or epoch % 5 == 4):
            print(f"epoch {epoch + 1}/{EPOCHS}  loss {total / len(loader):.4f}", flush=True)
    with torch.no_grad():
        loss = F.mse_loss(net(x_test), y_test)
    if dist.get_rank() == 0:
        print(f"epoch {EPOCHS}/{EPOCHS}  test loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
