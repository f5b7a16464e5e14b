# airbench94 (K. Jordan, arXiv 2404.00498, and its Muon variant) in PyTorch on CPUs: the network, data, optimizers and schedule of
# configs/cifar10-94.json, written from that paper and the recipe's published numbers. One process, or several ranks over Gloo, whose
# gradients are added.   SPDX-License-Identifier: MIT
#
#   python bench/peer/airbench94.py DIR [--batch 2000] [--epochs 8] [--steps N] [--threads N] [--seed S] [--plain] [--compile] [--bf16]
#   bash bench/peer/ranks.sh 2 python bench/peer/airbench94.py DIR --batch 1000 --threads 1
#   ... --no-augment --init W.pt --save V.pt           with given weights, and the weights afterwards; FILE.pt: a state_dict
#
# DIR has CIFAR-10's binary files, or what `tutti data pack` writes. --batch is that of a rank. --steps ends earlier; rates still fall as if
# all epochs came. Samples come in the order of DistributedSampler. Lines: "step N loss L seconds S", the mean loss and the time of a
# step; images_per_s, of all ranks, by the median of steps after the second; cpu_ms_per_image, of all ranks, after the first step; with
# --evaluate: accuracy, accuracy_tta. --plain: without channels last, which is faster.
import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

SIDE, CLASSES, PADDING, SMOOTHING = 32, 10, 2, 0.2
DECAY = 2e-6  # of a sample in the batch of all ranks
BIAS_LR, HEAD_LR, MATRIX_LR = 0.053, 0.67, 0.24
VECTOR_MOMENTUM, MATRIX_MOMENTUM = 0.85, 0.6
BIAS_EPOCHS, WHITENED, WHITEN_EPS = 3, 5000, 5e-4


def convolution(inputs, outputs):
    c = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(c.weight.data[:inputs])
    return c


def norm(channels):
    n = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    n.weight.requires_grad_(False)
    return n


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs), norm(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs), norm(outputs)

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad_(False)
        self.layers = nn.Sequential(nn.GELU(), Block(24, 64), Block(64, 256), Block(256, 256), nn.MaxPool2d(3))
        self.head = nn.Linear(256, CLASSES, bias=False)
        self.head.weight.data /= self.head.weight.data.std()

    def forward(self, x):
        return self.head(self.layers(self.whiten(x)).flatten(1)) / 256


def whiten(net, images):
    """Filters that make the patches of these images white, and their negatives."""
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + WHITEN_EPS).sqrt()).T.reshape(12, 3, 2, 2)
    net.whiten.weight.data.copy_(torch.cat([filters, -filters]))


# ---- Data

def read(folder, names):
    nested = Path(folder, "cifar-10-batches-bin")
    folder = nested if nested.is_dir() else Path(folder)
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 1 + 3 * SIDE * SIDE) for name in names])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, SIDE, SIDE).copy()), torch.from_numpy(records[:, 0].astype(np.int64))


