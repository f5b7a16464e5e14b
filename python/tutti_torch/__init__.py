# __init__.py -- the backend "tutti" of torch.distributed.   SPDX-License-Identifier: MIT
"""Tutti's collectives for PyTorch's CPU tensors: torch.distributed.init_process_group("tutti").

There are two implementations of the same backend: a compiled one, which fits one release of PyTorch exactly, and one in
Python for all releases that allow it. The first is taken if it is there and fits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch  # before choose.py, which PyTorch may import in turn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .choose import compiled, implementation, register

__all__ = ["ddp_in_group_memory", "empty", "group_memory", "implementation", "register"]


def _backend_of(group: dist.ProcessGroup | None) -> Any:
    pg = group if group is not None else dist.group.WORLD
    if pg is None:
        raise ValueError("tutti_torch: init_process_group has not been called")
    # in 1.13 the group is the backend
    backend = pg._get_backend(torch.device("cpu")) if hasattr(pg, "_get_backend") else pg
    return getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL


def _allocate(backend: Any, count: int, dtype: torch.dtype) -> torch.Tensor:
    module = compiled()
    if module is not None:
        return module.allocate(backend, count, dtype)  # also where Backend has no such method
    return backend.allocate_tensor(count, dtype=dtype, device=torch.device("cpu"))


def empty(
    *size: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """A tensor in memory that the other ranks of this host read directly: collectives on it copy nothing.

    All ranks of the group make their first such tensor at the same place between collectives, because that reserves the
    memory (TUTTI_TORCH_POOL_MB mebibytes a rank, in use only once they are written); later ones ask no other rank. A
    tensor that no longer fits is in ordinary memory, with a warning.
    """
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    kind = dtype if dtype is not None else torch.get_default_dtype()
    return _allocate(_backend_of(group), math.prod(shape), kind).view(shape)


@contextlib.contextmanager
def group_memory(group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """CPU tensors of 64 KiB or more that this thread makes in this scope are in memory that the other ranks of this host read
    directly, as those of `empty` are: also those that PyTorch makes itself.

    All ranks of the group enter it at the same place between collectives. Needs the compiled backend.
    """
    module = compiled()
    if module is None:
        raise RuntimeError(
            "tutti_torch.group_memory: needs the compiled backend (the logger tutti_torch says at level INFO why it is "
            "not used); tutti_torch.empty works with both"
        )
    backend = _backend_of(group)  # kept alive by this scope
    before = module.set_group_memory(backend)
    try:
        yield
    finally:
        module.set_group_memory(before)


class _DDPInGroupMemory(DistributedDataParallel):
    """DDP makes its buckets twice: at first (and when it is unpickled), and in the order of the first backward when the second
    forward begins. A class of its own, so that a model can be pickled and copied.
    """

    def _ddp_init_helper(self, *args: Any, **kwargs: Any) -> None:
        with group_memory(self.process_group):
            super()._ddp_init_helper(*args, **kwargs)

    def _pre_forward(self, *args: Any, **kwargs: Any) -> Any:  # 2.0 and later
        with group_memory(self.process_group):
            return super()._pre_forward(*args, **kwargs)


def ddp_in_group_memory(*args: Any, **kwargs: Any) -> DistributedDataParallel:
    """DistributedDataParallel(*args, **kwargs) whose gradient buckets the other ranks of this host read directly."""
    return _DDPInGroupMemory(*args, **kwargs)


register()
