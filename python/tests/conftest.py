# conftest.py -- runs test functions on several processes.   SPDX-License-Identifier: MIT
"""`run(function, *args, world=2)` calls function(rank, world, *args) in `world` processes, between init_process_group("tutti")
and destroy_process_group. The processes are kept for the next test, because importing PyTorch takes seconds."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
LIMIT_S = float(os.environ.get("TUTTI_TEST_LIMIT_S", "120"))

if importlib.util.find_spec("tutti_torch") is None:
    sys.path.insert(0, str(HERE.parent))


@functools.cache
def _stores() -> dict[str, str]:
    """Debian's PyTorch 2.6 has no libuv, and its TCP stores ask for it all the same."""
    import torch.distributed as dist

    try:
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        if "without libuv" in str(error):
            return {"USE_LIBUV": "0"}
        raise
    return {}


def _environment(implementation: str) -> dict[str, str]:
    return {
        **_stores(),
        "TUTTI_TORCH_IMPLEMENTATION": implementation,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }


def _work(pipe: Any, rank: int, world: int) -> None:
    import torch.distributed as dist

    import tutti_torch  # noqa: F401  (for a folder that is not installed)

    while (task := pipe.recv()) is not None:
        module, name, args, backend, store = task
        try:
            function = getattr(importlib.import_module(module), name)
            if backend:
                dist.init_process_group(
                    backend, init_method=f"file://{store}", rank=rank, world_size=world
                )
            try:
                result = function(rank, world, *args)
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()
            pipe.send(("good", result))
        except pytest.skip.Exception as why:
            pipe.send(("skipped", str(why)))
        except BaseException:
            pipe.send(("failed", traceback.format_exc()))


class Ranks:
    """Processes that wait for functions to run. "A+B": the first has implementation A, the others B."""

    def __init__(self, world: int, implementation: str) -> None:
        context = multiprocessing.get_context("spawn")
        before = dict(os.environ)
        self.pipes, self.processes = [], []
        try:
            for rank in range(world):
                mine = implementation.split("+")[min(rank, implementation.count("+"))]
                os.environ.update(_environment(mine))
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, rank, world), daemon=True)
                process.start()
                theirs.close()
                self.pipes.append(ours)
                self.processes.append(process)
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.usable = True

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], backend: str) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            task = (function.__module__, function.__name__, args, backend, f"{folder}/store")
            for pipe in self.pipes:
                pipe.send(task)
            return self._collect(function.__name__)

    def _collect(self, name: str) -> list[Any]:
        deadline = time.monotonic() + LIMIT_S
        results: list[Any] = []
        failures, skipped = [], ""
        for rank, pipe in enumerate(self.pipes):
            try:
                if not pipe.poll(max(deadline - time.monotonic(), 0.1)):
                    failures.append(f"rank {rank}: no answer within {LIMIT_S:g} s")
                    self.usable = False
                    continue
                outcome, result = pipe.recv()
            except EOFError:
                outcome, result = "failed", "the process died"
                self.usable = False
            results.append(result)
            if outcome == "failed":
                failures.append(f"rank {rank}:\n{result}")
            if outcome == "skipped":
                skipped = result
        if failures:
            raise AssertionError(f"{name}:\n" + "\n".join(failures))
        if skipped:
            pytest.skip(skipped)
        return results

    def end(self) -> None:
        for process, pipe in zip(self.processes, self.pipes):
            if self.usable:
                pipe.send(None)
            else:
                process.kill()
        for process in self.processes:
            process.join(10)


Done = subprocess.CompletedProcess


def run_program(source: str, world: int, how: str, implementation: str) -> "list[Done[str]]":
    """What becomes of `world` processes of a program, which gets its rank, `world`, the path of a store, and `how`."""
    environment = {**os.environ, **_environment(implementation)}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(source)
        processes = [
            subprocess.Popen(
                [sys.executable, str(program), str(rank), str(world), f"{folder}/store", how],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(world)
        ]
        done = []
        try:
            for process in processes:
                out, err = process.communicate(timeout=LIMIT_S)
                done.append(Done(process.args, process.returncode, out, err))
        finally:
            for process in processes:
                process.kill()
    return done


def implementations() -> list[str]:
    from tutti_torch import choose

    found = []
    compiled, no_compiled = choose.load_compiled()
    if compiled is not None:
        found.append("compiled")
    no_python = choose.why_no_python()
    if no_python is None:
        found.append("python")
    if not found:  # else pytest would skip every test
        pytest.exit(f"{choose.__file__}: no compiled backend ({no_compiled}), and {no_python}", 1)
    return found


def pytest_generate_tests(metafunc: Any) -> None:
    if "implementation" in metafunc.fixturenames:
        metafunc.parametrize("implementation", implementations(), scope="session")


@pytest.fixture(scope="session")
def pools() -> Iterator[dict[tuple[int, str], Ranks]]:
    made: dict[tuple[int, str], Ranks] = {}
    yield made
    for ranks in made.values():
        ranks.end()


@pytest.fixture
def run(implementation: str, pools: dict[tuple[int, str], Ranks]) -> Callable[..., list[Any]]:
    def call(
        function: Callable[..., Any], *args: Any, world: int = 2, backend: str = "tutti"
    ) -> list[Any]:
        key = world, implementation
        if key not in pools or not pools[key].usable:
            pools[key] = Ranks(world, implementation)
        return pools[key].run(function, args, backend)

    return call
