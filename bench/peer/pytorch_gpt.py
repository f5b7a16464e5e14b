"""Training steps of GPT-2 in PyTorch, a peer of bench/ddp_gpt.c, with its arguments and its line.   SPDX-License-Identifier: MIT

    python bench/peer/pytorch_gpt.py [B=4] [T=64] [L=12] [H=12] [C=768] [V=50257] [NT=2] [AMP=1] [ZERO=3] [SECONDS=10] [COMPILE=1]

Attention is scaled_dot_product_attention, the head is tied to the embedding, AdamW is fused; bf16 is autocast. With WORLD_SIZE set,
ranks of DistributedDataParallel over Gloo; with ZERO=3, of fully_shard (FSDP2), which has no fused AdamW; ZERO=2: it keeps parameters
after forward. The median of the steps of SECONDS seconds, at least 5, after 3."""
import os
import resource
import statistics
import sys
import time

import torch
from pytorch_block import Block
from torch.nn import functional as F

SIZES = dict(B=4, T=64, L=12, H=12, C=768, V=50257, NT=2, AMP=0, ZERO=0, SECONDS=10, COMPILE=0)
SIZES.update((name, int(value)) for name, value in (argument.split("=") for argument in sys.argv[1:]))
B, T, L, H, C, V, NT, AMP, ZERO, SECONDS, COMPILE = (SIZES[name] for name in "B T L H C V NT AMP ZERO SECONDS COMPILE".split())


class Gpt2(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(V, C), torch.nn.Embedding(max(T, 1024), C)
        self.h = torch.nn.Sequential(*(Block(C, H) for _ in range(L)))
        self.ln_f = torch.nn.LayerNorm(C)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02 / (2 * L) ** 0.5 if name.endswith("proj.weight") else 0.02)

    def forward(self, x, target):
        y = self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]]))
        return F.cross_entropy(F.linear(y, self.wte.weight).view(-1, V), target.view(-1))


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def shard(model):
    from torch.distributed.fsdp import fully_shard

    for block in model.h:
        fully_shard(block, reshard_after_forward=ZERO == 3)
    return fully_shard(model)


def main():
    torch.set_num_threads(NT)
    torch.manual_seed(0)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    before = peak_mib()
    model = Gpt2()
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = shard(model) if ZERO else torch.nn.parallel.DistributedDataParallel(model)
    forward = torch.compile(model) if COMPILE else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=not ZERO)
    tokens = torch.tensor([(i + 1) * 2654435761 % V for i in range(B * T + 1)])
    x, target = tokens[:-1].view(B, T), tokens[1:].view(B, T)
    loss = None

    def step():
        nonlocal loss
        begin = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(AMP)):
            loss = forward(x, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.monotonic() - begin

    for _ in range(3):
        step()
    times, cpu, end = [], time.process_time(), time.monotonic() + SECONDS
    while len(times) < 5 or (world == 1 and time.monotonic() < end):
        times.append(step())
    cpu = (time.process_time() - cpu) / len(times)
    median = statistics.median(times)
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"{world * B * T / median:.1f} tok/s, step {median * 1e3:.1f} ms, CPU {cpu * 1e3:.1f} ms, loss {loss.item():.4f}, "
              f"memory {peak_mib() - before:.0f} MiB")
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
