# trampoline_sparse.py -- the sum of sparse tensors.   SPDX-License-Identifier: MIT
"""Each rank has only some elements: all get all, and add them up. The calls are the compiled backend's (lists.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_size_t
from typing import Any

import torch
from torch.distributed import DistBackendError

from . import library
from .library import Call, CallKind
from .trampoline_plan import CallFailed
from .trampoline_tensors import moved, wire


class SparseSum:
    """In its place in the order of the group's calls."""

    def __init__(self, lib: library.Library, group: int | None, size: int) -> None:
        self._lib, self._group, self._counts = lib, group, c_size_t * size

    def add_up(self, tensor: torch.Tensor) -> None:
        """Writes the sum to `tensor`. Raises on all ranks if their shapes differ."""
        with torch.inference_mode(False), torch.no_grad():  # the tensor gets new memory
            mine = tensor.detach().coalesce()
            indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
            n = self._entries(mine)
            places, summands = self._gather(indices, n).t(), self._gather(values, n)
            total = torch.sparse_coo_tensor(
                places, summands, tensor.shape, check_invariants=False  # else PyTorch warns
            ).coalesce()
            tensor.copy_(total)

    def _entries(self, mine: torch.Tensor) -> list[int]:
        """How many each rank has. The hash of a shape says whether all have the same."""
        shape = [mine.sparse_dim(), *mine.shape]
        own = torch.tensor([mine.indices().shape[1], len(shape), _hash(shape)])
        table = torch.empty((self._counts._length_, 3), dtype=torch.int64)
        self._call(CallKind.ALL_GATHER, src=moved(own), dst=moved(table))
        of_all = table.tolist()
        if any(row[1:] != of_all[0][1:] for row in of_all):
            self._refuse(shape, [row[1] for row in of_all])
        return [row[0] for row in of_all]

    def _refuse(self, shape: list[int], lengths: list[int]) -> None:
        everyones = self._gather(torch.tensor(shape), lengths).split(lengths)
        first = everyones[0].tolist()
        r, other = next((r, s.tolist()) for r, s in enumerate(everyones) if s.tolist() != first)
        raise DistBackendError(
            f"tutti: all_reduce: sparse tensors of different shapes: {_text(first)} on rank 0, "
            f"{_text(other)} on rank {r}"
        )

    def _gather(self, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows of all ranks, of which rank r has counts[r]."""
        everyones = torch.empty((sum(counts), *rows.shape[1:]), dtype=rows.dtype)
        width = everyones[:1].numel() if everyones.shape[0] else 0
        sizes = self._counts(*[count * width * wire(rows.dtype)[1] for count in counts])
        self._call(CallKind.ALL_GATHER_V, src=moved(rows), dst=moved(everyones), dst_counts=sizes)
        return everyones

    def _call(self, kind: int, **members: Any) -> None:
        status = self._lib.group_call(self._group, byref(Call(kind=kind, **members)), None)
        if status:
            raise CallFailed(status)


def _hash(numbers: Sequence[int]) -> int:
    """FNV's, of 64 bits with a sign."""
    value = 0xCBF29CE484222325
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 % 2**64
    return value - 2**64 if value >= 2**63 else value


def _text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape[1:]))}] ({shape[0]} sparse)"
