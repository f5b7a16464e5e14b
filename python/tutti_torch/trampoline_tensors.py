# trampoline_tensors.py -- PyTorch's tensors and reductions in the library's terms.
# SPDX-License-Identifier: MIT
"""What a tensor is for the library: a pointer, a number of elements, and one of its types.

Elements travel in row-major order. A tensor that lies otherwise in memory is copied, and a result is copied back when
the call is done, so that ranks need not agree on strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from .library import ZERO, Buf, Dtype, Redop

After = Callable[[], None]  # what remains to be done when a call is done

_PREMUL_SUM = 8
_SUM = ReduceOp.SUM
_STRIDED = torch.strided
NOTHING = Buf()  # what a rank passes where only the root has a buffer

_PLAIN: dict[torch.dtype, int] = {
    torch.float32: Dtype.F32,
    torch.float64: Dtype.F64,
    torch.float16: Dtype.F16,
    torch.bfloat16: Dtype.BF16,
    torch.int8: Dtype.I8,
    torch.uint8: Dtype.U8,
    torch.int16: Dtype.I16,
    torch.int32: Dtype.I32,
    torch.int64: Dtype.I64,
}
for _name in ("U16", "U32", "U64"):
    if hasattr(torch, _name.replace("U", "uint")):
        _PLAIN[getattr(torch, _name.replace("U", "uint"))] = Dtype[_name]
_PLAIN = {dtype: int(code) for dtype, code in _PLAIN.items()}

_COMPLEX: dict[torch.dtype, int] = {  # as pairs of their parts
    torch.complex32: int(Dtype.F16),
    torch.complex64: int(Dtype.F32),
    torch.complex128: int(Dtype.F64),
}

# True and false are the bytes 1 and 0, so a sum that is not 0 is their maximum.
_OF_BOOL: dict[int, int] = {
    Redop.SUM: int(Redop.BOR),
    Redop.MAX: int(Redop.BOR),
    Redop.BOR: int(Redop.BOR),
    Redop.PRODUCT: int(Redop.BAND),
    Redop.MIN: int(Redop.BAND),
    Redop.BAND: int(Redop.BAND),
    Redop.BXOR: int(Redop.BXOR),
}
_BITWISE = (Redop.BAND, Redop.BOR, Redop.BXOR)


def describe(tensor: torch.Tensor) -> str:
    """ "(2, 3) torch.float32 on cpu", for messages."""
    layout = "" if tensor.layout is _STRIDED else f" ({tensor.layout})"
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}{layout}"


def check(call: str, tensor: torch.Tensor) -> None:
    """Refuses what is not a dense tensor of the CPU."""
    if tensor.layout is _STRIDED and tensor.is_cpu:
        return
    raise RuntimeError(
        f"tutti: {call}: expected a dense CPU tensor, got {describe(tensor)}; "
        '"cpu:tutti,cuda:nccl" serves GPUs too'
    )


def check_written(call: str, tensor: torch.Tensor) -> None:
    """Refuses a tensor of which several elements lie at one place."""
    if torch._debug_has_internal_overlap(tensor) == 1:
        raise RuntimeError(
            f"tutti: {call}: several elements of a tensor that it writes to lie at one place (of expand()?); "
            "clone() it before"
        )


def only(call: str, tensors: Sequence[Any]) -> Any:
    """The one element of c10d's lists, which are for several devices per process."""
    if len(tensors) != 1:
        raise RuntimeError(f"tutti: {call}: a list of {len(tensors)} tensors, expected one")
    return tensors[0]


def lies_in_order(tensor: torch.Tensor) -> bool:
    """Whether its memory is what the library would read and write."""
    return (
        tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and tensor.is_cpu
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def in_order(call: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it in row-major order."""
    if lies_in_order(tensor):
        return tensor
    check(call, tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def put_back(source: torch.Tensor, target: torch.Tensor) -> After | None:
    """Copies from the buffer to the tensor that it stands for, unless they are the same."""
    if source is target:
        return None

    def after() -> None:
        target.detach().copy_(source)

    return after


def wire(dtype: torch.dtype) -> tuple[int, int]:
    """The library's type for moving these elements, and how many make one of them."""
    code = _PLAIN.get(dtype)
    if code is not None:
        return code, 1
    code = _COMPLEX.get(dtype)
    return (int(Dtype.U8), dtype.itemsize) if code is None else (code, 2)


def moved(tensor: torch.Tensor) -> Buf:
    """The buffer of a tensor in order, for calls that only move it."""
    code = _PLAIN.get(tensor.dtype)
    if code is not None:
        return Buf(tensor.data_ptr(), tensor.numel(), code)
    code, times = wire(tensor.dtype)
    return Buf(tensor.data_ptr(), tensor.numel() * times, code)


def same_dtype(call: str, tensors: Sequence[torch.Tensor]) -> None:
    """Refuses different types in one call, of which the library would see only bytes."""
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype is not dtype:
            raise RuntimeError(f"tutti: {call}: tensors of {dtype} and {tensor.dtype} in one call")


# ---- Reductions


def _refuse(call: str, dtype: torch.dtype, op: int, why: str) -> RuntimeError:
    name = "PREMUL_SUM" if op == _PREMUL_SUM else Redop(op).name if op in list(Redop) else str(op)
    return RuntimeError(f"tutti: {call}: ReduceOp.{name} of {dtype}: {why}")


def _other_reduction(call: str, dtype: torch.dtype, op: int) -> int:
    """The library's reduction for types and reductions that need a closer look."""
    if dtype is torch.bool:
        if op not in _OF_BOOL:
            raise _refuse(call, dtype, op, "a truth value has no such reduction")
        return _OF_BOOL[op]
    if dtype in _COMPLEX:
        if op not in (Redop.SUM, Redop.AVG, _PREMUL_SUM):
            raise _refuse(call, dtype, op, "complex numbers have only SUM, AVG and PREMUL_SUM")
        return Redop.AVG if op == Redop.AVG else Redop.SUM
    if dtype not in _PLAIN:
        raise _refuse(call, dtype, op, "this type can be moved, but not reduced; convert it before")
    if op not in list(Redop) and op != _PREMUL_SUM:
        raise _refuse(call, dtype, op, "unknown reduction")
    integer = not dtype.is_floating_point
    if op in _BITWISE and not integer:
        raise _refuse(call, dtype, op, "bitwise reductions are for integers")
    if op in (Redop.AVG, _PREMUL_SUM) and integer:
        raise _refuse(call, dtype, op, "an integer cannot hold it; use SUM and divide")
    return Redop.SUM if op == _PREMUL_SUM else op


def reduction(call: str, dtype: torch.dtype, reduce_op: Any) -> tuple[int, float]:
    """The library's reduction, and the scale of its call: the factor of PREMUL_SUM, else 0."""
    if reduce_op == _SUM and dtype in _PLAIN:
        return 0, 0
    op = int(getattr(reduce_op, "op", reduce_op))
    code = int(_other_reduction(call, dtype, op))
    if op != _PREMUL_SUM:
        return code, 0
    factor = reduce_op.factor
    if isinstance(factor, torch.Tensor):
        factor = factor.item()
    if isinstance(factor, complex):
        raise _refuse(call, dtype, op, "expected a factor that is one real number")
    return code, float(factor) or ZERO
