#!/usr/bin/env python3
# kills.py -- how long survivors wait for the exception after a rank was killed.   SPDX-License-Identifier: MIT
"""Kills one rank of a training loop at a random time, makes a new group, and so on. Every survivor has to get an exception that
names the rank. Prints the milliseconds from the kill to the exceptions: median and worst.

    PYTHONPATH=python python3 python/tests/kills.py                  50 kills of one of 3 ranks; ends with 1 if a name was wrong
    PYTHONPATH=python python3 python/tests/kills.py --kills 10 --ranks 4 --seed 7 --backend gloo

Not part of the tests that pytest finds: it takes minutes. Ranks compute between collectives, and some collectives are
asynchronous, so a kill meets all states.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60


# ---- One rank -------------------------------------------------------------------------------------


def train(backend: str, rank: int, world: int) -> None:
    """For each line of input, the name of a file for the store: prints READY, and the time and text of the exception."""
    import torch
    import torch.distributed as dist

    if backend == "tutti":
        import tutti_torch  # noqa: F401
    weights = torch.ones(64, 64)
    for path in sys.stdin:
        dist.init_process_group(
            backend, init_method=f"file://{path.strip()}", rank=rank, world_size=world
        )
        dist.barrier()
        print("READY", flush=True)
        try:
            while True:
                pending = [dist.all_reduce(torch.ones(n), async_op=True) for n in (1000, 100_000)]
                weights = weights @ torch.eye(64)
                for one in pending:
                    one.wait()
                dist.all_reduce(torch.ones(10))
        except RuntimeError as error:
            now = time.monotonic()
            print(now, " ".join(str(error).split()), flush=True)
        dist.destroy_process_group()


# ---- All of them ----------------------------------------------------------------------------------


def start(rank: int, args: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--backend", args.backend, "--ranks", str(args.ranks)]
    return subprocess.Popen(
        [*command, "--inside", str(rank)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    if not select.select([process.stdout], [], [], LIMIT_S)[0]:
        raise TimeoutError(f"a rank said nothing for {LIMIT_S} s")
    return process.stdout.readline().strip()


def kill_one(ranks: list[subprocess.Popen[str]], path: str, victim: int) -> list[tuple[float, str]]:
    """The survivors' milliseconds and messages."""
    for process in ranks:
        assert process.stdin
        print(path, file=process.stdin, flush=True)
    for process in ranks:
        if (line := line_of(process)) != "READY":
            raise RuntimeError(f"a rank did not begin: {line or process.wait(5)}")
    time.sleep(random.uniform(0.05, 0.5))
    begin = time.monotonic()
    ranks[victim].send_signal(signal.SIGKILL)
    told = []
    for i, process in enumerate(ranks):
        if i != victim:
            when, _, text = line_of(process).partition(" ")
            told.append((1e3 * (float(when) - begin), text))
    ranks[victim].wait()
    return told


def measure(args: argparse.Namespace) -> int:
    times: list[float] = []
    unnamed = 0
    ranks = [start(rank, args) for rank in range(args.ranks)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for n in range(args.kills):
                victim = random.randrange(args.ranks)
                for ms, text in kill_one(ranks, f"{folder}/store-{n}", victim):
                    times.append(ms)
                    if not re.search(rf"rank {victim}\b", text):
                        unnamed += 1
                        print(f"kill {n}: rank {victim} is not named: {text[:300]}")
                ranks[victim] = start(victim, args)
    finally:
        for process in ranks:
            process.kill()
    print(
        f"{args.kills} kills of {args.ranks} ranks, {args.backend}: {len(times)} exceptions, "
        f"{len(times) - unnamed} name the rank; ms from kill to exception: median "
        f"{statistics.median(times):.1f}, worst {max(times):.1f}"
    )
    return 1 if unnamed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        train(args.backend, args.inside, args.ranks)
        return 0
    random.seed(args.seed)
    return measure(args)


if __name__ == "__main__":
    sys.exit(main())
