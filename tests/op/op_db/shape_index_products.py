"""Adaptors of shape and index operations, and of products: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
from torch_op_db import Left, ctypes, op, torch


def several(dim):
    return [dim] if isinstance(dim, int) else list(dim)


# ---- Shape ----------------------------------------------------------------------------------------------


@op("flatten")
def flatten(t, x, start_dim=0, end_dim=-1):
    return t.tutti_flatten_dims(x, start_dim, end_dim)


@op("squeeze")
def squeeze(t, x, dim=None):
    return t.tutti_squeeze(x) if dim is None else t.tutti_squeeze_dim(x, dim)


@op("squeeze", "multiple")
def squeeze_multiple(t, x, dim):
    return t.tutti_squeeze_dims(x, t.dims(dim))


@op("unsqueeze")
def unsqueeze(t, x, dim):
    return t.tutti_unsqueeze(x, dim)


@op("movedim")
def movedim(t, x, source, destination):
    return t.tutti_movedim(x, t.dims(source), t.dims(destination))


@op("stack")
def stack(t, tensors, dim=0):
    return t.tutti_stack(t.array(tensors), len(tensors), dim)


@op("narrow")
def narrow(t, x, dim, start, length):
    if not isinstance(start, int):
        raise Left("start in a tensor")
    return t.tutti_narrow(x, dim, t.i64(start), t.i64(length))


@op("select")
def select(t, x, dim, index):
    return t.tutti_select(x, dim, t.i64(index))


def parts_of(t, x, call, n):
    parts = t.array([None] * n)
    call(parts)
    return [type(x)(p) for p in parts if p]


@op("split")
def split(t, x, size, dim=0):
    n = -(-x.shape[dim] // size)
    return parts_of(t, x, lambda parts: t.tutti_split(x, t.i64(size), dim, parts, n), n)


def by_sizes(t, x, sizes, dim=0):
    given = (ctypes.c_int64 * len(sizes))(*sizes)
    return parts_of(t, x, lambda parts: t.tutti_split_with_sizes(x, given, len(sizes), dim, parts), len(sizes))


op("split", "list_args")(by_sizes)
op("split_with_sizes")(by_sizes)


@op("chunk")
def chunk(t, x, chunks, dim=0):
    return parts_of(t, x, lambda parts: t.tutti_chunk(x, chunks, dim, parts), chunks)


@op("flip")
def flip(t, x, dims):
    return t.tutti_flip(x, t.dims(dims))


@op("roll")
def roll(t, x, shifts, dims=()):
    return t.tutti_roll(x, t.shape(several(shifts)), t.dims(dims))


MODES = {"constant": 0, "reflect": 1, "replicate": 2, "circular": 3}


def pad(t, x, pad, mode="constant", value=None):
    given = (ctypes.c_int64 * len(pad))(*pad)
    return t.tutti_pad(x, given, len(pad), MODES[mode], float(value or 0))


for variant in ["constant", "reflect", "replicate", "replicate_negative", "circular"]:
    op("nn.functional.pad", variant)(pad)


@op("repeat")
def repeat(t, x, times):
    if x.shape == (0,):
        raise Left("an input of no elements in one dimension")
    return t.tutti_repeat(x, t.shape(times))


@op("tile")
def tile(t, x, times):
    if x.shape == (0,):
        raise Left("an input of no elements in one dimension")
    return t.tutti_repeat(x, t.shape([1] * (x.dim() - len(times)) + list(times)))


@op("repeat_interleave")
def repeat_interleave(t, x, repeats, dim=None, output_size=None):
    if not isinstance(repeats, int):
        raise Left("numbers of repeats in a tensor")
    if dim is None:
        return t.tutti_repeat_interleave(x, t.i64(repeats))
    return t.tutti_repeat_interleave_dim(x, t.i64(repeats), dim)


@op("tril")
def tril(t, x, diagonal=0):
    return t.tutti_tril(x, t.i64(diagonal))


@op("triu")
def triu(t, x, diagonal=0):
    return t.tutti_triu(x, t.i64(diagonal))


@op("nn.functional.pixel_shuffle")
def pixel_shuffle(t, x, upscale_factor):
    return t.tutti_pixel_shuffle(x, t.i64(upscale_factor))


@op("nn.functional.pixel_unshuffle")
def pixel_unshuffle(t, x, downscale_factor):
    return t.tutti_pixel_unshuffle(x, t.i64(downscale_factor))


@op("nn.functional.unfold")
def unfold(t, x, kernel_size, dilation=1, padding=0, stride=1):
    pair = ctypes.c_int * 2
    fields = {"kernel": pair, "stride": pair, "padding": pair, "dilation": pair, "reserved": ctypes.c_uint64 * 4}
    both = [pair(*(several(v) * 2)[:2]) for v in (kernel_size, stride, padding, dilation)]
    return t.tutti_unfold(x, t.struct(fields, kernel=both[0], stride=both[1], padding=both[2], dilation=both[3]))


# ---- By index -------------------------------------------------------------------------------------------


@op("gather")
def gather(t, x, dim, index, sparse_grad=False):
    return t.tutti_functional_gather(x, dim, index)


@op("take_along_dim")
def take_along_dim(t, x, index, dim=None):
    if dim is None:
        raise Left("without a dimension")
    return t.tutti_take_along_dim(x, index, dim)


@op("index_select")
def index_select(t, x, dim, index):
    return t.tutti_index_select(x, dim, index)


@op("scatter")
def scatter(t, x, dim, index, src, reduce=None):
    if reduce is not None:
        raise Left("with a reduction")
    if isinstance(src, (int, float)):
        return t.tutti_scatter_value(x, dim, index, float(src))
    return t.tutti_functional_scatter(x, dim, index, src)


@op("scatter_add")
def scatter_add(t, x, dim, index, src):
    return t.tutti_scatter_add(x, dim, index, src)


@op("nn.functional.embedding")
def embedding(t, weight, indices, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if indices.torch.dtype == torch.float32:  # the sample's arguments are the function's
        weight, indices = indices, weight
    if max_norm is not None or scale_grad_by_freq:
        raise Left("max_norm or scale_grad_by_freq")
    opts = t.struct(
        {"has_padding_idx": ctypes.c_bool, "padding_idx": ctypes.c_int64, "reserved": ctypes.c_uint64 * 4},
        by_reference=True,
        has_padding_idx=padding_idx is not None,
        padding_idx=padding_idx or 0,
    )
    return t.tutti_functional_embedding_with(weight, indices, opts)


# ---- Products -------------------------------------------------------------------------------------------


@op("matmul")
def matmul(t, a, b):
    return t.tutti_matmul(a, b)


@op("__rmatmul__")
def rmatmul(t, b, a):
    return t.tutti_matmul(a, b)


@op("mm")
def mm(t, a, b):
    return t.tutti_mm(a, b)


@op("bmm")
def bmm(t, a, b):
    return t.tutti_bmm(a, b)


@op("mv")
def mv(t, a, b):
    return t.tutti_mv(a, b)


@op("dot")
def dot(t, a, b):
    return t.tutti_dot(a, b)


@op("outer")
def outer(t, a, b):
    return t.tutti_outer(a, b)


def addmm(t, x, a, b, beta=1, alpha=1):
    return t.tutti_addmm(x, a, b, float(beta), float(alpha))


op("addmm")(addmm)
op("addmm", "decomposed")(addmm)


@op("baddbmm")
def baddbmm(t, x, a, b, beta=1, alpha=1):
    return t.tutti_baddbmm(x, a, b, float(beta), float(alpha))


@op("einsum")
def einsum(t, operands, equation):
    operands = operands if isinstance(operands, (list, tuple)) else [operands]
    if len(operands) > 2:
        raise Left("more than two operands")
    return t.tutti_einsum(equation.encode(), t.array(operands), len(operands))
