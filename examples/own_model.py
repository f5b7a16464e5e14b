# own_model.py -- what own_model.c does, in PyTorch: a complete DDP script.   SPDX-License-Identifier: MIT
#
#     tutti run -n 2 examples/own_model.py --epochs 5        in place of: torchrun --nproc-per-node 2 examples/own_model.py
#     tutti run -n 2 examples/own_model.py --data folder --data-dir pictures        (needs torchvision)
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class CNN(nn.Module):
    def __init__(self, channels, side, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * (side // 2) ** 2, classes)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc(F.max_pool2d(x, 2).flatten(1))


def squares(n, seed):
    """Noise, with a bright square in one of four columns."""
    x = torch.randint(0, 160, (n, 1, 16, 16), generator=torch.Generator().manual_seed(seed))
    for i in range(n):
        row, column = i // 4 % 4 * 4, i % 4 * 4
        x[i, 0, row:row + 4, column:column + 4] += 80
    return TensorDataset(x.float() / 255, torch.arange(n) % 4)


def open_data(args):
    """Training data, test data, channels, side, classes."""
    if args.data == "squares":
        return squares(1280, 1), squares(320, 2), 1, 16, 4
    from torchvision import datasets, transforms
    to_tensor = transforms.ToTensor()
    train = datasets.ImageFolder(os.path.join(args.data_dir, "train"), to_tensor)
    test = datasets.ImageFolder(os.path.join(args.data_dir, "test"), to_tensor)
    return train, test, 3, train[0][0].shape[1], len(train.classes)


def evaluate(model, test, rank, world_size, batch_size):
    """Loss and accuracy over the test set, each sample once: a DistributedSampler would repeat some."""
    share = torch.utils.data.Subset(test, range(rank, len(test), world_size))
    sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, all
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(share, batch_size):
            logits = model.module(x)
            sums += torch.tensor([F.cross_entropy(logits, y, reduction="sum").item(),
                                  (logits.argmax(1) == y).sum().item(), len(y)], dtype=torch.float64)
    model.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def save(path, model, optimizer, schedule, epoch):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
             "schedule": schedule.state_dict(), "epoch": epoch}
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="squares", choices=["squares", "folder"])
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--run-dir", default="run")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
    os.makedirs(args.run_dir, exist_ok=True)
    train, test, channels, side, classes = open_data(args)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    model = DistributedDataParallel(CNN(channels, side, classes))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    path, first, step = os.path.join(args.run_dir, "checkpoint.pt"), 0, 0
    if args.resume and os.path.exists(path):
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first = state["epoch"]
        step = first * len(loader)
    metrics = open(os.path.join(args.run_dir, "metrics.jsonl"), "a") if rank == 0 else None

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        begin = time.time()
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % args.log_every == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if rank == 0:
                    line = {"step": step, "epoch": epoch + 1, "loss": mean.item() / world_size,
                            "lr": schedule.get_last_lr()[0]}
                    print(json.dumps(line), file=metrics, flush=True)
        val_loss, accuracy = evaluate(model, test, rank, world_size, args.batch_size)
        if rank == 0:
            save(path, model, optimizer, schedule, epoch + 1)
            rate = len(train) / (time.time() - begin)
            print(f"epoch {epoch + 1}/{args.epochs}  {rate:.0f} images/s  test loss {val_loss:.4f}  "
                  f"test accuracy {100 * accuracy:.2f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
