# trampoline_plan.py -- what one collective does, in its place in the order of the group's calls.
# SPDX-License-Identifier: MIT
"""A tensor that does not lie in order, or a list, needs buffers, which are filled before the call and read
after it. Both happen in the call's place in the order: the tensor may be the result of a call before it, or be read by one after it.
Only a call that needs none of this goes to the library as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any

import torch

from . import library
from .library import Buf, Call, Dtype, Status
from .trampoline_tensors import check, check_written, lies_in_order, moved, same_dtype, wire

Step = Callable[[], Any]


class CallFailed(Exception):
    """A call of the library within a plan failed; its message is the thread's last error."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Plan:
    """Steps before the calls, the calls, and steps after them. `keep` holds the memory until all are done."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: list[Step] = []
        self.calls: list[Call] = []
        self.after: list[Step] = []
        self.together = False  # the calls are independent, and small ones are sent as one
        self.keep: list[Any] = []

    def is_plain(self) -> bool:
        """One call of the library, and nothing else."""
        return len(self.calls) == 1 and not (self.before or self.after or self.together)

    def add(self, kind: int, **members: Any) -> Plan:
        self.calls.append(Call(kind=kind, **members))
        return self

    # ---- One tensor

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        check(self.name, tensor)
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
        self.keep.append(buffer)
        return buffer

    def _held(self, tensor: torch.Tensor) -> torch.Tensor:
        self.keep.append(tensor)
        return tensor

    def source(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is read: the tensor, or a copy in order."""
        if lies_in_order(tensor):
            return self._held(tensor)
        buffer, values = self._buffer(tensor), tensor.detach()
        self.before.append(lambda: buffer.copy_(values))
        return buffer

    def target(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is written."""
        if lies_in_order(tensor):
            return self._held(tensor)
        buffer, values = self._buffer(tensor), tensor.detach()
        check_written(self.name, tensor)
        self.after.append(lambda: values.copy_(buffer))
        return buffer

    def in_place(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is read and written."""
        if lies_in_order(tensor):
            return self._held(tensor)
        check_written(self.name, tensor)
        buffer, values = self.source(tensor), tensor.detach()
        self.after.append(lambda: values.copy_(buffer))
        return buffer

    # ---- Lists: one buffer for all of their tensors

    def _flat(self, tensors: Sequence[torch.Tensor]) -> tuple[Buf, list[torch.Tensor] | None]:
        """The memory of all of them, and its parts if it is not that of the tensors themselves."""
        for tensor in tensors:
            check(self.name, tensor)
        same_dtype(self.name, tensors)
        code, times = wire(tensors[0].dtype)
        counts = [tensor.numel() for tensor in tensors]
        if _adjacent(tensors):
            self.keep.append(tensors)
            return Buf(tensors[0].data_ptr(), sum(counts) * times, code), None
        flat = torch.empty(sum(counts), dtype=tensors[0].dtype)
        self.keep.append(flat)
        parts = [part.view(tensor.shape) for part, tensor in zip(flat.split(counts), tensors)]
        return moved(flat), parts

    def joined(self, tensors: Sequence[torch.Tensor]) -> Buf:
        """What is read: the elements of all of them."""
        buf, parts = self._flat(tensors)
        for part, tensor in zip(parts or (), tensors):
            self.before.append(lambda part=part, values=tensor.detach(): part.copy_(values))
        return buf

    def spread(self, tensors: Sequence[torch.Tensor]) -> Buf:
        """What is written, for all of them."""
        buf, parts = self._flat(tensors)
        for part, tensor in zip(parts or (), tensors):
            check_written(self.name, tensor)
            self.after.append(lambda part=part, values=tensor.detach(): values.copy_(part))
        return buf

    # ---- The same for lists of several types, as bytes

    def _bytes(self, tensors: Sequence[torch.Tensor]) -> tuple[Buf, Sequence[torch.Tensor]]:
        for tensor in tensors:
            check(self.name, tensor)
        sizes = [tensor.nbytes for tensor in tensors]
        if tensors and _adjacent(tensors):
            self.keep.append(tensors)
            return Buf(tensors[0].data_ptr(), sum(sizes), int(Dtype.U8)), ()
        flat = torch.empty(sum(sizes), dtype=torch.uint8)
        self.keep.append(flat)
        return moved(flat), flat.split(sizes) if sizes else ()

    def joined_bytes(self, tensors: Sequence[torch.Tensor]) -> Buf:
        buf, parts = self._bytes(tensors)
        for part, tensor in zip(parts, tensors):
            self.before.append(
                lambda part=part, values=tensor.detach(): part.copy_(_in_bytes(values))
            )
        return buf

    def spread_bytes(self, tensors: Sequence[torch.Tensor]) -> Buf:
        buf, parts = self._bytes(tensors)
        for part, tensor in zip(parts, tensors):
            check_written(self.name, tensor)
            self.after.append(
                lambda part=part, values=tensor.detach(): values.copy_(
                    part.clone().view(values.dtype).view(values.shape)
                )
            )
        return buf


def _in_bytes(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def _adjacent(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they lie in order and one after the other, as the pieces of one buffer do."""
    end = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != end or not lies_in_order(tensor):
            return False
        end += tensor.nbytes
    return True


class Body:
    """A plan as one function of the group's, which the library runs once or drops."""

    def __init__(
        self,
        lib: library.Library,
        group: int | None,
        plan: Plan,
        abort: Callable[[str], None],
    ) -> None:
        self._lib, self._group, self._name, self._abort = lib, group, plan.name, abort
        self._plan: Plan | None = plan
        self.error: BaseException | None = None

    def run(self) -> int:
        plan, self._plan = self._plan, None
        assert plan is not None
        try:
            with torch.inference_mode():  # which may write tensors made in it or not, and records nothing
                for step in plan.before:
                    step()
                status = self._together(plan.calls) if plan.together else self._calls(plan.calls)
                if status:
                    return status
                for step in plan.after:
                    step()
        except CallFailed as failed:
            return failed.status
        except BaseException as error:  # also KeyboardInterrupt, which ctypes would drop
            self.error = error
            text = f"{self._name}: {type(error).__name__}: {error}"[:900]
            self._abort(text)  # peers would wait for its end
            return self._lib.fail(Status.ABORTED, b"%s", text.encode("utf-8", "replace"))
        return Status.OK

    def _calls(self, calls: Sequence[Call]) -> int:
        for call in calls:
            status = self._lib.group_call(self._group, byref(call), None)
            if status:
                return status
        return Status.OK

    def _together(self, calls: Sequence[Call]) -> int:
        status = self._lib.coalesce_begin(self._group) or self._calls(calls)
        ended = self._lib.coalesce_end(self._group, None)
        return status or ended

    def drop(self) -> None:
        self._plan = None
