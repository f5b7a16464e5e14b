# pytorch_patches.py -- makes PyTorch's own tests, which name Gloo, run with another backend.   SPDX-License-Identifier: MIT
"""The cases see Gloo's name, since many decide by it what to run; the process groups that they make are of the backend under test.
Processes are forked, because those that are spawned import PyTorch anew, and would not be patched."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent

# Decorators that leave cases out for want of GPUs. Without them, what needs a GPU fails with Gloo too.
GPU_GATES = (
    "requires_accelerator_dist_backend",
    "requires_nccl",
    "skip_if_lt_x_gpu",
    "skip_if_no_gpu",
    "skip_if_win32",
)


# What makes cases that name GPUs run on CPUs; for these files and folders of test/distributed.
ON_CPUS = (
    "_composable",
    "pipelining",
    "tensor/parallel/test_micro_pipeline_tp.py",
    "test_inductor_collectives.py",
)
REWRITES = [
    (r'f"cuda:[^"]*"', '"cpu"'),
    (r'"cuda(:\d+)?"', '"cpu"'),
    (r'torch\.device\("cpu", [^)]*\)', 'torch.device("cpu")'),
    (r"\.cuda\([^()]*\)", ".cpu()"),
    (r", device_ids=\[[^\]]*\]", ""),
    (r"torch\.cuda\.device_count\(\)", "4"),
    (r'"nccl"', '"gloo"'),
    (r"not TEST_(CUDA|MULTIGPU|MULTIACCELERATOR)", "False"),
]

# As many processes as there are GPUs are what many of these cases start.
DEVICES = 4

# Names that tests of other releases than the installed one import.
ALIASES = {
    "torch.testing._internal.common_distributed": {
        "MultiProcContinousTest": "MultiProcContinuousTest",
    },
}

# Cases that expect an error in Gloo's words: with another backend only its type is compared.
OTHER_TEXT = (
    "test_monitored_barrier_",
    "test_allgather_coalesced_checks",
    "test_allreduce_checks",
    "test_gather_checks",
    "test_scatter_checks",
    "test_sparse_allreduce_checks",
)


def prepare() -> None:
    """To be called once, before the module with the tests is imported."""
    if importlib.util.find_spec("tutti_torch") is None:
        sys.path.insert(0, str(HERE.parent))
    import torch.multiprocessing
    import tutti_torch  # noqa: F401
    from torch.testing._internal import common_distributed as common

    torch.multiprocessing.set_start_method("fork", force=True)
    fork = torch.multiprocessing.get_context("fork").Process
    common.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(fork)
    common.skip_if_small_worldsize = lambda function: function  # groups of two need no 8 processes


def replace(backend: str, gate: str) -> None:
    """Process groups whose backend is named `gate` are made with `backend`. To be called once, after the import, when decorators have
    seen what is available by that name."""
    _replace_names(backend, [gate, "nccl2"] if gate == "gloo" else [gate])
    if backend != "gloo":
        _replace_texts()
        _replace_monitored_barrier()
        _replace_gloo_class()


def load(folder: str, file: str) -> types.ModuleType:
    """The module in that file of test/distributed."""
    path = Path(folder) / file
    sys.path[1:1] = [str(path.parent), folder, str(Path(folder).parent)]
    for name, aliases in ALIASES.items():
        module = importlib.import_module(name)
        for old, new in aliases.items():
            if not hasattr(module, old) and hasattr(module, new):
                setattr(module, old, getattr(module, new))
    open_gpu_gates()
    if not file.startswith(ON_CPUS):
        return importlib.import_module(path.stem)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    text = path.read_text()
    for pattern, replacement in REWRITES:
        text = re.sub(pattern, replacement, text)
    stand_in_for_gpus()
    exec(compile(text, str(path), "exec"), vars(module))  # noqa: S102
    return module


def stand_in_for_gpus() -> None:
    """What tests call to make kernels slow or to wait for them, and the number of processes, which is that of the GPUs."""
    import torch
    from torch.testing._internal import common_distributed, common_fsdp, common_utils

    torch.cuda._sleep = lambda *_: None
    torch.cuda.set_device = lambda *_: None
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_stream = torch.cpu.current_stream
    torch.cpu.device_count = lambda: DEVICES
    torch.cpu.Stream.is_capturing = lambda _: False  # optimizers ask, of graphs of an accelerator's kernels
    for name, stand_in in {
        "current_accelerator": lambda *_, **__: torch.device("cpu"),
        "current_device_index": lambda: 0,
        "current_stream": torch.cpu.current_stream,
        "device_count": lambda: DEVICES,
        "is_available": lambda: False,  # what it has is not in the processes that are forked
        "set_device_index": lambda *_: None,
        "synchronize": lambda *_: None,
    }.items():
        setattr(torch.accelerator, name, stand_in)
    common_fsdp.DEVICE_COUNT = DEVICES
    common_utils.get_cycles_per_ms = lambda: 1.0
    continuous = getattr(common_distributed, "MultiProcContinuousTest", None)
    if continuous is not None and continuous.world_size < 0:
        continuous.world_size = 2


def renew(case: Any) -> None:
    """After a failure, new processes for a class that keeps them for all of its cases, and would skip the rest."""
    made = type(case)
    if not getattr(made, "poison_pill", False):
        return
    for process in made.processes:
        process.kill()
        process.join()
    made._processes_spawned = made.poison_pill = False


def differs_in_text(name: str) -> bool:
    return name.startswith(OTHER_TEXT)


def open_gpu_gates() -> None:
    from torch.testing._internal import common_distributed as common

    def opened(*args: Any, **named: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not named:
            return args[0]
        return lambda function: function

    for name in GPU_GATES:
        if hasattr(common, name):
            setattr(common, name, opened)


def _replace_names(backend: str, gates: list[str]) -> None:
    """Every name becomes a dist.Backend on its way into a process group, in whatever form the program gives it."""
    import torch.distributed as dist

    plain, c10d = dist.Backend.__new__, vars(dist.distributed_c10d)

    def new(cls: type, name: str) -> str:
        value = plain(cls, name)
        by_pytorch = sys._getframe(1).f_globals is c10d
        return backend if value in gates and by_pytorch else value

    dist.Backend.__new__ = new


def _replace_texts() -> None:
    from torch.testing._internal.common_utils import TestCase

    plain = TestCase.assertRaisesRegex

    def raises(self: Any, error: Any, text: Any, *args: Any, **named: Any) -> Any:
        if differs_in_text(self._testMethodName):
            return self.assertRaises(error, *args, **named)
        return plain(self, error, text, *args, **named)

    TestCase.assertRaisesRegex = raises


def _replace_monitored_barrier() -> None:
    """Before 2.15, dist.monitored_barrier refuses what is not named gloo."""
    import torch.distributed as dist

    plain = dist.monitored_barrier
    if "GLOO" not in plain.__code__.co_names:
        return
    names = {**plain.__globals__, "get_backend": lambda group=None: "gloo"}
    copy = types.FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__)
    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = copy


def add_fault_tolerance(module: Any) -> None:
    """test_c10d_fault_tolerance.py with what it expects of nccl2, on CPUs: what get_error says after an abort of one's own, and that
    calls after a time limit fail."""
    made = module._make_fault_tolerance_test_class("nccl2", "cpu")
    made.__name__ = made.__qualname__ = "AsNccl2"
    made.__unittest_skip__ = False
    module.AsNccl2 = made
    module.dist.Backend.backend_capability["nccl2"] = ["cpu"]


def _replace_gloo_class() -> None:
    """A ProcessGroupGloo that a test makes itself is a backend of Tutti's, with Gloo's options."""
    import torch
    import torch.distributed as dist
    from tutti_torch.choose import _create

    gloo = getattr(dist, "ProcessGroupGloo", None)
    if gloo is None:
        return

    def make(store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        limit = timeout if options is None else getattr(options, "_timeout", options)
        return _create(
            SimpleNamespace(
                store=store,
                group_rank=rank,
                group_size=size,
                timeout=limit if limit is not None else timedelta(minutes=30),
                group_id="",
                global_ranks_in_group=[],
                enable_reconfigure=False,
            )
        )

    for name in ("_Options", "create_device", "create_default_device"):
        if hasattr(gloo, name):
            setattr(make, name, getattr(gloo, name))
    # of a process group's backend
    torch._C._distributed_c10d.Backend.create_device = staticmethod(gloo.create_device)
    dist.ProcessGroupGloo = dist.distributed_c10d.ProcessGroupGloo = make
