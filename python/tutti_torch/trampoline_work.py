# trampoline_work.py -- one call, as PyTorch waits for it.
# SPDX-License-Identifier: MIT
"""Work objects, and the futures of calls that are not done yet.

PyTorch's C++ wraps what a Python backend returns into an object of its own, which passes only wait() and get_future()
on. install() makes its other questions reach us too.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import OpType, Work
from torch.distributed import DistBackendError

from . import library
from .library import MAX_MS, SCOPE_GROUP, Call, CallKind, Status
from .trampoline_tensors import After

_NO_LIMIT = timedelta(0)
_SWEEP = 8
_asked = threading.local()
_here = threading.local()


def error_of(status: int, text: str, lib: library.Library) -> Exception:
    """DistBackendError if the group is lost, else RuntimeError, which is its base."""
    lost = lib.status_scope(status) == SCOPE_GROUP
    # programs look for these words in Gloo's time-outs
    prefix = "tutti: Timed out - " if status == Status.TIMEOUT else "tutti: "
    return (DistBackendError if lost else RuntimeError)(prefix + text)


def milliseconds(limit: timedelta) -> int:
    """As the library takes them: at least 1."""
    return min(max(int(limit.total_seconds() * 1000), 1), MAX_MS)


class DoneWork(Work):
    """A call that ran in the calling thread."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._outputs = outputs

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return list(self._outputs)

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        if _is_asked():
            _asked.work = self
        else:
            future.set_result(list(self._outputs))
        return future

    def source_rank(self) -> int:
        raise RuntimeError("tutti: only a receive has a source rank")

    def _source_rank(self) -> int:
        return self.source_rank()


class PendingWork(DoneWork):
    """A call with a handle of the library's. `keep` holds its buffers until it is done."""

    def __init__(
        self,
        calls: Calls,
        handle: int | None,
        outputs: Sequence[torch.Tensor],
        after: After | None,
        message: bool,
    ) -> None:
        super().__init__(outputs)
        self._calls = calls
        self._handle = handle
        self._after = after
        self._is_message = message
        self._settling = threading.Lock()
        self._error: Exception | None = None
        self._done = False
        self._source = -1
        self._future: Any = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        if not self._done:
            self._await(None if timeout <= _NO_LIMIT else milliseconds(timeout))
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done and self._calls.is_done(self._handle):
            self._await(None)
        return self._done

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:  # type: ignore[override]
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return list(self._outputs)

    def source_rank(self) -> int:
        self.wait()
        return self._source if self._is_message else super().source_rank()

    def get_future(self) -> Any:
        if _is_asked():
            _asked.work = self
            return torch.futures.Future()
        if self._future is None:
            self._future = self._calls.complete_later(self, self._is_message)
        return self._future

    def _await(self, ms: int | None) -> None:
        """Blocks until the call is done, and settles it; raises if `ms` pass before."""
        outcome = self._calls.outcome(self._handle, ms, self._is_message)
        with self._settling:
            if self._done:
                return
            self._error, self._source = outcome
            if self._error is None and self._after is not None:
                try:
                    self._after()
                except Exception as error:
                    self._error = error
            self._after = None
            self._done = True
        self._calls.settle(self._handle)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # while the interpreter ends
            self._calls.drop(self._handle)


class WorkList(DoneWork):
    """Several as one: what lies between start_coalescing and end_coalescing."""

    def __init__(self, works: Sequence[PendingWork], calls: Calls) -> None:
        super().__init__([tensor for work in works for tensor in work._outputs])
        self._works = list(works)
        self._calls = calls

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        end = time.monotonic() + timeout.total_seconds()
        for work in self._works:
            left = timedelta(seconds=max(end - time.monotonic(), 0.001))
            work.wait(_NO_LIMIT if timeout <= _NO_LIMIT else left)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:  # type: ignore[override]
        return next((work._error for work in self._works if work._error is not None), None)

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return list(self._outputs)

    def get_future(self) -> Any:
        if _is_asked():
            return super().get_future()
        return self._calls.complete_later(self, True)


