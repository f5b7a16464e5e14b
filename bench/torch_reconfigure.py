#!/usr/bin/env python3
# torch_reconfigure.py -- how long PyTorch's reconfigure takes with Gloo and with Tutti.   SPDX-License-Identifier: MIT
"""Shrinks a communicator of RANKS ranks by its last one and lets that one back in, again and again, with both backends in turn.
Prints the median milliseconds of each step, of the slowest rank: the call itself, and with the first all_reduce after it.

    PYTHONPATH=python python3 bench/torch_reconfigure.py             3 ranks, 30 times
    PYTHONPATH=python python3 bench/torch_reconfigure.py --ranks 4 --times 100

Needs a PyTorch that has _reconfigure (2.15) and the compiled backend of python/. The ranks stay: what is measured is neither a process that starts
nor how a failure is found (python/tests/kills.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta


def run_rank(backend: str, rank: int, world: int, times: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    if backend == "tutti":
        import tutti_torch  # noqa: F401
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timedelta(seconds=60))
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, enable_reconfigure=True
    )
    uuid = 0

    def step(name: str, members: int) -> None:
        nonlocal uuid
        uuid += 1
        store.set(f"{uuid}/{rank}", dist._get_reconfigure_handle())
        handles = [store.get(f"{uuid}/{r}").decode() for r in range(world)][:members]
        if rank >= members:
            return
        begin = time.monotonic()
        dist._reconfigure(uuid, handles).wait()
        done = time.monotonic()
        dist.all_reduce(torch.ones(1000))
        end = time.monotonic()
        assert dist.get_world_size() == members
        line = f"{name} {uuid} {1e3 * (done - begin)} {1e3 * (end - begin)}\n"
        os.write(1, line.encode())  # whole: the ranks share the file

    step("first", world)
    for _ in range(times):
        step("shrink", world - 1)
        step("grow", world)
    store.set(f"end/{rank}", "")
    store.wait([f"end/{r}" for r in range(world)])
    dist.destroy_process_group()


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def measure(backend: str, args: argparse.Namespace, into: dict[str, list[list[float]]]) -> None:
    command = [sys.executable, __file__, "--ranks", str(args.ranks), "--times", str(args.times)]
    port = str(free_port())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("a+") as out:
        ranks = [
            subprocess.Popen([*command, "--inside", backend, str(r), port], stdout=out, env=environment)
            for r in range(args.ranks)
        ]
        try:
            if any(rank.wait(300) for rank in ranks):
                raise SystemExit(f"{backend}: a rank failed")
        finally:
            for rank in ranks:
                rank.kill()
        out.seek(0)
        slowest: dict[tuple[str, str], list[float]] = {}
        for line in out:
            name, uuid, *ms = line.split()
            before = slowest.get((name, uuid), [0.0, 0.0])
            slowest[name, uuid] = [max(float(a), b) for a, b in zip(ms, before)]
    for (name, _), both in slowest.items():
        into.setdefault(name, []).append(both)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        backend, rank, port = args.inside
        run_rank(backend, int(rank), args.ranks, args.times, int(port))
        return 0
    found: dict[str, dict[str, list[list[float]]]] = {"gloo": {}, "tutti": {}}
    for _ in range(args.turns):
        for backend, into in found.items():
            measure(backend, args, into)
    print(f"{args.ranks} ranks, ms of the slowest rank, medians of {args.turns} turns of {args.times}")
    print("\n| step | Gloo | tutti | Gloo, with an all_reduce | tutti, with an all_reduce |\n|---|---|---|---|---|")
    for name in ("first", "shrink", "grow"):
        cells = [
            f"{statistics.median(both[i] for both in found[b][name]):.1f}"
            for i in (0, 1)
            for b in ("gloo", "tutti")
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
