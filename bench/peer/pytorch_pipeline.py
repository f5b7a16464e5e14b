"""Training steps of GPT-2 in PyTorch's pipelines, a peer of tutti train --pipeline.   SPDX-License-Identifier: MIT

    python bench/peer/pytorch_pipeline.py [B=4] [M=8] [T=64] [L=12] [H=12] [C=768] [V=256] [STEPS=8] [SCHEDULE=1F1B]

A step is M micro-batches of B rows and fused AdamW, on one thread a rank. With WORLD_SIZE set each rank is a stage of L / WORLD_SIZE blocks, over
Gloo, and SCHEDULE is GPipe or 1F1B of torch.distributed.pipelining; else micro-batches are accumulated. The head is not tied. The median of the
steps after the first two; memory is rank 0's peak less what the process had before the model."""
import os
import resource
import statistics
import sys
import time

import torch
from pytorch_block import Block
from torch import nn
from torch.distributed import pipelining
from torch.nn import functional as F

ARGUMENTS = dict(B=4, M=8, T=64, L=12, H=12, C=768, V=256, STEPS=8, SCHEDULE="1F1B")
ARGUMENTS.update(argument.split("=") for argument in sys.argv[1:])
SCHEDULE = ARGUMENTS.pop("SCHEDULE")
B, M, T, L, H, C, V, STEPS = (int(value) for value in ARGUMENTS.values())
WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        if RANK == 0:
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(max(T, 1024), C)
        self.h = nn.Sequential(*(Block(C, H) for _ in range(L // WORLD)))
        if RANK == WORLD - 1:
            self.ln_f, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)

    def forward(self, x):
        if RANK == 0:
            x = self.wte(x) + self.wpe.weight[: x.shape[1]]
        x = self.h(x)
        return self.head(self.ln_f(x)) if RANK == WORLD - 1 else x


def loss_of(y, target):
    return F.cross_entropy(y.view(-1, V), target.view(-1))


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    before = peak_mib()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Stage()
    if WORLD > 1:
        torch.distributed.init_process_group("gloo")
        stage = pipelining.PipelineStage(model, RANK, WORLD, torch.device("cpu"))
        kind = dict(GPipe=pipelining.ScheduleGPipe)
        kind["1F1B"] = pipelining.Schedule1F1B
        schedule = kind[SCHEDULE](stage, n_microbatches=M, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens = torch.tensor([(i + 1) * 2654435761 % V for i in range(M * B * T + 1)])
    x, target = tokens[:-1].view(M * B, T), tokens[1:].view(M * B, T)
    times = []
    for _ in range(STEPS):
        if WORLD > 1:
            torch.distributed.barrier()
        begin = time.monotonic()
        if WORLD == 1:
            for part, wanted in zip(x.split(B), target.split(B)):
                (loss_of(model(part), wanted) / M).backward()
        else:
            schedule.step(*([x] if RANK == 0 else []), **(dict(target=target) if RANK == WORLD - 1 else {}))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if WORLD > 1:
            torch.distributed.barrier()
        times.append(time.monotonic() - begin)
    median = statistics.median(times[2:])
    if RANK == 0:
        print(f"{M * B * T / median:.1f} tok/s, step {median * 1e3:.1f} ms, memory {peak_mib() - before:.0f} MiB")
    if WORLD > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