class Calls:
    """The calls of a group that are not done, their buffers, and their futures.

    A future is completed, and its callbacks run, on the group's communication thread in the call's place; collectives
    that they call run there at once. If the call is done when its future is asked for, the callbacks run in the
    caller's thread. In both cases what they call comes before all later calls, so that ranks agree on the order.
    """

    def __init__(self, lib: library.Library) -> None:
        self._lib = lib
        # While it is held no handle is released. drop() does not take it, because Python may call that anywhere.
        self._lock = threading.Lock()
        # What holds the buffers of handles that a PendingWork owns, and of those whose PendingWork is gone.
        self._kept: dict[int, Any] = {}
        self.dropped: deque[tuple[int, Any]] = deque()
        self._ended: dict[int, tuple[Exception | None, int]] | None = None  # after the group's end
        self._late: list[Any] = []  # buffers that are needed for an unknown time
        self._waiting = 0
        self.group: int | None = None
        self._keys = itertools.count(1)
        self._todo: dict[int, Any] = {}  # what the library will run, or drop
        self._on_call = library.GroupCall(self._run_here)
        self._on_drop = library.GroupDrop(self._drop_here)

    def enter(self) -> int | None:
        """This thread is going to call the library for the group, which is not freed before leave(). None: it has ended."""
        with self._lock:
            self._waiting += 1
            return self.group

    def leave(self) -> None:
        with self._lock:
            self._waiting -= 1

    def add(self, handle: int | None, is_message: bool, keep: Any) -> None:
        with self._lock:
            if self._ended is not None:  # another thread ended the group meanwhile
                self._late.append(keep)
            elif handle is not None:
                self._kept[handle] = (is_message, keep)
        if self.dropped:
            self.sweep()

    def settle(self, handle: int | None) -> None:
        """The call is done: nothing of its buffers is needed any more."""
        with self._lock:
            if handle in self._kept:
                self._kept[handle] = None

    def call_when_done(self, handle: int | None, function: Any, argument: Any) -> None:
        """A function of C's; not called if the call is done already."""
        with self._lock:  # so end() does not release it now
            if handle is not None and self._ended is None:
                # a refusal: it is one of a list, and the function was given before
                self._lib.work_on_done(handle, function, argument)

    def is_done(self, handle: int | None) -> bool:
        if handle is None:
            return True
        with self._lock:  # so end() does not release it now
            return self._ended is not None or self._lib.work_done(handle)

    def outcome(
        self, handle: int | None, ms: int | None, message: bool
    ) -> tuple[Exception | None, int]:
        """Waits for the call: its error, and the rank that sent. Raises if `ms` pass before."""
        lib = self._lib
        if handle is None:
            return None, -1
        with self._lock:
            if self._ended is not None:
                return self._ended.get(handle, (RuntimeError("tutti: the group has ended"), -1))
            mine = lib.work_retain(handle)
            other = lib.work_retain(handle) if message else None
            self._waiting += 1
        try:
            return self._outcome_of(mine, other, ms)
        finally:
            with self._lock:
                self._waiting -= 1

    def _outcome_of(
        self, mine: int, other: int | None, ms: int | None
    ) -> tuple[Exception | None, int]:
        lib = self._lib
        status = lib.work_wait(mine) if ms is None else lib.work_wait_for(mine, ms)
        text = lib.message() if status else ""
        source = lib.work_source(other) if other is not None and not status else -1
        lib.work_release(other)
        if not status:
            return None, source
        error = error_of(status, text, lib)
        if ms is not None and status == Status.TIMEOUT:
            done = lib.work_done(mine)
            lib.work_release(mine)
            if not done:
                raise error
        return error, -1

    def drop(self, handle: int | None) -> None:
        """The work object is gone. Python may call this anywhere, so it only notes it."""
        if handle is None:
            return
        keep = self._kept.pop(handle, self)
        if keep is not self:
            self.dropped.append((handle, None if self._lib.work_done(handle) else keep))

    def sweep(self) -> None:
        """Frees what is left of calls whose work objects are gone: a few at a time, the oldest first."""
        with self._lock:
            for _ in range(min(len(self.dropped), _SWEEP)):
                handle, keep = self.dropped.popleft()
                if self._lib.work_done(handle):
                    self._lib.work_release(handle)
                else:
                    self.dropped.append((handle, keep))

    def _handles(self) -> list[int]:
        while True:
            try:
                return [*self._kept, *[handle for handle, _ in self.dropped]]
            except RuntimeError:  # drop() came in between
                continue

    def pending(self) -> int:
        """How many calls are not done."""
        with self._lock:  # so nothing is released here
            if self._ended is not None:
                return 0
            return sum(not self._lib.work_done(handle) for handle in self._handles())

    def wait_all(self) -> None:
        """Blocks until all calls so far are done, whatever comes of them."""
        with self._lock:
            handles = [self._lib.work_retain(handle) for handle in self._handles()]
            self._waiting += 1
        try:
            for handle in handles:
                self._lib.work_wait(handle)
        finally:
            with self._lock:
                self._waiting -= 1

    def waiting(self) -> int:
        """How many threads are inside the library for the group, which must not be freed then. Takes no lock: the garbage
        collector may ask."""
        return self._waiting

    def end(self) -> list[Any]:
        """Waits for collectives, and keeps all outcomes for work objects that outlive the group.

        Messages that are still in progress are given up; their buffers, which are returned, are needed until the group
        is gone.
        """
        mine: dict[int, Any] = {}
        with self._lock:
            for take in (self._kept.popitem, self.dropped.popleft):
                with contextlib.suppress(KeyError, IndexError):  # there are no more
                    while True:
                        mine.update([take()])
        given_up = (RuntimeError("tutti: the group was shut down before the message was done"), -1)
        ended: dict[int, tuple[Exception | None, int]] = {}
        buffers = []
        for handle, keep in mine.items():
            if keep is not None and keep[0] and not self._lib.work_done(handle):
                ended[handle] = given_up
                buffers.append(keep)
            else:
                ended[handle] = self.outcome(handle, None, True)
        with self._lock:
            self._ended = ended
            self.group = None
        _completer.look()
        for handle in mine:
            self._lib.work_release(handle)
        return buffers

    def complete_later(self, work: DoneWork, alone: bool) -> Any:
        """A future of `work`. `alone`: of messages, for which collectives must not wait: see _Completer."""
        first: Any = torch.futures.Future()
        if work.is_completed():
            if work.is_success():
                first.set_result(list(work._outputs))
                return first
            future = first.then(_Outcome(work))
            first.set_result(None)
            return future
        future = first.then(_Outcome(work))
        if alone:
            _completer.add(work, first)
            return future
        key = next(self._keys)
        self._todo[key] = _Later(work, first)
        self._submit_future(key)
        return future

    def submit(self, group: int | None, body: Any, ms: int, work_p: Any) -> int:
        """Runs it in its place in the order, under that limit if it is not 0; waits if work_p is None. Else the library's
        handle is there."""
        key = next(self._keys)
        self._todo[key] = body
        return self._lib.group_call(group, ctypes.byref(self._function(key, ms)), work_p)

    def _function(self, key: int, ms: int) -> Call:
        return Call(
            kind=CallKind.FUNCTION,
            function=self._on_call,
            drop=self._on_drop,
            arg=key,
            timeout_ms=ms,
        )

    def _submit_future(self, key: int) -> None:
        """In its place in the order; at once if the group has ended."""
        group = self.enter()
        try:
            if group is None:
                self._drop_here(key)
                return
            handle = ctypes.c_void_p()
            call = self._function(key, 0)
            self._lib.group_call(group, ctypes.byref(call), ctypes.byref(handle))
            self._lib.work_release(handle)
        finally:
            self.leave()

    def _run_here(self, key: int) -> int:
        """In the place of what is to run; mostly on the communication thread."""
        item = self._todo.pop(key, None)
        return Status.OK if item is None else self._as_inside(item.run)

    def _drop_here(self, key: int) -> None:
        item = self._todo.pop(key, None)  # None: it has run
        if item is not None:
            self._as_inside(item.drop)

    def _as_inside(self, function: Callable[[], Any]) -> Any:
        before, _here.calls = getattr(_here, "calls", None), self
        try:
            return function()
        finally:
            _here.calls = before

    def is_inside(self) -> bool:
        """In what this group runs in its order: mostly in a callback of a future, on the communication thread."""
        return getattr(_here, "calls", None) is self