def moments(folder):
    """Those of `tutti data pack`, or of CIFAR-10."""
    path = Path(folder, "images.json")
    known = json.loads(path.read_text()) if path.exists() else {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
    return [torch.tensor(known[name]).view(1, 3, 1, 1) for name in ("mean", "std")]


def moved(x, generator):
    """A crop of each image, padded by reflection."""
    padded, out = F.pad(x, (PADDING,) * 4, "reflect"), torch.empty_like(x)
    places = torch.randint(0, 2 * PADDING + 1, (len(x), 2), generator=generator)
    for down in range(2 * PADDING + 1):
        for right in range(2 * PADDING + 1):
            here = (places[:, 0] == down) & (places[:, 1] == right)
            out[here] = padded[here, :, down:down + SIDE, right:right + SIDE]
    return out


# ---- Updates

def orthogonal(u, steps=3):
    """Three steps of Newton-Schulz towards the nearest orthogonal matrix."""
    wide = u.shape[0] <= u.shape[1]
    x = u / (u.norm() + 1e-7)
    x = x if wide else x.T
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if wide else x.T


class Muon:
    def __init__(self, parameters):
        self.parameters = [(p, torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, lr):
        for p, buffer in self.parameters:
            buffer.mul_(MATRIX_MOMENTUM).add_(p.grad)
            u = p.grad.add(buffer, alpha=MATRIX_MOMENTUM)
            p.mul_(len(p) ** 0.5 / p.norm())
            p.add_(orthogonal(u.reshape(len(u), -1)).view_as(p), alpha=-lr)


def optimizers(net, samples):
    decay = DECAY * samples
    groups = [{"params": [p], "lr": lr, "full": lr, "weight_decay": decay / lr}
              for p, lr in [(net.whiten.bias, BIAS_LR), *((p, BIAS_LR) for n, p in net.named_parameters() if "norm" in n and p.requires_grad),
                            (net.head.weight, HEAD_LR)]]
    return torch.optim.SGD(groups, momentum=VECTOR_MOMENTUM, nesterov=True), Muon([p for p in net.parameters() if p.ndim == 4 and p.requires_grad])


def add_up(net, loss, world):
    """Gradients become the sums over ranks; returns that of the loss."""
    if world == 1:
        return loss.item()
    with_gradient = [p for p in net.parameters() if p.grad is not None]
    flat = torch.cat([*(p.grad.flatten() for p in with_gradient), loss.detach().view(1)])
    dist.all_reduce(flat)
    at = 0
    for p in with_gradient:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()
    return flat[-1].item()


# ---- Evaluation

def views(net, x):
    """Image and mirror image with half of the weight; the two, shifted by a pixel to either side, with the other half."""
    both = lambda v: (net(v) + net(v.flip(3))) / 2
    padded = F.pad(x, (1,) * 4, "reflect")
    return both(x) / 2 + (both(padded[:, :, :SIDE, :SIDE]) + both(padded[:, :, 2:, 2:])) / 4


@torch.no_grad()
def accuracies(net, images, labels, normalise, rank, world):
    hits = torch.zeros(2)
    net.eval()
    for at in range(rank * 500, len(images), world * 500):
        x, y = normalise(images[at:at + 500]), labels[at:at + 500]
        hits += torch.tensor([(net(x).argmax(1) == y).sum().item(), (views(net, x).argmax(1) == y).sum().item()])
    if world > 1:
        dist.all_reduce(hits)
    return (hits / len(images)).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name, value in (("batch", 2000), ("epochs", 8), ("steps", 0), ("threads", 0), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("plain", "compile", "bf16", "no-augment", "evaluate"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("init", "save"):
        parser.add_argument(f"--{name}", default="")
    o = parser.parse_args()
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world > 1:
        dist.init_process_group("gloo")
    torch.set_num_threads(o.threads or max(1, len(os.sched_getaffinity(0)) // world))
    torch.manual_seed(o.seed)
    images, labels = read(o.folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    mean, std = moments(o.folder)
    layout = torch.contiguous_format if o.plain else torch.channels_last
    normalise = lambda x: ((x.float() / 255 - mean) / std).contiguous(memory_format=layout)

    begin = time.monotonic()
    net = Net().to(memory_format=layout)
    if o.init:
        net.load_state_dict(torch.load(o.init))
    else:
        whiten(net, normalise(images[:WHITENED]).contiguous())
    sgd, muon = optimizers(net, o.batch * world)
    model = torch.compile(net) if o.compile else net
    sampler = torch.utils.data.DistributedSampler(images, world, rank, seed=o.seed, drop_last=True)
    generator = torch.Generator().manual_seed(o.seed + 1)
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    generator.manual_seed(o.seed + 2 + rank)
    per_epoch = len(sampler) // o.batch
    total, seconds, cpu, step = o.epochs * per_epoch, [], [], 0
    for epoch in range(o.epochs):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for k in range(per_epoch):
            t = time.monotonic()
            index = order[k * o.batch:(k + 1) * o.batch]
            x = normalise(images[index])
            if not o.no_augment:
                flip = mirrored[index] ^ (epoch % 2 == 1)
                x[flip] = x[flip].flip(3)
                x = moved(x, generator).contiguous(memory_format=layout)
            net.whiten.bias.requires_grad_(step < BIAS_EPOCHS * per_epoch)
            with torch.autocast("cpu", torch.bfloat16, enabled=o.bf16):
                logits = model(x)
            loss = F.cross_entropy(logits.float(), labels[index], label_smoothing=SMOOTHING, reduction="sum")
            for p in net.parameters():
                p.grad = None
            loss.backward()
            loss_sum = add_up(net, loss, world)
            for group in sgd.param_groups:
                last = BIAS_EPOCHS * per_epoch if group["params"][0] is net.whiten.bias else total
                group["lr"] = group["full"] * max(0, 1 - step / last)
            sgd.step()
            muon.step(MATRIX_LR * (1 - step / total))
            step += 1
            seconds.append(time.monotonic() - t)
            cpu = [*cpu[:1], time.process_time()]
            if rank == 0:
                print(f"step {step} loss {loss_sum / o.batch / world:.6f} seconds {seconds[-1]:.4f}", flush=True)
            if step == o.steps:
                break
        if step == o.steps:
            break
    if o.save and rank == 0:
        torch.save(net.state_dict(), o.save)
    used = torch.tensor([cpu[-1] - cpu[0]], dtype=torch.float64)  # since the first step
    if world > 1:
        dist.all_reduce(used)
    trained = time.monotonic() - begin
    found = accuracies(net, *read(o.folder, ["test_batch.bin"]), normalise, rank, world) if o.evaluate else None
    if rank == 0:
        print(f"images_per_s {o.batch * world / statistics.median(seconds[2:] or seconds):.2f}")
        print(f"cpu_ms_per_image {1e3 * used.item() / (max(1, step - 1) * o.batch * world):.4f}")
        print(f"seconds {time.monotonic() - begin:.2f}, of training {trained:.2f}")
        if found:
            print(f"accuracy {found[0]:.4f}\naccuracy_tta {found[1]:.4f}")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
