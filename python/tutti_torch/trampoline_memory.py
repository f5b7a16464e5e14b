# trampoline_memory.py -- tensors in memory that the other ranks of the host read directly.
# SPDX-License-Identifier: MIT
"""One piece of the group's memory, reserved by all ranks when the first tensor is asked for: the library's pool.

Tensors then take pieces of it without asking the other ranks, and give them back when they are freed.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
import weakref
from collections.abc import Callable

import torch

from . import library


def pool_bytes() -> int:
    """The size of a group's pool."""
    text = os.environ.get("TUTTI_TORCH_POOL_MB", "1024")
    if not text.isdecimal() or int(text) == 0:
        raise RuntimeError(
            f"TUTTI_TORCH_POOL_MB={text}: expected a number of mebibytes of 1 or more"
        )
    return int(text) << 20


class Pool:
    """Owns a pool of the library's. Each tensor in it holds it; the last one that is freed ends it."""

    def __init__(self, lib: library.Library, handle: int) -> None:
        self._lib = lib
        self._handle = handle
        self.at_end: Callable[[], None] | None = None  # after the pool is gone

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of one dimension; in ordinary memory if there is no room."""
        need = count * dtype.itemsize
        if need >= 1 << 63:
            raise RuntimeError(f"tutti: a tensor of {count} elements in the group's memory")
        p = self._lib.pool_alloc(self._handle, max(need, 1))
        if count and p:
            piece = (ctypes.c_char * need).from_address(p)
            weakref.finalize(piece, self._release, p).atexit = False
            return torch.frombuffer(piece, dtype=dtype, count=count)
        self._lib.pool_release(self._handle, p)
        if not p:
            warnings.warn(
                f"tutti: no room for {need} bytes in the group's memory, so they are in "
                "ordinary memory and copied in each call; TUTTI_TORCH_POOL_MB sets its size",
                stacklevel=3,
            )
        return torch.empty(count, dtype=dtype)

    def _release(self, p: int) -> None:
        self._lib.pool_release(self._handle, p)

    def __del__(self) -> None:
        if sys.is_finalizing():  # the process's end frees all
            return
        self._lib.pool_free(self._handle)
        if self.at_end is not None:
            self.at_end()
