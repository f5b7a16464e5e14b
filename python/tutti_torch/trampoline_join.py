# trampoline_join.py -- how the members of a group that is made from another agree.
# SPDX-License-Identifier: MIT
"""A group whose ranks are all in another one is made from that, without new connections and without a thread, if all members
can: each tells the others in the store by which number it knows the parent, as the compiled backend does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore
from torch.distributed import DistBackendError

from .trampoline_store import pause_after

_COUNT_BITS, _ID_BITS = 16, 30  # of the number that the members add up


@dataclass(frozen=True)
class Place:
    """A rank of a group that is being made. `name`: short, and unique among the groups of a process."""

    rank: int
    size: int
    limit: timedelta
    name: str


def short_id(id: int) -> int:
    """The bits of a group's number that have room in that sum; not 0."""
    return id & ((1 << _ID_BITS) - 1) | 1


def _fresh(store: Any, place: Place) -> Any:
    """For the keys of one group: PyTorch numbers groups from 0 again after destroy_process_group, in the same store. Each size is
    counted by itself, since an earlier group of that name may not have had all of these ranks."""
    n = store.add(f"tutti/parts/{place.size}/{place.rank}", 1)
    return PrefixStore(f"tutti/part/{place.size}/{n}", store)


def is_end(text: str) -> bool:
    """Whether a group died because a process ended, as the library and leave_all() put it. One whose program only aborted or left
    the group may still make another."""
    return " was lost: " in text or " said: its program ended" in text


def _decide(store: Any, way: bytes) -> None:
    """The first who decides how the members come together does so for all."""
    if store.add("decided", 1) == 1:
        store.set("way", way)


def all_know(
    store: Any, place: Place, ranks: Sequence[int], id: int, why_one_is_gone: Callable[[], str]
) -> bool:
    """Whether all members can use the same parent, `id` (0: this one cannot). The last one who comes says so, or one who sees
    that a member is gone."""
    if place.size == 1:
        return id != 0
    store = _fresh(store, place)
    mine, begin = (id << _COUNT_BITS) + 1, time.monotonic()
    store.set(f"here/{place.rank}", b"\1")
    total = store.add("members", mine)
    if total & ((1 << _COUNT_BITS) - 1) == place.size:
        _decide(store, b"\1" if id != 0 and total == place.size * mine else b"\0")
    while not store.check(["way"]):
        waited_s = time.monotonic() - begin
        why = why_one_is_gone()
        if why:
            _decide(store, why.encode())
        elif waited_s >= place.limit.total_seconds():
            raise _missing(store, place, ranks)
        else:
            time.sleep(pause_after(waited_s))
    way: bytes = store.get("way")
    if len(way) > 1:
        text = way.decode("utf-8", "replace")
        raise DistBackendError(f'tutti: while group "{place.name}" was being made: {text}')
    return way == b"\1"


def _missing(store: Any, place: Place, ranks: Sequence[int]) -> Exception:
    absent = [
        f"{r} ({ranks[r]} of its parent)"
        for r in range(place.size)
        if not store.check([f"here/{r}"])
    ]
    return DistBackendError(
        f'tutti: Timed out - group "{place.name}": not all of its {place.size} ranks came within '
        f"{place.limit.total_seconds():g} s; missing: rank {', '.join(absent)}"
    )
