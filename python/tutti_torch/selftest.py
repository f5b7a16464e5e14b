# selftest.py -- python3 -m tutti_torch [N]: an all_reduce of N processes (2) on this host.   SPDX-License-Identifier: MIT
"""To see that an installation works, without a launcher."""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile

import torch
import torch.distributed as dist

from .choose import implementation, register


def rank_main(rank: int, world: int, store: str) -> None:
    register()
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=world)
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x)
    if rank == 0:
        kind = f"PyTorch {torch.__version__}, the backend {implementation()}"
        print(f"all_reduce of 1 to {world}: {x.item():g} ({kind})")
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser("python3 -m tutti_torch", description="An all_reduce of N processes on this host.")
    parser.add_argument("N", type=int, nargs="?", default=2, help="processes, at least 1 (%(default)s)")
    world = parser.parse_args().N
    if world < 1:
        parser.error(f"N is {world}, expected at least 1")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        arguments = [(rank, world, f"{folder}/store") for rank in range(world)]
        ranks = [context.Process(target=rank_main, args=each) for each in arguments]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return int(any(process.exitcode for process in ranks))

