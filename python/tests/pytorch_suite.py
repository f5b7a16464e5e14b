#!/usr/bin/env python3
# pytorch_suite.py -- PyTorch's own tests of torch.distributed, with Gloo and with Tutti.   SPDX-License-Identifier: MIT
"""Runs the cases of torch/testing/_internal/distributed/distributed_test.py, which every PyTorch wheel contains, with both
backends, and prints what passes with Gloo and not with Tutti. PyTorch gates many cases by the name of the backend, also inside of
them: they see Gloo's name, and Tutti is what they get. All-to-all is gated to MPI by name: those cases run with that name.

    python pytorch_suite.py                      all cases, both backends
    python pytorch_suite.py -k all_reduce        those with this in their name
    python pytorch_suite.py --backend tutti      one backend only
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# What cannot pass with any backend but the one named, and why.
LEFT_OUT = {
    "test_monitored_barrier": "dist.monitored_barrier refuses every backend that is not named gloo",
    "test_get_backend": "compares the backend's name with the one that the cases see",
    "test_ddp_logging_data_cpu": "compares the backend's name with what DDP logs for every plug-in",
}


def reason_of(name: str) -> str | None:
    return next((why for start, why in LEFT_OUT.items() if name.startswith(start)), None)


# ---- One backend, in a process of its own ---------------------------------------------------------


def load(backend: str, gate: str, world: int) -> type[unittest.TestCase]:
    os.environ.update(
        BACKEND=gate,  # what the decorators see
        WORLD_SIZE=str(world),
        TEMP_DIR=tempfile.mkdtemp(),
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="100",
    )
    sys.path.insert(0, str(HERE.parent))
    import torch.distributed as dist
    import torch.multiprocessing
    import tutti_torch  # noqa: F401
    from torch.testing._internal import common_distributed

    # groups of two ranks need no 8 processes
    common_distributed.skip_if_small_worldsize = lambda function: function
    from torch.testing._internal.distributed import distributed_test as suite

    plain_init, plain_group = dist.init_process_group, dist.new_group

    def init(*args: Any, **named: Any) -> None:
        if named.get("backend") == gate:
            named["backend"] = backend
        plain_init(*args, **named)

    def group(*args: Any, **named: Any) -> Any:
        if named.get("backend") == gate:
            named["backend"] = backend
        return plain_group(*args, **named)

    dist.init_process_group, dist.new_group = init, group

    class Cases(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            # a fork has PyTorch loaded already
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Cases


class Recorder(unittest.TestResult):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def _write(self, test: Any, outcome: str, text: str = "") -> None:
        name = test._testMethodName
        took = time.monotonic() - self.began
        with open(self.path, "a") as f:
            f.write(json.dumps([name, outcome, text, took]) + "\n")
        print(f"{outcome:8} {took:6.1f} s  {name}", flush=True)

    def startTest(self, test: Any) -> None:
        self.began = time.monotonic()

    def addSuccess(self, test: Any) -> None:
        self._write(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._write(test, "skipped", reason)

    def addFailure(self, test: Any, error: Any) -> None:
        self._write(test, "failed", self._exc_info_to_string(error, test))

    def addError(self, test: Any, error: Any) -> None:
        self._write(test, "failed", self._exc_info_to_string(error, test))


def run_one(backend: str, gate: str, world: int, pattern: str, out: str) -> None:
    cases = load(backend, gate, world)
    names = [n for n in unittest.TestLoader().getTestCaseNames(cases) if pattern in n]
    if gate == "mpi":
        names = [n for n in names if "all_to_all" in n and "cuda" not in n]
    result = Recorder(out)
    for name in names:
        if backend == "gloo" or reason_of(name) is None:
            cases(name).run(result)


# ---- Both ---------------------------------------------------------------------------------------------


def outcomes(backend: str, args: argparse.Namespace) -> dict[str, tuple[str, str]]:
    folder = Path(args.keep or tempfile.mkdtemp())
    out = folder / f"{backend}.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--inside", backend, "--world", str(args.world)]
    with open(folder / f"{backend}.log", "w") as log:
        for gate in ("gloo", "mpi"):
            inside = [*command, "--gate", gate, "-k", args.k, "--out", str(out)]
            subprocess.run(inside, check=False, stdout=sys.stdout, stderr=log)
    lines = out.read_text().splitlines() if out.exists() else []
    found: dict[str, tuple[str, str]] = {}
    for name, outcome, text, _ in map(json.loads, lines):
        if outcome != "skipped" or name not in found:  # with one name skipped, with the other not
            found[name] = outcome, text
    return found


def cause(text: str) -> str:
    """The first line of a failure that names an exception."""
    lines = [line for line in text.splitlines() if "Error: " in line and "Process" not in line]
    return (lines or text.strip().splitlines() or [""])[0][:200]


def compare(gloo: dict[str, tuple[str, str]], tutti: dict[str, tuple[str, str]]) -> int:
    def count(results: dict[str, tuple[str, str]], outcome: str) -> int:
        return sum(o == outcome for o, _ in results.values())

    print(f"\n{'':8} passed  failed  skipped")
    for name, results in (("gloo", gloo), ("tutti", tutti)):
        print(f"{name:8}", *(f"{count(results, o):6}" for o in ("passed", "failed", "skipped")))
    print("\nPasses with Gloo and not with Tutti:")
    missing = 0
    for name, (outcome, _) in gloo.items():
        got, text = tutti.get(name, ("left out", reason_of(name) or "not run"))
        if outcome == "passed" and got != "passed":
            missing += got != "left out"
            print(f"  {got:9} {name}: {cause(text)}")
    better = [n for n, (o, _) in tutti.items() if o == "passed" and gloo[n][0] == "failed"]
    print(f"\nPasses with Tutti and fails with Gloo: {', '.join(better) or 'none'}")
    return 1 if missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-k", default="", help="only cases with this in their name")
    parser.add_argument("--world", type=int, default=4, help="processes (4)")
    parser.add_argument("--backend", choices=["gloo", "tutti"], help="only this one")
    parser.add_argument("--keep", help="a folder for results and the cases' own output")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--gate", default="gloo", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        run_one(args.inside, args.gate, args.world, args.k, args.out)
        return 0
    results = {b: outcomes(b, args) for b in ("gloo", "tutti") if args.backend in (None, b)}
    if len(results) == 2:
        return compare(results["gloo"], results["tutti"])
    return 1 if any(o == "failed" for o, _ in next(iter(results.values())).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
