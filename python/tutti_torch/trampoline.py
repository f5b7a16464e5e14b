# trampoline.py -- the backend "tutti" in Python.   SPDX-License-Identifier: MIT
"""A c10d backend for every PyTorch that lets Python classes derive from c10d::Backend (2.14 and later).

It calls libtutti_comm.so on the tensors' memory, without Python's lock. PyTorch looks methods up by the names in its
PyBackend.hpp; those that it calls by several names are implemented under the one that is listed there.

A call that the caller waits for at once (asyncOp false) runs in the calling thread. Others return a work object with
the library's handle. Copies that a call needs are made in its place in the order (trampoline_plan.py); only what a receive
has to put into a tensor of other strides is put there by the first who waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_size_t, c_void_p
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ErrorType, Work

from . import library
from .library import ANY_RANK, Call, CallKind, Status
from .trampoline_join import Place, all_know, is_end, short_id
from .trampoline_memory import Pool, pool_bytes
from .trampoline_plan import Body, Plan
from .trampoline_sparse import SparseSum
from .trampoline_store import StoreBridge
from .trampoline_tensors import (
    NOTHING,
    After,
    check_written,
    describe,
    in_order,
    moved,
    only,
    put_back,
    reduction,
    same_dtype,
    wire,
)
from .trampoline_work import Calls, DoneWork, PendingWork, WorkList, error_of, install, milliseconds

Tensors = Sequence[torch.Tensor]

_UNSET = timedelta(milliseconds=-1)  # a call's time limit: the group's
_POLL_S = 0.002

# until shutdown(): what wraps a backend may hold its C++ half only
_alive: set[TuttiBackend] = set()
_default: TuttiBackend | None = None  # of the program's default group, until its shutdown()


class TuttiBackend(Backend):
    """A group of the library, as c10d calls it."""

    def __init__(
        self, store: Any, place: Place, parent: TuttiBackend | None, ranks: Sequence[int]
    ) -> None:
        """`ranks`: the members' in `parent`, from which the group is made if that is possible; empty: it is made in `store`."""
        super().__init__(place.rank, place.size)
        self._rank, self._size, self._name = place.rank, place.size, place.name
        self._options = Backend.Options("tutti", place.limit)
        self._lib = library.load()
        self._calls = Calls(self._lib)
        self._batch: list[PendingWork] | None = None
        self._sequence = 0
        self._pool: Pool | None = None
        self._error = ErrorType.SUCCESS  # of a group that was left
        self._aborted = False  # by this rank
        self._counts = c_size_t * place.size
        self._limit_ms = milliseconds(place.limit)
        self._splitting = threading.Lock()  # the library makes one group from this one at a time
        self._ending = threading.Lock()  # held from shutdown() on
        self._group: int | None = None
        # While another thread makes a group from the parent, this one does not wait: other ranks may begin with that which
        # comes second here.
        locked = ranks and parent is not None and parent._splitting.acquire(blocking=False)
        try:
            id = parent._id_for(ranks, place) if locked else 0
            gone = (lambda: "") if parent is None else (lambda: parent._why_one_is_gone(ranks))
            if ranks and all_know(store, place, ranks, id, gone):
                assert parent is not None
                self._bridge = parent._bridge.share()
                self._begin(lambda: self._split(parent, ranks))
        finally:
            if locked:
                parent._splitting.release()
        if self._group is None:
            self._bridge = StoreBridge(store, self._lib)
            self._begin(self._join)
        try:
            self._check(self._lib.group_set_timeout(self._group, self._limit_ms))
        except BaseException:
            self.shutdown()
            raise
        _alive.add(self)

    def _begin(self, make: Callable[[], int]) -> None:
        try:
            self._group = self._calls.group = make()
        finally:
            if self._group is None:
                self._bridge.free()

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
        self._check(status)
        assert group.value is not None
        return group.value

    def _split(self, parent: TuttiBackend, ranks: Sequence[int]) -> int:
        group = c_void_p()
        members, name = (c_int * self._size)(*ranks), self._name.encode()
        parent._with_group(
            lambda of: self._lib.group_split_members(of, members, self._size, name, byref(group))
        )
        assert group.value is not None
        return group.value

    def _id_for(self, ranks: Sequence[int], place: Place) -> int:
        """This group's number, if one with these of its ranks can be made from it here; else 0."""
        group = self._calls.enter()
        try:
            is_possible = (
                group is not None
                and ranks[place.rank] == self._rank
                and max(ranks) < self._size
                and self._lib.group_status(group) == Status.OK
            )
            return short_id(self._lib.group_id(group)) if is_possible else 0
        finally:
            self._calls.leave()

    def _why_one_is_gone(self, ranks: Sequence[int]) -> str:
        """Why this group died, if one of `ranks` will not come to another for that reason; else ""."""
        group = self._calls.enter()
        try:
            dead = group is not None and self._lib.group_status(group)
            text = self._lib.message() if dead else ""
            return text if is_end(text) and self._lib.group_culprit(group) in ranks else ""
        finally:
            self._calls.leave()

    def _root(self, plan: Plan, opts: Any) -> int:
        root = int(opts.rootRank)
        if not 0 <= root < self._size:  # C would take only its lower half
            expected = f"expected a rank from 0 to {self._size - 1}"
            raise RuntimeError(f"tutti: {plan.name}: root is {root}, {expected}")
        return root

    def _check(self, status: int) -> None:
        if status:
            raise error_of(status, self._lib.message(), self._lib)

    # ---- How every call goes

    def _run(self, plan: Plan, opts: Any, outputs: Tensors) -> Work:
        """The plan, under the limit in `opts`."""
        limit, waits = opts.timeout, not opts.asyncOp and self._batch is None
        ms = 0 if limit == _UNSET else milliseconds(limit)
        handle = c_void_p()
        work_p = None if waits else byref(handle)
        self._sequence += 1
        group = self._calls.enter()
        try:
            body = None if plan.is_plain() else Body(self._lib, group, plan, self._abort)
            if body is None:
                call = plan.calls[0]
                if ms:
                    call.timeout_ms = ms
                status = self._lib.group_call(group, byref(call), work_p)
            else:
                status = self._calls.submit(group, body, ms, work_p)
            if status:
                raise self._failure(status, group) if body is None or body.error is None else body.error
            if not waits:
                return self._pending(handle.value, outputs, plan.keep)
        finally:
            self._calls.leave()
        if self._calls.dropped:
            self._calls.sweep()
        return DoneWork(outputs)

    def _pending(
        self,
        handle: int | None,
        outputs: Tensors,
        keep: Any,
        after: After | None = None,
        message: bool = False,
    ) -> PendingWork:
        self._calls.add(handle, message, (outputs, keep))
        work = PendingWork(self._calls, handle, outputs, after, message)
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _with_group(self, call: Callable[[int | None], int]) -> None:
        """A call of the library with the group, which another thread may end meanwhile."""
        group = self._calls.enter()
        try:
            status = call(group)
            if status:
                raise self._failure(status, group)
        finally:
            self._calls.leave()

    def _failure(self, status: int, group: int | None) -> Exception:
        if group is None:
            return RuntimeError(f'tutti: group "{self._name}" has been shut down')
        return error_of(status, self._lib.message(), self._lib)

    # ---- Reductions

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        tensor = only("all_reduce", tensors)
        if tensor.layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        plan = Plan("all_reduce")
        op, scale = reduction(plan.name, tensor.dtype, opts.reduceOp)
        plan.add(CallKind.ALL_REDUCE, dst=moved(plan.in_place(tensor)), op=op, scale=scale)
        return self._run(plan, opts, tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        plan = Plan("all_reduce_coalesced")
        plan.together = True
        for tensor in tensors:
            op, scale = reduction(plan.name, tensor.dtype, opts.reduceOp)
            plan.add(CallKind.ALL_REDUCE, dst=moved(plan.in_place(tensor)), op=op, scale=scale)
        return self._run(plan, opts, tensors)

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Work:
        """The sum of tensors of which each rank has only some elements: all get all, and add them up."""
        tensor = only("all_reduce", tensors)
        if int(getattr(opts.reduceOp, "op", opts.reduceOp)) != 0:
            raise RuntimeError("tutti: all_reduce of sparse tensors: only ReduceOp.SUM is possible")
        if tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
            raise RuntimeError(
                f"tutti: all_reduce: expected a sparse CPU tensor in coordinates, got {describe(tensor)}"
            )
        plan = Plan("all_reduce")
        summands = SparseSum(self._lib, self._group, self._size)
        plan.before.append(lambda: summands.add_up(tensor))
        return self._run(plan, opts, tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        plan, tensor = Plan("reduce"), only("reduce", tensors)
        root = self._root(plan, opts)
        op, scale = reduction(plan.name, tensor.dtype, opts.reduceOp)
        # only the root's tensor is written
        data = (plan.in_place if root == self._rank else plan.source)(tensor)
        plan.add(CallKind.REDUCE, dst=moved(data), op=op, rank=root, scale=scale)
        return self._run(plan, opts, tensors)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        plan = Plan("reduce_scatter_single")
        self._plan_reduce_scatter(plan, output, input, opts)
        return self._run(plan, opts, [output])

    def _plan_reduce_scatter(
        self, plan: Plan, output: torch.Tensor, input: torch.Tensor, opts: Any
    ) -> None:
        same_dtype(plan.name, [output, input])
        op, scale = reduction(plan.name, input.dtype, opts.reduceOp)
        if output.numel() * self._size != input.numel():
            raise RuntimeError(
                f"tutti: {plan.name}: input {describe(input)} is not {self._size} times output "
                f"{describe(output)}"
            )
        source, target = moved(plan.source(input)), moved(plan.target(output))
        plan.add(CallKind.REDUCE_SCATTER, src=source, dst=target, op=op, scale=scale)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        plan = Plan("reduce_scatter_single_coalesced")
        self._check_lists(plan.name, outputs, inputs)
        for output, source in zip(outputs, inputs):
            self._plan_reduce_scatter(plan, output, source, opts)
        return self._run(plan, opts, outputs)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        plan = Plan("reduce_scatter")
        output, pieces = only(plan.name, outputs), only(plan.name, inputs)
        self._check_count(plan.name, "input", pieces)
        same_dtype(plan.name, [output, *pieces])
        op, scale = reduction(plan.name, output.dtype, opts.reduceOp)
        if pieces[self._rank].numel() != output.numel():
            raise RuntimeError(
                f"tutti: {plan.name}: input {self._rank} is {describe(pieces[self._rank])}, but the "
                f"output {describe(output)}"
            )
        target = moved(plan.target(output))
        if all(piece.numel() == output.numel() for piece in pieces):
            source = plan.joined(pieces)
            plan.add(CallKind.REDUCE_SCATTER, src=source, dst=target, op=op, scale=scale)
            return self._run(plan, opts, outputs)
        for root, piece in enumerate(pieces):
            own, source = target if root == self._rank else NOTHING, moved(plan.source(piece))
            plan.add(CallKind.REDUCE, src=source, dst=own, op=op, rank=root, scale=scale)
        return self._run(plan, opts, outputs)

    # ---- Calls that move data

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        plan, tensor = Plan("broadcast"), only("broadcast", tensors)
        root = self._root(plan, opts)
        data = (plan.source if root == self._rank else plan.target)(tensor)
        plan.add(CallKind.BROADCAST, dst=moved(data), rank=root)
        return self._run(plan, opts, tensors)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        plan = Plan("all_gather")
        pieces, tensor = only(plan.name, outputs), only(plan.name, inputs)
        self._check_count(plan.name, "output", pieces)
        same_dtype(plan.name, [tensor, *pieces])
        if pieces[self._rank].numel() != tensor.numel():
            raise RuntimeError(
                f"tutti: {plan.name}: output {self._rank} is {describe(pieces[self._rank])}, but the "
                f"input {describe(tensor)}"
            )
        source, target = moved(plan.source(tensor)), plan.spread(pieces)
        if all(piece.numel() == tensor.numel() for piece in pieces):
            plan.add(CallKind.ALL_GATHER, src=source, dst=target)
        else:
            times = wire(tensor.dtype)[1]
            counts = self._counts(*[piece.numel() * times for piece in pieces])
            plan.add(CallKind.ALL_GATHER_V, src=source, dst=target, dst_counts=counts)
        return self._run(plan, opts, pieces)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """outputs[r][i] is rank r's inputs[i]. What a rank sends is one piece of memory for all inputs."""
        plan = Plan("all_gather_coalesced")
        if len(outputs) != self._size:
            raise RuntimeError(
                f"tutti: {plan.name}: {len(outputs)} lists of outputs for {self._size} ranks"
            )
        for pieces in outputs:
            self._check_lists(plan.name, pieces, inputs)
            for piece, tensor in zip(pieces, inputs):
                same_dtype(plan.name, [piece, tensor])
                if piece.numel() != tensor.numel():
                    raise RuntimeError(
                        f"tutti: {plan.name}: an output is {describe(piece)}, but the input "
                        f"{describe(tensor)}"
                    )
        filled = [piece for pieces in outputs for piece in pieces]
        source, target = plan.joined_bytes(inputs), plan.spread_bytes(filled)
        plan.add(CallKind.ALL_GATHER, src=source, dst=target)
        return self._run(plan, opts, filled)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        plan = Plan("all_gather_single")
        self._plan_all_gather(plan, output, input)
        return self._run(plan, opts, [output])

    def _plan_all_gather(self, plan: Plan, output: torch.Tensor, input: torch.Tensor) -> None:
        same_dtype(plan.name, [output, input])
        if input.numel() * self._size != output.numel():
            raise RuntimeError(
                f"tutti: {plan.name}: output {describe(output)} is not {self._size} times input "
                f"{describe(input)}"
            )
        source, target = moved(plan.source(input)), moved(plan.target(output))
        plan.add(CallKind.ALL_GATHER, src=source, dst=target)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        plan = Plan("all_gather_single_coalesced")
        self._check_lists(plan.name, outputs, inputs)
        for output, source in zip(outputs, inputs):
            self._plan_all_gather(plan, output, source)
        return self._run(plan, opts, outputs)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        plan, tensor = Plan("gather"), only("gather", inputs)
        root = self._root(plan, opts)
        source, target, pieces = moved(plan.source(tensor)), NOTHING, []
        if root == self._rank:
            pieces = only("gather", outputs)
            self._check_pieces("gather", "output", pieces, tensor)
            target = plan.spread(pieces)
        plan.add(CallKind.GATHER, src=source, dst=target, rank=root)
        return self._run(plan, opts, pieces)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        plan, output = Plan("scatter"), only("scatter", outputs)
        root = self._root(plan, opts)
        target, source = moved(plan.target(output)), NOTHING
        if root == self._rank:
            pieces = only("scatter", inputs)
            self._check_pieces("scatter", "input", pieces, output)
            source = plan.joined(pieces)
        plan.add(CallKind.SCATTER, src=source, dst=target, rank=root)
        return self._run(plan, opts, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        """The same call with splits and without: other ranks may give them."""
        plan = Plan("all_to_all_single")
        same_dtype(plan.name, [output, input])
        plan.add(
            CallKind.ALL_TO_ALL_V,
            src=moved(plan.source(input)),
            src_counts=self._row_counts(plan.name, "input", input, input_splits),
            dst=moved(plan.target(output)),
            dst_counts=self._row_counts(plan.name, "output", output, output_splits),
        )
        return self._run(plan, opts, [output])

    def _row_counts(self, name: str, side: str, tensor: torch.Tensor, splits: Sequence[int]) -> Any:
        """Elements of each rank's rows of dimension 0."""
        if not tensor.dim():
            raise RuntimeError(
                f"tutti: {name}: {side} has no dimensions, expected one or more: its rows are divided among the ranks"
            )
        rows = tensor.shape[0]
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
        plan = Plan("all_to_all")
        self._check_count(plan.name, "output", outputs)
        self._check_count(plan.name, "input", inputs)
        same_dtype(plan.name, [*outputs, *inputs])
        times = wire(outputs[0].dtype)[1]
        sent = self._counts(*[tensor.numel() * times for tensor in inputs])
        received = self._counts(*[tensor.numel() * times for tensor in outputs])
        source, target = plan.joined(inputs), plan.spread(outputs)
        plan.add(
            CallKind.ALL_TO_ALL_V, src=source, src_counts=sent, dst=target, dst_counts=received
        )
        return self._run(plan, opts, outputs)

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

    def _message(
        self, call: Call, tensors: Tensors, data: torch.Tensor, after: After | None
    ) -> Work:
        handle = c_void_p()
        group = self._calls.enter()
        try:
            status = self._lib.group_call(group, byref(call), byref(handle))
            if status:
                raise self._failure(status, group)
            return self._pending(handle.value, tensors, data, after, True)
        finally:
            self._calls.leave()

    def send(self, tensors: Tensors, to: int, tag: int) -> Work:
        data = in_order("send", only("send", tensors))
        call = Call(kind=CallKind.SEND, src=moved(data), rank=to, tag=tag)
        return self._message(call, tensors, data, None)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Work:
        data = in_order("recv", only("recv", tensors))
        if data is not tensors[0]:
            check_written("recv", tensors[0])
        call = Call(kind=CallKind.RECV, dst=moved(data), rank=source, tag=tag)
        return self._message(call, tensors, data, put_back(data, tensors[0]))

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        return self.recv(tensors, ANY_RANK, tag)

    # ---- Barriers, and several calls as one

    def barrier(self, opts: Any) -> Work:
        return self._run(Plan("barrier").add(CallKind.BARRIER), opts, [])

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        # no time at all is a limit here, and -1 none
        ms = 0 if opts.timeout < timedelta(0) else milliseconds(opts.timeout)
        self._with_group(lambda group: self._lib.monitored_barrier(group, ms, wait_all_ranks))

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
        self._with_group(lambda group: self._lib.group_set_timeout(group, self._limit_ms))

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _wait_for_pending_works(self) -> None:
        self._calls.wait_all()

    def get_error(self) -> ErrorType:
        group = self._calls.enter()
        try:
            if group is None:
                return self._error
            status = self._lib.group_status(group)
        finally:
            self._calls.leave()
        if status == Status.OK:
            return ErrorType.SUCCESS
        if status == Status.TIMEOUT:
            return ErrorType.TIMEOUT
        if status == Status.PEER or (status == Status.ABORTED and not self._aborted):
            return ErrorType.REMOTE_ERROR
        return ErrorType.COMM_ERROR

    def abort(self) -> None:
        """Ends the group for all ranks; what is in flight fails."""
        self._abort("the program aborted the process group")

    def _abort(self, reason: str) -> None:
        group = self._calls.enter()
        try:
            if group is not None:
                self._aborted = True
                self._lib.group_abort(group, b"%s", reason.encode("utf-8", "replace"))
        finally:
            self._calls.leave()

    def shutdown(self) -> None:
        """Leaves the group, when what was begun is done and no tensor is in its memory any more."""
        global _default
        if self._group is None:
            return
        if self._calls.is_inside():  # the communication thread cannot wait for its own end
            threading.Thread(target=self.shutdown).start()
            return
        if not self._ending.acquire(blocking=False):  # another thread does it
            return
        self._error = self.get_error()
        buffers = self._calls.end()
        group, self._group = self._group, None
        _alive.discard(self)
        if _default is self:
            _default = None

        def leave() -> None:
            while self._calls.waiting():  # a thread that is inside a wait reads the group's memory
                time.sleep(_POLL_S)
            self._lib.group_free(group)
            self._bridge.free()
            buffers.clear()

        def begin() -> None:
            # The library waits for messages, perhaps from ranks that will never send them. A tensor in the group's memory
            # may be freed anywhere, also on the communication thread.
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
            size_bytes = pool_bytes()
            self._with_group(lambda group: self._lib.pool_new(byref(handle), group, size_bytes))
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
        place = Place(
            list(ranks).index(self._rank), len(ranks), limit, self._name[:20] + "/part"
        )
        return TuttiBackend(store, place, self, list(ranks))

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> TuttiBackend:
        limit = self._options._timeout if opts is None else opts._timeout
        return TuttiBackend(store, Place(rank, size, limit, "merged"), None, ())


# ---- The factory


def create(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    name: str,
    ranks: list[int] | None,
    without_members: bool,
) -> TuttiBackend:
    """As choose.create."""
    global _default
    install()
    if without_members:
        raise RuntimeError(
            "tutti: enable_reconfigure needs the compiled backend: PyTorch gives a backend in Python no way to change its rank"
        )
    place = Place(rank, size, timeout, name)
    backend = TuttiBackend(store, place, _default if ranks else None, ranks or [])
    if ranks is not None and not ranks:
        _default = backend
    return backend


def leave_all(why: str) -> None:
    """Ends all groups: with an abort of that text, if there is one or a call is in progress."""
    # the default group last, so that the launcher is told this process's rank in it
    for backend in sorted(_alive, key=lambda backend: backend is _default):
        if why:
            backend._abort(why)
        elif backend._calls.pending():
            backend._abort("its program ended while calls were in progress")
        backend.shutdown()
