# A recipe of configs/ in PyTorch: the same model, data, augmentation, order of samples and schedule, with DistributedDataParallel
# and Gloo. Prints one line of JSON per epoch: epoch, train_loss, val_loss, val_accuracy, seconds.      SPDX-License-Identifier: MIT
#
#   torchrun --nproc-per-node 2 bench/peer/pytorch_recipe.py configs/cifar10.json DIR [KEY=VALUE]...
#
# DIR contains CIFAR-10's binary files. KEY=VALUE overrides a key, as epochs=2 or max_steps=10.
import json
import math
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

MEAN = torch.tensor((0.4914, 0.4822, 0.4465)).view(1, 3, 1, 1)
STD = torch.tensor((0.2470, 0.2435, 0.2616)).view(1, 3, 1, 1)
PADDING = 4


def read(folder, files):
    nested = os.path.join(folder, "cifar-10-batches-bin")
    folder = nested if os.path.isdir(nested) else folder
    records = np.concatenate([np.fromfile(os.path.join(folder, f), np.uint8).reshape(-1, 3073) for f in files])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 0].astype(np.int64))


def normalise(images):
    return (images.float() / 255 - MEAN) / STD


def augmented(images):
    """Each picture moved by up to PADDING either way, with black from beyond its edge, and mirrored or not."""
    padded = F.pad(images, (PADDING,) * 4)
    moves = torch.randint(0, 2 * PADDING + 1, (len(images), 2))
    out = torch.stack([padded[i, :, y:y + 32, x:x + 32] for i, (y, x) in enumerate(moves.tolist())])
    flip = torch.rand(len(images)) < 0.5
    out[flip] = out[flip].flip(3)
    return out


def unit(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = unit(inputs, outputs, 3, stride), unit(outputs, outputs, 3)
        self.skip = unit(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x))


def mini_resnet():
    widths = (64, 64, 128, 128, 256, 256)
    layers, inputs = [unit(3, 64, 3), nn.ReLU()], 64
    for width in widths:
        layers.append(Residual(inputs, width, 1 if width == inputs else 2))
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def rate(key, step, warmup, total):
    """Linear warm-up, then half a cosine: what `tutti train` does."""
    if step < warmup:
        return key["lr"] * (step + 1) / warmup
    return key["lr"] * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def evaluate(model, images, labels, rank, world):
    """Every picture once over all ranks."""
    sums = torch.zeros(2, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for at in range(rank * 500, len(images), world * 500):
            logits, wanted = model(normalise(images[at:at + 500])), labels[at:at + 500]
            sums += torch.tensor([F.cross_entropy(logits, wanted, reduction="sum").item(), (logits.argmax(1) == wanted).sum().item()])
    model.train()
    dist.all_reduce(sums)
    return (sums / len(images)).tolist()


def main():
    key = json.load(open(sys.argv[1]))
    key.update({name: json.loads(value) for name, value in (text.split("=", 1) for text in sys.argv[3:])})
    assert key["model"] == "mini_resnet" and key["data"] == "cifar10" and key["optimizer"] == "sgd" and key["schedule"] == "cosine"
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
    torch.manual_seed(key["seed"])
    images, labels = read(sys.argv[2], [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = read(sys.argv[2], ["test_batch.bin"])
    net = mini_resnet().to(memory_format=torch.channels_last)
    model = DistributedDataParallel(net)
    plain = [p for p in net.parameters() if p.ndim == 1]  # biases, and weights of normalization layers
    groups = [{"params": [p for p in net.parameters() if p.ndim > 1]},
              {"params": plain, "weight_decay": key["weight_decay"] if key.get("decay_biases", True) else 0}]
    optimizer = torch.optim.SGD(groups, key["lr"], key["momentum"], nesterov=key["nesterov"], weight_decay=key["weight_decay"])
    sampler = torch.utils.data.DistributedSampler(images, seed=key["seed"])
    per_epoch = math.ceil(len(sampler) / key["batch_size"])
    total = min(per_epoch * key["epochs"], key.get("max_steps") or 1 << 60)
    warmup, step, begin = round(key["warmup_epochs"] * per_epoch), 0, time.monotonic()
    torch.manual_seed(key["seed"] + 1 + rank)  # for the augmentation
    for epoch in range(key["epochs"]):
        sampler.set_epoch(epoch)
        order, loss_sum, seen = torch.tensor(list(sampler)), 0.0, 0
        for at in range(0, len(order), key["batch_size"]):
            index = order[at:at + key["batch_size"]]
            x = normalise(augmented(images[index]) if key["augment"] else images[index])
            loss = F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), labels[index], label_smoothing=key["label_smoothing"])
            for group in optimizer.param_groups:
                group["lr"] = rate(key, step, min(warmup, total), total)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum, seen, step = loss_sum + loss.item() * len(index), seen + len(index), step + 1
            if step == total:
                break
        sums = torch.tensor([loss_sum, seen], dtype=torch.float64)
        dist.all_reduce(sums)
        val_loss, val_accuracy = evaluate(net, test_images, test_labels, rank, world)
        if rank == 0:
            print(json.dumps({"epoch": epoch + 1, "step": step, "train_loss": (sums[0] / sums[1]).item(), "val_loss": val_loss,
                              "val_accuracy": val_accuracy, "seconds": time.monotonic() - begin}), flush=True)
        if step == total:
            break
    dist.destroy_process_group()


main()
