#!/usr/bin/env python3
# make_golden_data.py: PyTorch's sample order and batches, as numbers for tests/unit/data_*.c.
# SPDX-License-Identifier: MIT
#
#   python3 -m venv V && V/bin/pip install torch numpy
#   V/bin/python tools/make_golden_data.py
#
# Prints lists of indices, and hashes where lists would be long. The images are the library's own 8x8 digits.
import os
import re
import sys

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "data", "format", "digits.inc")
WORD = 2**64


def permutation(n, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(n, generator=generator).tolist()


def share(n, ranks, rank, epoch=0, **options):
    sampler = DistributedSampler(range(n), ranks, rank, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def digits_train():
    with open(DIGITS, encoding="ascii") as lines:
        rows = re.findall(r'"([0-9A-G]{65})"', lines.read())
    rows = [[int(digit, 17) for digit in row] for i, row in enumerate(rows) if i % 5 != 4]
    pixels = torch.tensor([[(p * 255 + 8) // 16 for p in row[:64]] for row in rows], dtype=torch.uint8)
    x = pixels.reshape(-1, 1, 8, 8).to(torch.float32).div(255)  # ToTensor
    x = x.sub(torch.tensor([0.3059]).view(-1, 1, 1)).div(torch.tensor([0.3763]).view(-1, 1, 1))  # Normalize
    return TensorDataset(x, torch.tensor([row[64] for row in rows]))


def batches_hash(dataset, epoch):
    sampler = DistributedSampler(dataset, 3, 1, shuffle=True, seed=5)
    sampler.set_epoch(epoch)
    value = 0xCBF29CE484222325
    for x, y in DataLoader(dataset, batch_size=32, sampler=sampler):
        for word in [bits & 0xFFFFFFFF for bits in x.view(torch.int32).flatten().tolist()] + y.tolist():
            value = (value ^ word) * 0x100000001B3 % WORD
    return value


def main():
    for n, seed in ((10, 0), (10, 1), (10, 42), (100, 0)):
        print(f"randperm({n}), seed {seed}:", *permutation(n, seed)[:10])
    for epoch in (0, 1):
        print(f"10 samples, 4 ranks, epoch {epoch}:", *(share(10, 4, r, epoch, shuffle=True) for r in range(4)))
    print("10 samples, 4 ranks, in order:", *(share(10, 4, r, shuffle=False) for r in range(4)))
    print("10 samples, 4 ranks, drop_last:",
          *(share(10, 4, r, shuffle=False, drop_last=True) for r in range(4)))
    for rank in (0, 3):
        value = 0
        for index in share(50000, 4, rank, epoch=7, seed=1234):
            value = (value * 1000003 + index) % WORD
        print(f"50000 samples, rank {rank} of 4, seed 1234, epoch 7: {value:#018x}")
    dataset = digits_train()
    for epoch in (0, 2):
        print(f"digits, batches of 32, rank 1 of 3, seed 5, epoch {epoch}: {batches_hash(dataset, epoch):#018x}")


if __name__ == "__main__":
    sys.exit(main())
