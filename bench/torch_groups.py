#!/usr/bin/env python3
# torch_groups.py -- what a new_group costs a rank.   SPDX-License-Identifier: MIT
"""Milliseconds of a new_group of all ranks, and the threads and descriptors that it adds on rank 0, which hosts the store.

    PYTHONPATH=python python3 bench/torch_groups.py                     2 ranks, 50 groups
    PYTHONPATH=python python3 bench/torch_groups.py --ranks 4 --backend gloo
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import time


def counts() -> list[int]:
    return [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")]


def rank_of(rank: int, args: argparse.Namespace, port: int) -> None:
    import torch
    import torch.distributed as dist

    if args.backend == "tutti":
        import tutti_torch  # noqa: F401
    dist.init_process_group(
        args.backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.ranks
    )
    dist.all_reduce(torch.ones(1), group=dist.new_group())
    dist.barrier()
    before, times, groups = counts(), [], []
    for _ in range(args.groups):
        dist.barrier()
        begin = time.perf_counter()
        groups.append(dist.new_group())
        times.append((time.perf_counter() - begin) * 1e3)
    dist.barrier()
    added = [(b - a) / args.groups for a, b in zip(before, counts())]
    if rank == 0:
        print(
            f"{args.backend}, {args.ranks} ranks: new_group {statistics.median(times):.2f} ms in the median, "
            f"{min(times):.2f} at best; threads {added[0]:g}, descriptors {added[1]:g} each"
        )
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--backend", default="tutti")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        multiprocessing.get_context("spawn").Process(target=rank_of, args=(rank, args, port))
        for rank in range(args.ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
