# trampoline.py -- the backend "tutti" in Python.   SPDX-License-Identifier: MIT
"""A c10d backend for every PyTorch that lets Python classes derive from c10d::Backend (2.14 and later).

It calls libtutti_comm.so on the tensors' memory, without Python's lock. PyTorch looks methods up by the names in its
PyBackend.hpp; those that it calls by several names are implemented under the one that is listed there.

A call that the caller waits for at once (asyncOp false) runs in the calling thread. Others return a work object with
the library's handle; what remains to be done then, such as copying pieces to their tensors, is done by the first who
waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_void_p
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ErrorType, Work

from . import library
from .library import ANY_RANK, Buf, Status
from .trampoline_memory import Pool, pool_bytes
from .trampoline_store import StoreBridge
from .trampoline_tensors import (
    NOTHING,
    After,
    describe,
    in_order,
    joined,
    moved,
    only,
    put_back,
    reduction,
    same_dtype,
    scale,
    scaled,
    spread,
    wire,
)
from .trampoline_work import Calls, DoneWork, PendingWork, WorkList, error_of, install, milliseconds

Tensors = Sequence[torch.Tensor]

_UNSET = timedelta(milliseconds=-1)  # a call's time limit: the group's
_POLL_S = 0.002

_alive: set[TuttiBackend] = (
    set()
)  # until shutdown(): what wraps a backend may hold its C++ half only


def _both(first: After | None, second: After | None) -> After | None:
    if first is None or second is None:
        return first or second

    def after() -> None:
        first()
        second()

    return after


class TuttiBackend(Backend):
    """A group of the library, as c10d calls it."""

    def __init__(self, store: Any, rank: int, size: int, limit: timedelta, name: str) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._name = rank, size, name
        self._options = Backend.Options("tutti", limit)
        self._lib = library.load()
        self._calls = Calls(self._lib)
        self._batch: list[PendingWork] | None = None
        self._sequence = 0
        self._pool: Pool | None = None
        self._error = ErrorType.SUCCESS  # of a group that was left
        self._counts = c_size_t * size
        self._limit_ms = milliseconds(limit)
        self._bridge = StoreBridge(store, rank, self._lib)
        self._group: int | None = None
        try:
            self._group = self._calls.group = self._join()
        finally:
            if self._group is None:
                self._bridge.free()
        _alive.add(self)

    def _join(self) -> int:
        group = c_void_p()
        opts = library.GroupOpts(
            store=self._bridge.handle,
            rank=self._rank,
            world_size=self._size,
            name=self._name.encode(),
            timeout_ms=self._limit_ms,
            backend=library.BACKEND_NATIVE,
        )
        status = self._lib.group_init(byref(group), byref(opts))
        if self._bridge.interrupt is not None:
            raise self._bridge.interrupt
        if status:
            raise error_of(status, self._lib.message(), self._lib)
        assert group.value is not None
        return group.value

    # ---- How every call goes

    def _run(
        self,
        call: Callable[..., int],
        arguments: tuple[Any, ...],
        opts: Any,
        outputs: Tensors,
        keep: Any = None,
        after: After | None = None,
    ) -> Work:
        """call(group, *arguments, work_p), under the limit in `opts`; `after` when it is done."""
        limit = opts.timeout
        self._sequence += 1
        if limit == _UNSET:
            return self._issue(call, arguments, opts.asyncOp, outputs, keep, after)
        self._lib.group_set_timeout(self._group, milliseconds(limit))
        try:
            return self._issue(call, arguments, opts.asyncOp, outputs, keep, after)
        finally:
            self._lib.group_set_timeout(self._group, self._limit_ms)

    def _issue(
        self,
        call: Callable[..., int],
        arguments: tuple[Any, ...],
        is_async: bool,
        outputs: Tensors,
        keep: Any,
        after: After | None,
        message: bool = False,
    ) -> Work:
        if not is_async and self._batch is None:
            status = call(self._group, *arguments, None)
            if status:
                raise self._failure(status)
            if after is not None:
                after()
            if self._calls.dropped:
                self._calls.sweep()
            return DoneWork(outputs)
        handle = c_void_p()
        status = call(self._group, *arguments, byref(handle))
        if status:
            raise self._failure(status)
        self._calls.add(handle.value, message, (outputs, keep))
        work = PendingWork(self._calls, handle.value, outputs, after, message)
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _failure(self, status: int) -> Exception:
        if self._group is None:
            return RuntimeError(f'tutti: group "{self._name}" has been shut down')
        return error_of(status, self._lib.message(), self._lib)

    def _together(self, calls: Sequence[tuple[Any, ...]]) -> Callable[..., int]:
        """A call that issues (function, argument, ...) of each as one."""

        def run(group: int | None, work_p: Any) -> int:
            lib = self._lib
            status = lib.coalesce_begin(group)
            if status:
                return status
            for function, *arguments in calls:
                status = function(group, *arguments, None)
                if status:
                    text = lib.message()
                    lib.coalesce_end(group, None)
                    return lib.fail(status, b"%s", text.encode())
            return lib.coalesce_end(group, work_p)

        return run

    def _in_place(self, call: str, tensors: Tensors) -> tuple[torch.Tensor, After | None]:
        tensor = only(call, tensors)
        data = in_order(call, tensor)
        return data, put_back(data, tensor)

    # ---- Reductions

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        tensor = only("all_reduce", tensors)
        if tensor.layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        data = in_order("all_reduce", tensor)
        op, factor = reduction("all_reduce", data.dtype, opts.reduceOp)
        if factor is not None:
            scale(data, factor)
        return self._run(
            self._lib.all_reduce, (moved(data), op), opts, tensors, data, put_back(data, tensor)
        )

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        name, after = "all_reduce_coalesced", None
        datas, calls = [], []
        for tensor in tensors:
            data = in_order(name, tensor)
            op, factor = reduction(name, data.dtype, opts.reduceOp)
            datas.append((data, factor))
            calls.append((self._lib.all_reduce, moved(data), op))
            after = _both(after, put_back(data, tensor))
        for data, factor in datas:
            if factor is not None:
                scale(data, factor)
        if len({op for _, _, op in calls}) == 1:
            bufs = (Buf * len(calls))(*[buf for _, buf, _ in calls])
            return self._run(
                self._lib.all_reduce_list,
                (bufs, len(calls), calls[0][2]),
                opts,
                tensors,
                datas,
                after,
            )
        return self._run(self._together(calls), (), opts, tensors, datas, after)

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Work:
        """The sum of tensors of which each rank has only some elements: all get all, and add them up."""
        tensor = only("all_reduce", tensors)
        if int(getattr(opts.reduceOp, "op", opts.reduceOp)) != 0:
            raise RuntimeError("tutti: all_reduce of sparse tensors: only ReduceOp.SUM is possible")
        if tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
            raise RuntimeError(
                f"tutti: all_reduce: expected a sparse CPU tensor in coordinates, got {describe(tensor)}"
            )
        self._sequence += 1
        mine = tensor.detach().coalesce()
        indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
        own = torch.tensor([indices.shape[0]])
        counts = torch.empty(self._size, dtype=torch.int64)
        self._blocking(self._lib.all_gather, moved(own), moved(counts))
        n = [int(count) for count in counts]
        places, summands = self._gather_rows(indices, n).t(), self._gather_rows(values, n)
        total = torch.sparse_coo_tensor(places, summands, tensor.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(total)
        return DoneWork([tensor])

    def _blocking(self, call: Callable[..., int], *arguments: Any) -> None:
        status = call(self._group, *arguments, None)
        if status:
            raise self._failure(status)

    def _gather_rows(self, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows of all ranks, of which rank r has counts[r]."""
        everyones = torch.empty((sum(counts), *rows.shape[1:]), dtype=rows.dtype)
        width = everyones[:1].numel() if everyones.shape[0] else 0
        sizes = self._counts(*[count * width * wire(rows.dtype)[1] for count in counts])
        self._blocking(self._lib.all_gather_v, moved(rows), moved(everyones), sizes)
        return everyones

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        data, after = self._in_place("reduce", tensors)
        op, factor = reduction("reduce", data.dtype, opts.reduceOp)
        root = opts.rootRank
        if factor is not None:
            if root == self._rank:
                scale(data, factor)
            else:
                data = scaled(data, factor)
        return self._run(
            self._lib.reduce,
            (moved(data), op, root),
            opts,
            tensors,
            data,
            after if root == self._rank else None,
        )

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        call, keep, after = self._reduce_scatter_call("reduce_scatter_single", output, input, opts)
        return self._run(call[0], call[1:], opts, [output], keep, after)

    def _reduce_scatter_call(
        self, name: str, output: torch.Tensor, input: torch.Tensor, opts: Any
    ) -> tuple[tuple[Any, ...], Any, After | None]:
        same_dtype(name, [output, input])
        source, target = in_order(name, input), in_order(name, output)
        op, factor = reduction(name, source.dtype, opts.reduceOp)
        if target.numel() * self._size != source.numel():
            raise RuntimeError(
                f"tutti: {name}: input {describe(input)} is not {self._size} times output "
                f"{describe(output)}"
            )
        if factor is not None:
            source = scaled(source, factor)
        call = (self._lib.reduce_scatter, moved(source), moved(target), op)
        return call, (source, target), put_back(target, output)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        name, after = "reduce_scatter_single_coalesced", None
        calls, kept = [], []
        self._check_lists(name, outputs, inputs)
        for output, source in zip(outputs, inputs):
            call, keep, then = self._reduce_scatter_call(name, output, source, opts)
            calls.append(call)
            kept.append(keep)
            after = _both(after, then)
        return self._run(self._together(calls), (), opts, outputs, kept, after)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        name = "reduce_scatter"
        output, pieces = only(name, outputs), only(name, inputs)
        self._check_count(name, "input", pieces)
        same_dtype(name, [output, *pieces])
        op, factor = reduction(name, output.dtype, opts.reduceOp)
        if pieces[self._rank].numel() != output.numel():
            raise RuntimeError(
                f"tutti: {name}: input {self._rank} is {describe(pieces[self._rank])}, but the "
                f"output {describe(output)}"
            )
        target = in_order(name, output)
        after = put_back(target, output)
        if factor is not None:
            pieces = [scaled(piece, factor) for piece in pieces]
        if all(piece.numel() == output.numel() for piece in pieces):
            source, keep = joined(name, pieces)
            arguments = (source, moved(target), op)
            return self._run(
                self._lib.reduce_scatter, arguments, opts, outputs, (keep, target), after
            )
        kept = [in_order(name, piece) for piece in pieces]
        calls = [
            (
                self._lib.reduce_from,
                moved(piece),
                moved(target) if root == self._rank else NOTHING,
                op,
                root,
            )
            for root, piece in enumerate(kept)
        ]
        return self._run(self._together(calls), (), opts, outputs, (kept, target), after)

    # ---- Calls that move data

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        data, after = self._in_place("broadcast", tensors)
        root = opts.rootRank
        return self._run(
            self._lib.broadcast,
            (moved(data), root),
            opts,
            tensors,
            data,
            None if root == self._rank else after,
        )

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        name = "all_gather"
        pieces, tensor = only(name, outputs), only(name, inputs)
        call, keep, after = self._all_gather_call(name, pieces, tensor)
        return self._run(call[0], call[1:], opts, pieces, keep, after)

    def _all_gather_call(
        self, name: str, pieces: Tensors, tensor: torch.Tensor
    ) -> tuple[tuple[Any, ...], Any, After | None]:
        self._check_count(name, "output", pieces)
        source = in_order(name, tensor)
        same_dtype(name, [tensor, *pieces])
        if pieces[self._rank].numel() != tensor.numel():
            raise RuntimeError(
                f"tutti: {name}: output {self._rank} is {describe(pieces[self._rank])}, but the input "
                f"{describe(tensor)}"
            )
        target, memory, after = spread(name, pieces)
        keep = (source, memory)
        if all(piece.numel() == tensor.numel() for piece in pieces):
            return (self._lib.all_gather, moved(source), target), keep, after
        times = wire(tensor.dtype)[1]
        counts = self._counts(*[piece.numel() * times for piece in pieces])
        return (self._lib.all_gather_v, moved(source), target, counts), keep, after

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """outputs[r][i] is rank r's inputs[i]; some callers pass outputs[i][r], as all_gather does."""
        name, after = "all_gather_coalesced", None
        calls, kept = [], []
        filled: list[torch.Tensor] = []
        by_rank = len(outputs) == self._size and all(len(x) == len(inputs) for x in outputs)
        if not by_rank and len(outputs) != len(inputs):
            raise RuntimeError(
                f"tutti: {name}: {len(outputs)} lists of outputs for {len(inputs)} inputs of "
                f"{self._size} ranks"
            )
        for i, tensor in enumerate(inputs):
            pieces = [x[i] for x in outputs] if by_rank else outputs[i]
            call, keep, then = self._all_gather_call(name, pieces, tensor)
            calls.append(call)
            kept.append(keep)
            filled.extend(pieces)
            after = _both(after, then)
        return self._run(self._together(calls), (), opts, filled, kept, after)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        call, keep, after = self._all_gather_single_call("all_gather_single", output, input)
        return self._run(call[0], call[1:], opts, [output], keep, after)

    def _all_gather_single_call(
        self, name: str, output: torch.Tensor, input: torch.Tensor
    ) -> tuple[tuple[Any, ...], Any, After | None]:
        same_dtype(name, [output, input])
        source, target = in_order(name, input), in_order(name, output)
        if source.numel() * self._size != target.numel():
            raise RuntimeError(
                f"tutti: {name}: output {describe(output)} is not {self._size} times input "
                f"{describe(input)}"
            )
        call = (self._lib.all_gather, moved(source), moved(target))
        return call, (source, target), put_back(target, output)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        name, after = "all_gather_single_coalesced", None
        calls, kept = [], []
        self._check_lists(name, outputs, inputs)
        for output, source in zip(outputs, inputs):
            call, keep, then = self._all_gather_single_call(name, output, source)
            calls.append(call)
            kept.append(keep)
            after = _both(after, then)
        return self._run(self._together(calls), (), opts, outputs, kept, after)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        tensor = only("gather", inputs)
        source, root = in_order("gather", tensor), opts.rootRank
        if root != self._rank:
            return self._run(
                self._lib.gather, (moved(source), NOTHING, root), opts, [], (tensor, source)
            )
        pieces = only("gather", outputs)
        self._check_pieces("gather", "output", pieces, tensor)
        target, memory, after = spread("gather", pieces)
        arguments = (moved(source), target, root)
        return self._run(self._lib.gather, arguments, opts, pieces, (source, memory), after)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        output = only("scatter", outputs)
        target, root = in_order("scatter", output), opts.rootRank
        source, keep = NOTHING, None
        if root == self._rank:
            pieces = only("scatter", inputs)
            self._check_pieces("scatter", "input", pieces, output)
            source, keep = joined("scatter", pieces)
        return self._run(
            self._lib.scatter,
            (source, moved(target), root),
            opts,
            outputs,
            (keep, target),
            put_back(target, output),
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        name = "all_to_all_single"
        same_dtype(name, [output, input])
        source, target = in_order(name, input), in_order(name, output)
        after, keep = put_back(target, output), (source, target)
        if not output_splits and not input_splits:
            arguments = (moved(source), moved(target))
            return self._run(self._lib.all_to_all, arguments, opts, [output], keep, after)
        return self._run(
            self._lib.all_to_all_v,
            (
                moved(source),
                self._row_counts(name, "input", input, input_splits),
                moved(target),
                self._row_counts(name, "output", output, output_splits),
            ),
            opts,
            [output],
            keep,
            after,
        )

    def _row_counts(self, name: str, side: str, tensor: torch.Tensor, splits: Sequence[int]) -> Any:
        """Elements of each rank's rows of dimension 0."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits and rows % self._size == 0:
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise RuntimeError(
                f"tutti: {name}: {side} splits {list(splits)} of {describe(tensor)}: expected "
                f"{self._size} numbers of rows, {rows} together"
            )
        width = (tensor.numel() // rows if rows else 0) * wire(tensor.dtype)[1]
        return self._counts(*[n * width for n in splits])

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        name = "all_to_all"
        self._check_count(name, "output", outputs)
        self._check_count(name, "input", inputs)
        same_dtype(name, [*outputs, *inputs])
        source, keep = joined(name, inputs)
        target, memory, after = spread(name, outputs)
        times = wire(outputs[0].dtype)[1]
        sent = self._counts(*[tensor.numel() * times for tensor in inputs])
        received = self._counts(*[tensor.numel() * times for tensor in outputs])
        arguments = (source, sent, target, received)
        return self._run(
            self._lib.all_to_all_v, arguments, opts, outputs, (keep, memory, inputs), after
        )

    def _check_lists(self, name: str, outputs: Tensors, inputs: Tensors) -> None:
        if len(outputs) != len(inputs):
            raise RuntimeError(f"tutti: {name}: {len(outputs)} outputs for {len(inputs)} inputs")

    def _check_count(self, name: str, side: str, tensors: Tensors) -> None:
        if len(tensors) != self._size:
            raise RuntimeError(
                f"tutti: {name}: {len(tensors)} {side} tensors, expected one for each of "
                f"{self._size} ranks"
            )

    def _check_pieces(self, name: str, side: str, pieces: Tensors, tensor: torch.Tensor) -> None:
        self._check_count(name, side, pieces)
        same_dtype(name, [tensor, *pieces])
        for r, piece in enumerate(pieces):
            if piece.numel() != tensor.numel():
                raise RuntimeError(
                    f"tutti: {name}: {side} {r} is {describe(piece)}, expected the "
                    f"{tensor.numel()} elements of {describe(tensor)}"
                )

    # ---- Between two ranks

    def send(self, tensors: Tensors, to: int, tag: int) -> Work:
        data = in_order("send", only("send", tensors))
        arguments = (moved(data), to, tag)
        return self._issue(self._lib.send, arguments, True, tensors, data, None, True)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Work:
        data, after = self._in_place("recv", tensors)
        arguments = (moved(data), source, tag)
        return self._issue(self._lib.recv, arguments, True, tensors, data, after, True)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        return self.recv(tensors, ANY_RANK, tag)

    # ---- Barriers, and several calls as one

    def barrier(self, opts: Any) -> Work:
        return self._run(self._lib.barrier, (), opts, [])

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        ms = 0 if opts.timeout <= timedelta(0) else milliseconds(opts.timeout)
        status = self._lib.monitored_barrier(self._group, ms, wait_all_ranks)
        if status:
            raise self._failure(status)

    @property
    def supports_coalescing(self) -> bool:
        return True

    def start_coalescing(self) -> None:
        self._batch = []

    def end_coalescing(self) -> Work:
        works, self._batch = self._batch or [], None
        return works[0] if len(works) == 1 else WorkList(works, self._calls)

    # ---- The group

    def getBackendName(self) -> str:
        return "tutti"

    @property
    def options(self) -> Backend.Options:
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit_ms = milliseconds(timeout)
        self._options._timeout = timeout
        status = self._lib.group_set_timeout(self._group, self._limit_ms)
        if status:
            raise self._failure(status)

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _wait_for_pending_works(self) -> None:
        self._calls.wait_all()

    def get_error(self) -> ErrorType:
        if self._group is None:
            return self._error
        status = self._lib.group_status(self._group)
        if status == Status.OK:
            return ErrorType.SUCCESS
        if status == Status.TIMEOUT:
            return ErrorType.TIMEOUT
        if status in (Status.PEER, Status.ABORTED):
            return ErrorType.REMOTE_ERROR
        return ErrorType.COMM_ERROR

    def abort(self) -> None:
        """Ends the group for all ranks; what is in flight fails."""
        self._abort("the program aborted the process group")

    def _abort(self, reason: str) -> None:
        if self._group is not None:
            self._lib.group_abort(self._group, b"%s", reason.encode())

    def shutdown(self) -> None:
        """Leaves the group, when what was begun is done and no tensor is in its memory any more."""
        if self._group is None:
            return
        if self._calls.is_inside():  # the communication thread cannot wait for its own end
            threading.Thread(target=self.shutdown).start()
            return
        self._error = self.get_error()
        buffers = self._calls.end()
        group, self._group = self._group, None
        _alive.discard(self)

        def leave() -> None:
            while self._calls.waiting():  # a thread that is inside a wait reads the group's memory
                time.sleep(_POLL_S)
            self._lib.group_free(group)
            self._bridge.free()
            buffers.clear()

        def begin() -> None:
            # The library waits for messages, perhaps from ranks that will never send them. A tensor in the group's memory may
            # be freed anywhere, also on the communication thread.
            if buffers or self._calls.waiting() or self._calls.is_inside():
                threading.Thread(target=leave, daemon=True).start()
            else:
                leave()

        pool, self._pool = self._pool, None
        if pool is None:
            begin()
        else:
            pool.at_end = begin  # now, unless a tensor holds it

    # ---- Memory, and groups made of this one

    def supports_tensor_alloc(self, device: Any) -> bool:
        return self._size > 1

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        """In memory that peers read directly. The first call is collective."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"tutti: memory on {device}; the group's memory is the CPU's")
        if self._pool is None:
            handle = c_void_p()
            status = self._lib.pool_new(byref(handle), self._group, pool_bytes())
            if status:
                raise self._failure(status)
            assert handle.value is not None
            self._pool = Pool(self._lib, handle.value)
        return self._pool.take(size, dtype)

    @property
    def supports_splitting(self) -> bool:
        return True

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> TuttiBackend:
        """Called by members only, each set of ranks with a store of its own."""
        if self._rank not in ranks:
            raise RuntimeError(f"tutti: split: rank {self._rank} is not one of {list(ranks)}")
        limit = self._options._timeout if opts is None else opts._timeout
        rank = list(ranks).index(self._rank)
        return TuttiBackend(store, rank, len(ranks), limit, self._name[:20] + "/part")

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> TuttiBackend:
        limit = self._options._timeout if opts is None else opts._timeout
        return TuttiBackend(store, rank, size, limit, "merged")


# ---- The factory


def create(opts: Any, name: str) -> TuttiBackend:
    """From PyTorch's DistributedBackendOptions."""
    install()
    return TuttiBackend(opts.store, opts.group_rank, opts.group_size, opts.timeout, name)


def unavailable() -> str | None:
    """Why this module cannot be used here; None if it can."""

    class Probe(Backend):
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


def leave_all(why: str) -> None:
    """Ends all groups: with an abort of that text, if there is one or a call is in progress."""
    for backend in list(_alive):
        if why:
            backend._abort(why)
        elif backend._calls.pending():
            backend._abort("its program ended while calls were in progress")
        backend.shutdown()
