# trampoline_store.py -- PyTorch's store as a store of the library.
# SPDX-License-Identifier: MIT
"""The ranks of a group meet in the store that init_process_group was given: the library asks it through callbacks.

They poll on the program's own connection: a wait would keep it busy for the program's other threads. Another connection would cost
a TCP store's server a look-up of its address in the DNS, in the one thread that serves all ranks.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore

from . import library
from .library import Status


def _host_of(store: Any) -> str | None:
    """The host of a TCP store, through the prefixes around it."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else None


def pause_after(waited_s: float) -> float:
    """How long to sleep between two looks for a key for which one has waited that long already."""
    return min(max(waited_s / 8, 50e-6), 50e-3)


def _status_of(error: BaseException, late: bool) -> Status:
    """PyTorch's stores throw; what they throw for a key that did not come differs between them."""
    text = str(error).lower()
    if late or "timeout" in text or "timed out" in text:
        return Status.TIMEOUT
    if isinstance(error, ValueError) or "stoll" in text or "stol" in text:
        return Status.FORMAT
    return Status.IO


class StoreBridge:
    """Owns the library's handle on the store, and the callbacks as long as the library may call them: as long as a group that met
    there, or one that was made from it."""

    def __init__(self, store: Any, lib: library.Library) -> None:
        self._lib = lib
        self._store = store
        self._users = 1
        self._lock = threading.Lock()
        # KeyboardInterrupt in a callback, for the caller to raise.
        self.interrupt: BaseException | None = None
        self.handle: int | None = None
        self._callbacks = library.StoreCallbacks(
            set=library.StoreSet(self._set),
            get=library.StoreGet(self._get),
            wait=library.StoreWait(self._wait),
            add=library.StoreAdd(self._add),
            compare_set=library.StoreCompareSet(self._compare_set),
            remove=library.StoreRemove(self._remove),
            name=b"PyTorch's store",
        )
        host, master = _host_of(store), os.environ.get("MASTER_ADDR")
        # A store of another kind says nothing about addresses; the launcher's variable may.
        if not host and master and self._make(master) == Status.OK:
            return
        if self._make(host):
            raise RuntimeError(f"tutti: {lib.message()}")

    def _make(self, host: str | None) -> int:
        self._callbacks.reaches = host.encode() if host else None
        handle = ctypes.c_void_p()
        status = self._lib.store_custom_new(
            ctypes.byref(handle), ctypes.byref(self._callbacks), None
        )
        self.handle = handle.value
        return status

    def share(self) -> StoreBridge:
        """For one group more."""
        with self._lock:
            self._users += 1
        return self

    def free(self) -> None:
        """One group less. Only when it is gone."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        handle, self.handle = self.handle, None
        self._lib.store_free(handle)

    def _run(self, what: str, key: bytes, call: Callable[[Any, str], int], ms: int = -1) -> int:
        """Runs `call` on a connection; what it raises becomes a status with its text."""
        begin = time.monotonic()
        try:
            return call(self._store, key.decode())
        except BaseException as error:
            late = ms >= 0 and time.monotonic() - begin >= ms * 0.9e-3
            if not isinstance(error, Exception):
                self.interrupt = error
            text = f"PyTorch's store: {what} of {key!r}: {type(error).__name__}: {error}"
            return self._lib.fail(_status_of(error, late), b"%s", text.encode()[:900])

    def _await(self, store: Any, key: str, ms: int) -> int:
        begin = time.monotonic()
        while not store.check([key]):
            waited_s = time.monotonic() - begin
            if waited_s >= ms * 1e-3:
                return Status.TIMEOUT
            time.sleep(pause_after(waited_s))
        return Status.OK

    @staticmethod
    def _give(found: bytes, value: int, n_p: Any) -> int:
        if len(found) <= n_p[0]:
            ctypes.memmove(value, found, len(found))
        n_p[0] = len(found)
        return Status.OK

    def _set(self, _user: int, key: bytes, value: int, n: int) -> int:
        data = ctypes.string_at(value, n) if n else b""

        def call(store: Any, name: str) -> int:
            store.set(name, data)
            return Status.OK

        return self._run("set", key, call)

    def _get(self, _user: int, key: bytes, value: int, n_p: Any, ms: int) -> int:
        def call(store: Any, name: str) -> int:
            return self._await(store, name, ms) or self._give(store.get(name), value, n_p)

        return self._run("get", key, call, ms)

    def _wait(self, _user: int, key: bytes, ms: int) -> int:
        return self._run("wait", key, lambda store, name: self._await(store, name, ms), ms)

    def _add(self, _user: int, key: bytes, amount: int, sum_p: Any) -> int:
        def call(store: Any, name: str) -> int:
            sum_p[0] = store.add(name, amount)
            return Status.OK

        return self._run("add", key, call)

    def _compare_set(
        self,
        _user: int,
        key: bytes,
        expected: int,
        n_expected: int,
        desired: int,
        n_desired: int,
        value: int,
        n_p: Any,
    ) -> int:
        old = ctypes.string_at(expected, n_expected) if n_expected else b""
        new = ctypes.string_at(desired, n_desired) if n_desired else b""
        return self._run(
            "compare_set",
            key,
            lambda store, name: self._give(store.compare_set(name, old, new), value, n_p),
        )

    def _remove(self, _user: int, key: bytes, existed_p: Any) -> int:
        def call(store: Any, name: str) -> int:
            existed = bool(store.delete_key(name))
            if existed_p:
                existed_p[0] = existed
            return Status.OK

        return self._run("delete", key, call)
