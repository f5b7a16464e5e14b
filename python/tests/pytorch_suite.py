#!/usr/bin/env python3
# pytorch_suite.py -- PyTorch's own tests of torch.distributed, with Gloo and with Tutti.   SPDX-License-Identifier: MIT
"""Runs PyTorch's own tests with both backends and prints what passes with Gloo and not with Tutti. The cases see Gloo's name, and
Tutti is what they get (pytorch_patches.py).

Without --tests: torch/testing/_internal/distributed/distributed_test.py, which every PyTorch wheel contains. All-to-all is gated
to MPI by name there: those cases run with that name.

With --tests FOLDER, which is test/distributed of a PyTorch checkout of the installed release: files in it, by default those of
FAMILIES. Decorators that want GPUs are taken out, so that what runs on CPUs is found by running it with Gloo.

    python pytorch_suite.py                                   all cases, both backends
    python pytorch_suite.py -k all_reduce                     those with this in their name
    python pytorch_suite.py --backend tutti                   one backend only
    python pytorch_suite.py --tests ~/pytorch/test/distributed [test_device_mesh.py ...]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytorch_patches import add_fault_tolerance, load, prepare, renew, replace

CASE_LIMIT_S = int(os.environ.get("TUTTI_TEST_LIMIT_S", "120"))
FILE_LIMIT_S = 3600

# Files (or patterns) of test/distributed for --tests.
FAMILIES = [
    "test_c10d_fault_tolerance.py",
    "test_c10d_gloo.py",
    "test_c10d_functional_native.py",
    "test_c10d_object_collectives.py",
    "test_collective_utils.py",
    "test_device_mesh.py",
    "test_functional_api.py",
    "test_inductor_collectives.py",
    "algorithms/ddp_comm_hooks/test_*.py",
    "algorithms/test_join.py",
    "optim/test_zero_redundancy_optimizer.py",
    "pipelining/test_*.py",
    "_composable/fsdp/test_fully_shard_*.py",
    "tensor/parallel/test_*.py",
    "tensor/test_*.py",
    "_tensor/test_*.py",  # its name before 2.7
]

# Cases by their class and name (or its start), and why they cannot pass with any backend but Gloo, or with Tutti.
NAME = "compares the backend's name"
SEVERAL = "gives one rank several tensors of one call, which torch.distributed's functions cannot"
LEFT_OUT = {
    "distributed_test.test_get_backend": NAME,
    "distributed_test.test_ddp_logging_data_cpu": NAME + " with what DDP logs for every plug-in",
    "GlooFaultToleranceTest.test_reconfigure_after_abort": "runs as AsNccl2, whose get_error is Tutti's",
    "GlooProcessGroupWithDispatchedCollectivesTests.test_all_to_all_single": "expects that strides are "
    "refused, and Tutti takes them",
    "GlooProcessGroupWithDispatchedCollectivesTests.test_init_process_group_for_all_backends": NAME,
    "ProcessGroupGlooTest.test_allgather_basics": SEVERAL,
    "ProcessGroupGlooTest.test_allgather_checks": "expects that outputs of other sizes are refused, and "
    "Tutti takes them",
    "ProcessGroupGlooTest.test_allgather_inference_mode": SEVERAL,
    "ProcessGroupGlooTest.test_allgather_noncontiguous_input": SEVERAL,
    "ProcessGroupGlooTest.test_allreduce_basics": SEVERAL,
    "ProcessGroupGlooTest.test_allreduce_coalesced_checks": "expects that lists of several types are "
    "refused, and Tutti takes them",
    "ProcessGroupGlooTest.test_broadcast_basics": SEVERAL,
    "ProcessGroupGlooTest.test_broadcast_checks": SEVERAL,
    "ProcessGroupGlooTest.test_reduce_checks": SEVERAL,
    "ProcessGroupGlooTest.test_set_gloo_pg_timeout": "calls a method of ProcessGroupGloo alone",
    "ProcessGroupGlooTest.test_sparse_allreduce_basics": SEVERAL,
}


def reason_of(name: str) -> str | None:
    return next((why for case, why in LEFT_OUT.items() if name.endswith(case)), None)


# ---- One backend, in a process of its own ---------------------------------------------------------


class Recorder(unittest.TestResult):
    def __init__(self, path: str, prefix: str = "") -> None:
        super().__init__()
        self.path, self.prefix = path, prefix

    def _write(self, test: Any, outcome: str, text: str = "") -> None:
        self.write(name_of(test), outcome, text)

    def write(self, name: str, outcome: str, text: str) -> None:
        name = self.prefix + name
        took = time.monotonic() - getattr(self, "began", time.monotonic())
        with open(self.path, "a") as f:
            f.write(json.dumps([name, outcome, text, took]) + "\n")
        print(f"{outcome:8} {took:6.1f} s  {name}", flush=True)

    def startTest(self, test: Any) -> None:
        self.began = time.monotonic()
        signal.alarm(CASE_LIMIT_S)

    def stopTest(self, test: Any) -> None:
        signal.alarm(0)
        renew(test)

    def addSuccess(self, test: Any) -> None:
        self._write(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._write(test, "skipped", reason)

    def addFailure(self, test: Any, error: Any) -> None:
        self._write(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self._write(test, "passed", "an expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._write(test, "failed", "an unexpected success")


def name_of(case: Any) -> str:
    """Class and method, without the module, which is not always the same part of its id."""
    return case.id().split(".", 1)[-1]


def give_up(*_: Any) -> None:
    raise TimeoutError(f"the case took more than {CASE_LIMIT_S} s")


def cases_of(suite: Any) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases_of(part)
        else:
            yield part


def load_wheel(gate: str, backend: str) -> Any:
    import torch.multiprocessing
    from torch.testing._internal.distributed import distributed_test as suite

    suite.PROFILING_SUPPORTED_BACKENDS.append(backend)
    suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(backend)

    class Cases(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    Cases.__qualname__ = "distributed_test"
    loaded = unittest.defaultTestLoader.loadTestsFromTestCase(Cases)
    if gate == "mpi":
        loaded = [c for c in loaded if "all_to_all" in c.id() and "cuda" not in c.id()]
    return loaded


def load_file(folder: str, file: str, backend: str) -> Any:
    module = load(folder, file)
    if file == "test_c10d_fault_tolerance.py" and backend == "tutti":
        add_fault_tolerance(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def run_one(args: argparse.Namespace) -> None:
    os.environ.update(
        BACKEND=args.gate,  # what the decorators see
        WORLD_SIZE=str(args.world),
        TEMP_DIR=tempfile.mkdtemp(),
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(CASE_LIMIT_S - 20),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    prepare()
    file = args.files[0] if args.tests else None
    recorder = Recorder(args.out, f"{file}: " if file else "")
    try:
        found = (
            load_file(args.tests, file, args.inside) if file else load_wheel(args.gate, args.inside)
        )
    except Exception:
        recorder.write("import", "failed", traceback.format_exc())
        return
    if args.inside != args.gate:
        replace(args.inside, args.gate)
    wanted = [
        case
        for case in cases_of(found)
        if args.k in case.id() and (args.inside == "gloo" or reason_of(name_of(case)) is None)
    ]
    signal.signal(signal.SIGALRM, give_up)
    # a suite, which sets classes up
    unittest.TestSuite(wanted).run(recorder)


# ---- Both ---------------------------------------------------------------------------------------------


Results = dict[str, tuple[str, str]]


def run_inside(command: list[str], log: Any) -> str:
    """In a process group of its own: what a case leaves behind ends with it. Returns why it ended early, or ""."""
    why = ""
    process = subprocess.Popen(command, stdout=sys.stdout, stderr=log, start_new_session=True)
    try:
        process.wait(FILE_LIMIT_S)
    except subprocess.TimeoutExpired:
        why = f"ended after {FILE_LIMIT_S} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if process.returncode != 0 and not why:
        why = f"the process ended with {process.returncode}; its output is in the log"
    return why


def outcomes(backend: str, args: argparse.Namespace) -> Results:
    folder = Path(args.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{backend}.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--inside", backend, "--world", str(args.world)]
    command += ["-k", args.k, "--out", str(out)]
    if args.tests:
        runs = [["--tests", args.tests, file] for file in args.files]
    else:
        runs = [["--gate", gate] for gate in ("gloo", "mpi")]
    found: Results = {}
    with open(folder / f"{backend}.log", "w") as log:
        for run in runs:
            print(f"{backend}: {run[-1]}", flush=True)
            why = run_inside([*command, *run], log)
            if why:
                print(f"{backend}: {run[-1]}: {why}", flush=True)
                found[f"{run[-1]}: all its cases"] = "failed", why
    lines = out.read_text().splitlines() if out.exists() else []
    for name, outcome, text, _ in map(json.loads, lines):
        if outcome != "skipped" or name not in found:  # with one name skipped, with the other not
            found[name] = outcome, text
    return found


def cause(text: str) -> str:
    """The first line of a failure that names an exception."""
    lines = [line for line in text.splitlines() if "Error: " in line and "Process" not in line]
    return (lines or text.strip().splitlines() or [""])[0][:200]


def print_counts(gloo: Results, tutti: Results) -> None:
    """A row for each file, and the sum."""
    files = list(dict.fromkeys(name.rpartition(": ")[0] for name in gloo))
    print("\nGloo: passed, failed, skipped; Tutti: the same")
    for file in [*(files if len(files) > 1 else []), None]:
        row = []
        for results in (gloo, tutti):
            kept = [o for n, (o, _) in results.items() if file in (None, n.rpartition(": ")[0])]
            row += [kept.count(outcome) for outcome in ("passed", "failed", "skipped")]
        print("{:>5} {:>5} {:>5}   {:>5} {:>5} {:>5}".format(*row), file or "all")


def compare(gloo: Results, tutti: Results) -> int:
    print_counts(gloo, tutti)
    print("\nPasses with Gloo and not with Tutti:")
    missing = 0
    for name, (outcome, _) in gloo.items():
        got, text = tutti.get(name, ("left out", reason_of(name) or "not run"))
        if outcome == "passed" and got != "passed":
            missing += reason_of(name) is None
            print(f"  {got:9} {name}: {cause(text)}")
    better = [
        n for n, (o, _) in tutti.items() if o == "passed" and gloo.get(n, ("failed",))[0] == "failed"
    ]
    print(f"\nPasses with Tutti and fails with Gloo: {', '.join(better) or 'none'}")
    return 1 if missing else 0


def files_in(folder: str, wanted: list[str]) -> list[str]:
    root = Path(folder)
    found = [str(p.relative_to(root)) for name in wanted for p in sorted(root.glob(name))]
    if not found:
        sys.exit(f'pytorch_suite.py: "{folder}" has none of {", ".join(wanted)}')
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="files or patterns in the folder of --tests")
    parser.add_argument("--tests", help="test/distributed of a checkout of PyTorch")
    parser.add_argument("-k", default="", help="only cases with this in their name")
    parser.add_argument("--world", type=int, default=4, help="processes (4)")
    parser.add_argument("--backend", choices=["gloo", "tutti"], help="only this one")
    parser.add_argument("--keep", help="a folder for results and the cases' own output")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--gate", default="gloo", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        run_one(args)
        return 0
    if args.tests:
        args.tests = str(Path(args.tests).resolve())
        args.files = files_in(args.tests, args.files or FAMILIES)
    results = {b: outcomes(b, args) for b in ("gloo", "tutti") if args.backend in (None, b)}
    if len(results) == 2:
        return compare(results["gloo"], results["tutti"])
    return 1 if any(o == "failed" for o, _ in next(iter(results.values())).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
