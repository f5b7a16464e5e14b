# The models of `tutti train` in PyTorch, with the same parameters, order of samples and updates, by DistributedDataParallel and
# Gloo: the speed of a step, and the course of the loss.   SPDX-License-Identifier: MIT
#
#   RANK=... pytorch_step.py [KEY=VALUE]...     without RANK: a single process
#
#   model=mini_resnet|mlp   data=synthetic|digits|DIR (CIFAR-10's binary files)   batch=32   steps=14   threads=1   lr=0.1
#   layout=plain|last (channels last)   compile=0|1   init=FILE (rank 0 writes the initial weights there)   log=K (a line of the mean loss
#   of all ranks every K steps)
#
# Images are normalised and in memory before the first step. Prints a line when the first step is done, then the median of the steps after
# the first WARM: with compile=1 these compile.
import os
import sys
import time

begin = time.time()
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WARM = 3
HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.c2, self.b2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.sc = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.sc = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)), inplace=True)
        return F.relu(self.b2(self.c2(y)) + self.sc(x), inplace=True)


class MiniResNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        widths = (64, 64, 128, 128, 256, 256)
        self.stem = nn.Sequential(nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(*[Block(a, b, 1 if a == b else 2) for a, b in zip((64,) + widths, widths)])
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


class MLP(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def images_of(data):
    """All training images, normalised, and their labels."""
    if data == "synthetic":
        g = torch.Generator().manual_seed(0)
        return torch.randn(8192, 3, 32, 32, generator=g), torch.randint(0, 10, (8192,), generator=g)
    if data == "digits":  # every fifth row is a test image; pixels in base 17, then the label
        rows = [line.strip('",\n') for line in open(HERE + "/../../src/data/format/digits.inc") if line.startswith('"')]
        values = np.array([[int(c, 17) for c in row] for i, row in enumerate(rows) if i % 5 != 4])
        pixels = ((values[:, :64] * 255 + 8) // 16).reshape(-1, 1, 8, 8)
        return torch.tensor((pixels / 255 - 0.3059) / 0.3763, dtype=torch.float32), torch.tensor(values[:, 64])
    records = np.concatenate([np.fromfile(f"{data}/data_batch_{i}.bin", np.uint8).reshape(-1, 3073) for i in range(1, 6)])
    mean = torch.tensor((0.4914, 0.4822, 0.4465)).view(1, 3, 1, 1)
    std = torch.tensor((0.2470, 0.2435, 0.2616)).view(1, 3, 1, 1)
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return (pixels.float() / 255 - mean) / std, torch.from_numpy(records[:, 0].astype(np.int64))


def batches(images, labels, batch, rank, world, layout):
    sampler = torch.utils.data.DistributedSampler(images, world, rank, seed=0)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for at in range(0, len(order), batch):
            index = order[at:at + batch]
            yield images[index].contiguous(memory_format=layout), labels[index]
        epoch += 1


def main():
    key = {"model": "mini_resnet", "data": "synthetic", "batch": "32", "steps": "14", "threads": "1", "lr": "0.1", "layout": "plain",
           "compile": "0", "init": "", "log": "0"}
    key.update(text.split("=", 1) for text in sys.argv[1:])
    torch.set_num_threads(int(key["threads"]))
    torch.manual_seed(0)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    layout = torch.channels_last if key["layout"] == "last" else torch.contiguous_format
    images, labels = images_of(key["data"])
    net = MiniResNet(images.shape[1]) if key["model"] == "mini_resnet" else MLP(images[0].numel())
    net = net.to(memory_format=layout)
    if key["init"] and rank == 0:
        torch.save(net.state_dict(), key["init"])
    model = DistributedDataParallel(net) if dist.is_initialized() else net
    if key["compile"] == "1":
        model = torch.compile(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=float(key["lr"]), momentum=0.9, weight_decay=5e-4)
    times, log, sums = [], int(key["log"]), torch.zeros(2, dtype=torch.float64)
    source = batches(images, labels, int(key["batch"]), rank, world, layout)
    for step in range(1, int(key["steps"]) + 1):
        t = time.perf_counter()
        x, y = next(source)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - t) / len(x))
        if step == 1 and rank == 0:
            print(f"first step done after {time.time() - begin:.3f} s", flush=True)
        if log:
            sums += torch.tensor([loss.item() * len(x), len(x)], dtype=torch.float64)
        if log and step % log == 0:
            if dist.is_initialized():
                dist.all_reduce(sums)
            if rank == 0:
                print(f"step {step} loss {(sums[0] / sums[1]).item():.6f}", flush=True)
            sums.zero_()
    if rank == 0 and len(times) > WARM:
        print(f"images_per_s {world / np.median(times[WARM:]):.2f}", flush=True)
    if dist.is_initialized():
        dist.barrier()
    os._exit(0)  # otherwise threads of Gloo and of torch.compile abort some processes at exit


if __name__ == "__main__":
    main()
