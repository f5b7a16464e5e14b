# choose.py -- which implementation of the backend is used, and its registration.   SPDX-License-Identifier: MIT
"""Apart from the package's __init__.py, because PyTorch calls register() at the end of `import torch`, which may be in the
middle of `import tutti_torch`."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from types import ModuleType

_log = logging.getLogger("tutti_torch")

# The library names groups in its messages; names are limited to 63 bytes.
_MAX_NAME = 60


def _torch_at_build() -> str | None:
    try:
        from ._built_for import TORCH_VERSION
    except ImportError:
        return None
    return TORCH_VERSION


def load_compiled() -> tuple[ModuleType | None, str]:
    """The extension module, or why it cannot be used."""
    built_for = _torch_at_build()
    if built_for is None:
        return None, "it was not built"
    if built_for != torch.__version__:
        return None, f"it was built for PyTorch {built_for}, and this is {torch.__version__}"
    try:
        from . import _C
    except ImportError as error:
        return None, f"it cannot be loaded: {error}"
    return _C, ""


def why_no_python() -> str | None:
    """Why the backend in Python cannot be used here; None if it can."""
    try:
        from . import library, trampoline
    except ImportError as error:
        return f"PyTorch {torch.__version__} is too old for it ({error})"

    class Probe(trampoline.Backend):  # type: ignore[misc]
        def getBackendName(self) -> str:
            return "probe"

    try:
        if Probe(0, 1).name() != "probe":
            raise RuntimeError("its methods are not called from C++")
    except (RuntimeError, TypeError) as error:
        return f"PyTorch {torch.__version__} has no c10d backends in Python (2.14 has): {error}"
    try:
        library.load()
    except OSError as error:
        return f"libtutti_comm.so cannot be loaded: {error}"
    return None


class _Choice:
    """Which implementation is used; decided when the first group is made."""

    def __init__(self) -> None:
        self.compiled: ModuleType | None = None
        wish = os.environ.get("TUTTI_TORCH_IMPLEMENTATION", "")
        if wish not in ("", "compiled", "python"):
            raise ValueError(
                f'TUTTI_TORCH_IMPLEMENTATION="{wish}": expected "compiled" or "python"'
            )
        why = "TUTTI_TORCH_IMPLEMENTATION says so"
        if wish != "python":
            self.compiled, why = load_compiled()
        if self.compiled is not None:
            atexit.register(_leave_all, self.compiled)
            return
        if wish == "compiled":
            raise RuntimeError(f"tutti_torch: no compiled backend: {why}")
        no_python = why_no_python()
        if no_python is not None:
            raise RuntimeError(
                f"tutti_torch: no compiled backend ({why}), and none in Python: {no_python}"
            )
        from . import trampoline

        atexit.register(_leave_all, trampoline)
        _log.info("tutti_torch: the backend in Python, not the compiled one: %s", why)


_choice: _Choice | None = None


def _chosen() -> _Choice:
    global _choice
    if _choice is None:
        _choice = _Choice()
    return _choice


def compiled() -> ModuleType | None:
    """The extension module, if this process uses it."""
    return _chosen().compiled


def implementation() -> str:
    """Which implementation this process uses: "compiled" or "python"."""
    return "compiled" if compiled() is not None else "python"


def _group_name(opts: Any) -> str:
    """A name that the library accepts; the end of a longer one tells groups apart."""
    if not list(opts.global_ranks_in_group):
        return "world"
    name = str(opts.group_id) or "group"
    return name if len(name.encode()) <= _MAX_NAME else "..." + name[-40:]


def create(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    name: str,
    ranks: list[int] | None = None,
    without_members: bool = False,
) -> Any:
    """A c10d backend whose ranks meet in `store`. With `without_members`, of one communicator that is reconfigured later.

    `ranks`: of the default group, of which this one is made; empty for the default group itself; None for one beside it.
    """
    module = compiled()
    if module is None:
        from . import trampoline

        return trampoline.create(store, rank, size, timeout, name, ranks, without_members)
    return module.create(
        store, rank, size, timeout.total_seconds(), name, ranks, without_members
    )


def _create(opts: Any, backend_options: Any = None) -> Any:
    """Makes a backend for one process group: PyTorch's factory of the extended interface."""
    without_members = getattr(opts, "enable_reconfigure", False)
    return create(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.timeout,
        _group_name(opts),
        list(opts.global_ranks_in_group),
        without_members,
    )


def register() -> None:
    """Makes "tutti" a backend of torch.distributed. PyTorch calls this by itself (entry points); calling it again is fine."""
    if not dist.is_available() or "TUTTI" in getattr(dist.Backend, "_plugins", {}):
        return
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
    else:  # 1.13
        dist.Backend.register_backend("tutti", _create, extended_api=True)
    if not _wants_pytorchs_recorder():
        _leave_recording_to_us()


def _wants_pytorchs_recorder() -> bool:
    sizes = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    dumps = os.environ.get("TORCH_FR_DUMP_ON_TIMEOUT", "0") not in ("", "0", "false")
    return dumps or any(os.environ.get(name) for name in sizes)


def _leave_recording_to_us() -> None:
    """From 2.15 on PyTorch adds a flight recorder to backends that it takes to have none, which takes as long as a call of
    a few bytes. The library has one. PyTorch lets a registrar say so in this set."""
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if isinstance(recording, set):
        recording.add("tutti")


def _leave_all(module: ModuleType) -> None:
    """At exit: peers learn why this process ended, if it failed, and otherwise that it left in order."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    why = ""
    if error is not None:
        text = str(error)
        why = f"its program ended with {type(error).__name__}" + (f": {text}" if text else "")
    module.leave_all(why[:500].encode("utf-8", "replace").decode())
