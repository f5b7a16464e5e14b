# library.py -- the functions of libtutti_comm.so that the trampoline calls, declared for ctypes.
# SPDX-License-Identifier: MIT
"""The C interface (tutti/status.h, device.h, store.h, group.h, call.h) for ctypes.

Functions that may block are called without Python's lock; those that only look are called with it, which is cheaper.
Both kinds run in the calling thread, so tutti_last_error() right after a failed call is that call's message.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

SONAME = "libtutti_comm.so.0.1"


class Status(enum.IntEnum):
    """tutti_status, as far as it is used here."""

    OK = 0
    FORMAT = -4
    IO = -5
    PEER = -20
    TIMEOUT = -21
    MISMATCH = -22
    ABORTED = -23


SCOPE_GROUP = 2
BACKEND_NATIVE = 1
ANY_RANK = -1
MAX_MS = 2**31 - 1
ZERO = 1.17549435082228750797e-38  # TUTTI_ZERO


class Dtype(enum.IntEnum):
    """tutti_dtype."""

    F32 = 0
    F64 = 1
    F16 = 2
    BF16 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    I64 = 7
    I16 = 8
    U16 = 9
    U32 = 10
    U64 = 11


class Redop(enum.IntEnum):
    """tutti_redop. c10d's ReduceOp has the same numbers, and PREMUL_SUM as 8."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class Buf(Structure):
    """tutti_buf, and tutti_const_buf, which has the same layout."""

    _fields_ = [("p", c_void_p), ("count", c_size_t), ("dtype", c_int), ("stream", c_void_p)]


class GroupOpts(Structure):
    """tutti_group_opts."""

    _fields_ = [
        ("store", c_void_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("local_rank", c_int),
        ("local_world_size", c_int),
        ("name", c_char_p),
        ("timeout_ms", c_int),
        ("transport", c_int),
        ("heartbeat_ms", c_int),
        ("backend", c_int),
        ("reserved", c_uint64 * 4),
    ]


StoreSet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, POINTER(c_size_t), c_int)
StoreWait = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
StoreAdd = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_int64))
StoreCompareSet = CFUNCTYPE(
    c_int,
    c_void_p,
    c_char_p,
    c_void_p,
    c_size_t,
    c_void_p,
    c_size_t,
    c_void_p,
    POINTER(c_size_t),
)
StoreRemove = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_bool))
StoreRelease = CFUNCTYPE(None, c_void_p)


class StoreCallbacks(Structure):
    """tutti_store_callbacks."""

    _fields_ = [
        ("set", StoreSet),
        ("get", StoreGet),
        ("wait", StoreWait),
        ("add", StoreAdd),
        ("compare_set", StoreCompareSet),
        ("remove", StoreRemove),
        ("release", StoreRelease),
        ("name", c_char_p),
        ("reaches", c_char_p),
        ("reserved", c_uint64 * 4),
    ]


GroupCall = CFUNCTYPE(c_int, c_void_p)
GroupDrop = CFUNCTYPE(None, c_void_p)


class CallKind(enum.IntEnum):
    """tutti_call_kind."""

    ALL_REDUCE = 1
    REDUCE = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    SCATTER = 5
    GATHER = 6
    ALL_GATHER = 7
    ALL_GATHER_V = 8
    ALL_TO_ALL = 9
    ALL_TO_ALL_V = 10
    BARRIER = 11
    SEND = 12
    RECV = 13
    FUNCTION = 14


class Call(Structure):
    """tutti_call."""

    _fields_ = [
        ("kind", c_int),
        ("op", c_int),
        ("rank", c_int),
        ("tag", c_int),
        ("timeout_ms", c_int),
        ("src", Buf),
        ("dst", Buf),
        ("src_counts", POINTER(c_size_t)),
        ("dst_counts", POINTER(c_size_t)),
        ("scale", c_double),
        ("function", GroupCall),
        ("drop", GroupDrop),
        ("arg", c_void_p),
        ("reserved", c_uint64 * 4),
    ]


_WORK = POINTER(c_void_p)  # work_p

# name without tutti_, result, arguments
_BLOCKING: tuple[tuple[str, Any, list[Any]], ...] = (
    ("store_custom_new", c_int, [POINTER(c_void_p), POINTER(StoreCallbacks), c_void_p]),
    ("store_free", None, [c_void_p]),
    ("group_init", c_int, [POINTER(c_void_p), POINTER(GroupOpts)]),
    (
        "group_split_members",
        c_int,
        [c_void_p, POINTER(c_int), c_int, c_char_p, POINTER(c_void_p)],
    ),
    ("group_free", None, [c_void_p]),
    ("group_abort", None, [c_void_p, c_char_p]),  # and what the format asks for
    ("pool_new", c_int, [POINTER(c_void_p), c_void_p, c_size_t]),
    ("pool_free", None, [c_void_p]),
    ("group_call", c_int, [c_void_p, POINTER(Call), _WORK]),
    ("coalesce_begin", c_int, [c_void_p]),
    ("coalesce_end", c_int, [c_void_p, _WORK]),
    ("monitored_barrier", c_int, [c_void_p, c_int, c_bool]),
    ("work_wait", c_int, [c_void_p]),
    ("work_wait_for", c_int, [c_void_p, c_int]),
    ("work_source", c_int, [c_void_p]),
)
_QUICK: tuple[tuple[str, Any, list[Any]], ...] = (
    ("last_error", c_char_p, []),
    ("fail", c_int, [c_int, c_char_p]),  # and what the format asks for
    ("status_scope", c_int, [c_int]),
    ("group_status", c_int, [c_void_p]),
    ("group_culprit", c_int, [c_void_p]),
    ("group_id", c_uint64, [c_void_p]),
    ("group_sequence", c_uint64, [c_void_p]),
    ("group_set_timeout", c_int, [c_void_p, c_int]),
    ("pool_alloc", c_void_p, [c_void_p, c_size_t]),
    ("pool_release", None, [c_void_p, c_void_p]),
    ("work_retain", c_void_p, [c_void_p]),
    ("work_release", None, [c_void_p]),
    ("work_done", c_bool, [c_void_p]),
    ("work_on_done", c_int, [c_void_p, c_void_p, c_void_p]),
)


class Library:
    """The functions as attributes, without the prefix tutti_."""

    def __init__(self, path: str) -> None:
        self.path = path
        for loader, table in ((ctypes.CDLL(path), _BLOCKING), (ctypes.PyDLL(path), _QUICK)):
            for name, result, arguments in table:
                function = getattr(loader, "tutti_" + name)
                function.restype = result
                function.argtypes = arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: __init__ sets all that there are
        raise AttributeError(f"{self.path} has no tutti_{name}")

    def message(self) -> str:
        """The text of this thread's last failed call."""
        return self.last_error().decode("utf-8", "replace")


_loaded: Library | None = None


def load() -> Library:
    """The library beside this file, else the one that the system's loader finds. Raises OSError if there is none."""
    global _loaded
    if _loaded is None:
        named = [Path(__file__).with_name(name) for name in (SONAME, "libtutti_comm.so")]
        path = next((str(beside) for beside in named if beside.exists()), SONAME)
        try:
            _loaded = Library(path)
        except AttributeError as error:
            raise OSError(f"{path} is of another version than tutti_torch: {error}") from None
    return _loaded