class _Outcome:
    """What a future is worth: the tensors, or the error, which C++ then sees as an error too."""

    def __init__(self, work: DoneWork) -> None:
        self._work: DoneWork | None = work

    def __call__(self, _future: Any) -> list[torch.Tensor]:
        work, self._work = self._work, None
        assert work is not None
        work.wait()
        return list(work._outputs)


class _Later:
    """A future that is completed when what was called before it is done."""

    def __init__(self, work: DoneWork, future: Any) -> None:
        self._work, self._future = work, future

    def run(self) -> int:
        _complete(self._work, self._future)
        return Status.OK

    drop = run  # a dead group's calls have errors, which callbacks see too


class _Completer:
    """The thread that completes futures of messages, as long as there are any.

    The library says when a message is done, on a thread of its own, which must not wait for Python's lock: so what it
    calls is C's sem_post.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._semaphore = ctypes.create_string_buffer(64)  # never freed: it may be posted at any time
        self._libc.sem_init(self._semaphore, 0, 0)
        self._post = ctypes.cast(self._libc.sem_post, ctypes.c_void_p)
        self._lock = threading.Lock()
        self._waiting: list[tuple[DoneWork, Any]] = []
        self._runs = False

    def add(self, work: DoneWork, future: Any) -> None:
        with self._lock:
            self._waiting.append((work, future))
            start, self._runs = not self._runs, True
        if start:
            threading.Thread(target=self._run, daemon=True).start()
        works = work._works if isinstance(work, WorkList) else [work]
        for one in works:
            if isinstance(one, PendingWork):
                one._calls.call_when_done(one._handle, self._post, self._semaphore)
        self.look()  # some may be done already

    def look(self) -> None:
        self._libc.sem_post(self._semaphore)

    def _run(self) -> None:
        while True:
            self._libc.sem_wait(self._semaphore)
            with self._lock:
                done = [entry for entry in self._waiting if entry[0].is_completed()]
                self._waiting = [entry for entry in self._waiting if entry not in done]
            for work, future in done:
                _complete(work, future)
            with self._lock:
                if not self._waiting:
                    self._runs = False
                    return


def _complete(work: DoneWork, future: Any) -> None:
    with contextlib.suppress(Exception):  # the future's callback raises it again
        work.wait()
    future.set_result(None)


_completer = _Completer()


# ---- What C++ does not pass on


def _behind(holder: Work) -> DoneWork | None:
    """Our object behind one of C++'s: its get_future() is passed on to ours, which then leaves itself here."""
    _asked.work = None
    with contextlib.suppress(Exception):  # another backend's may raise anything
        holder.get_future()
    work, _asked.work = _asked.work, None
    return work


def _is_asked() -> bool:
    """In our get_future(): whether _behind() called it through C++ alone, and not another backend's work that contains ours."""
    return sys._getframe(2).f_code is _behind.__code__


def _may_be_ours(work: Work) -> bool:
    """PyTorch's wrapper of a work written in Python says nothing of its kind; other backends' works do."""
    return type(work) is Work and work._get_op_type() == int(OpType.UNKNOWN)


def _pass_on(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def ask(self: Work, *arguments: Any) -> Any:
        work = _behind(self) if _may_be_ours(self) else None
        return original(self, *arguments) if work is None else getattr(work, name)(*arguments)

    ask.__name__ = name
    ask.__doc__ = original.__doc__
    return ask


_installed = False


def install() -> None:
    """Makes is_completed() and the like of a call of ours tell the truth. Once for the process."""
    global _installed
    if _installed:
        return
    _installed = True
    for name in ("is_completed", "is_success", "result", "source_rank", "_source_rank"):
        original = getattr(Work, name, None)
        if original is not None:
            setattr(Work, name, _pass_on(name, original))
