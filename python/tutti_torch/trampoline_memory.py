# trampoline_memory.py -- tensors in memory that the other ranks of the host read directly.
# SPDX-License-Identifier: MIT
"""One piece of the group's memory, reserved by all ranks when the first tensor is asked for.

Tensors then take pieces of it without asking the other ranks, and give them back when they are freed.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import threading
import warnings
import weakref
from collections.abc import Callable

import torch

_LINE, _PAGE = (
    64,
    4096,
)  # so that buffers of different ranks share neither lines nor, if they are large, pages


def arena_bytes() -> int:
    """The size of a group's piece."""
    text = os.environ.get("TUTTI_TORCH_ARENA_MB", "1024")
    if not text.isdecimal() or int(text) == 0:
        raise RuntimeError(
            f"TUTTI_TORCH_ARENA_MB={text}: expected a number of mebibytes of 1 or more"
        )
    return int(text) << 20


class Arena:
    """Gives out pieces of `size` bytes at `base`."""

    def __init__(self, base: int, size: int) -> None:
        self._base = base
        self._free: list[tuple[int, int]] = [(0, size)]  # offset, bytes; in order
        self._taken = 0
        self._at_end: Callable[[], None] | None = None
        self._lock = threading.RLock()  # the garbage collector may free a tensor anywhere

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of one dimension; in ordinary memory if there is no room."""
        need = max(count * dtype.itemsize, 1)
        unit = _PAGE if need >= 16 * _PAGE else _LINE
        need = (need + unit - 1) // unit * unit
        with self._lock:
            at = next((i for i, (_, n) in enumerate(self._free) if n >= need), None)
            if count == 0 or at is None:
                if at is None:
                    warnings.warn(
                        f"tutti: no room for {need} bytes in the group's memory, so they are in "
                        "ordinary memory and copied in each call; TUTTI_TORCH_ARENA_MB sets its size",
                        stacklevel=3,
                    )
                return torch.empty(count, dtype=dtype)
            offset, n = self._free.pop(at)
            if n > need:
                self._free.insert(at, (offset + need, n - need))
            self._taken += 1
        piece = (ctypes.c_char * need).from_address(self._base + offset)
        weakref.finalize(piece, self._give_back, offset, need).atexit = False
        return torch.frombuffer(piece, dtype=dtype, count=count)

    def _give_back(self, offset: int, n: int) -> None:
        with self._lock:
            at = bisect.bisect_left(self._free, (offset, 0))
            if at < len(self._free) and self._free[at][0] == offset + n:
                n += self._free.pop(at)[1]
            if at > 0 and sum(self._free[at - 1]) == offset:
                at -= 1
                offset, before = self._free.pop(at)
                n += before
            self._free.insert(at, (offset, n))
            self._taken -= 1
            at_end = self._at_end if self._taken == 0 else None
        if at_end is not None:
            at_end()

    def close(self, at_end: Callable[[], None]) -> None:
        """Calls `at_end` when no tensor uses the memory any more."""
        with self._lock:
            self._at_end = at_end
            if self._taken:
                return
        at_end()
