"""Reductions, running sums, softmax: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
from torch_op_db import Left, op


def need_f32(dtype):
    if dtype is not None and str(dtype) != "torch.float32":
        raise Left(f"dtype={dtype}")


def all_dims(t, dim):
    return t.dims([] if dim is None else dim)


def correction_of(unbiased, correction):
    return float((1 if unbiased in (None, True) else 0) if correction is None else correction)


@op("sum")
def sum_(t, x, dim=None, keepdim=False, dtype=None):
    need_f32(dtype)
    return t.tutti_sum(x) if dim is None and not keepdim else t.tutti_sum_dim(x, all_dims(t, dim), keepdim)


@op("mean")
def mean(t, x, dim=None, keepdim=False, dtype=None):
    need_f32(dtype)
    return t.tutti_mean_dim(x, all_dims(t, dim), keepdim)


@op("var")
def var(t, x, dim=None, unbiased=None, keepdim=False, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return t.tutti_var_dim(x, all_dims(t, dim), correction_of(unbiased, correction), keepdim)


@op("var", "unbiased")
def var_unbiased(t, x, unbiased=True):
    return t.tutti_var_dim(x, t.dims([]), correction_of(unbiased, None), False)


@op("std")
def std(t, x, dim=None, unbiased=None, keepdim=False, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return t.tutti_std_dim(x, all_dims(t, dim), correction_of(unbiased, correction), keepdim)


@op("std", "unbiased")
def std_unbiased(t, x, unbiased=True):
    return t.tutti_std_dim(x, t.dims([]), correction_of(unbiased, None), False)


@op("std_mean")
def std_mean(t, x, dim=None, unbiased=None, keepdim=False, correction=None):
    return [std(t, x, dim, unbiased, keepdim, correction), mean(t, x, None if isinstance(dim, bool) else dim, keepdim)]


@op("var_mean")
def var_mean(t, x, dim=None, unbiased=None, keepdim=False, correction=None):
    return [var(t, x, dim, unbiased, keepdim, correction), mean(t, x, None if isinstance(dim, bool) else dim, keepdim)]


@op("prod")
def prod(t, x, dim=None, keepdim=False, dtype=None):
    need_f32(dtype)
    return t.tutti_prod(x, all_dims(t, dim), keepdim)


@op("logsumexp")
def logsumexp(t, x, dim, keepdim=False):
    return t.tutti_logsumexp(x, t.dims(dim), keepdim)


@op("amax")
def amax(t, x, dim=(), keepdim=False):
    return t.tutti_amax(x, t.dims(dim), keepdim)


@op("amin")
def amin(t, x, dim=(), keepdim=False):
    return t.tutti_amin(x, t.dims(dim), keepdim)


@op("aminmax")
def aminmax(t, x, dim=None, keepdim=False):
    return [t.tutti_amin(x, all_dims(t, dim), keepdim), t.tutti_amax(x, all_dims(t, dim), keepdim)]


@op("max", "reduction_no_dim")
def max_all(t, x):
    return t.tutti_amax(x, t.dims([]), False)


@op("min", "reduction_no_dim")
def min_all(t, x):
    return t.tutti_amin(x, t.dims([]), False)


@op("max", "reduction_with_dim")
def max_dim(t, x, dim, keepdim=False):
    return [t.tutti_max_dim(x, dim, keepdim), t.tutti_argmax(x, t.dims(dim), keepdim)]


@op("min", "reduction_with_dim")
def min_dim(t, x, dim, keepdim=False):
    return [t.tutti_min_dim(x, dim, keepdim), t.tutti_argmin(x, t.dims(dim), keepdim)]


@op("argmax")
def argmax(t, x, dim=None, keepdim=False):
    return t.tutti_argmax(x, all_dims(t, dim), keepdim)


@op("argmin")
def argmin(t, x, dim=None, keepdim=False):
    return t.tutti_argmin(x, all_dims(t, dim), keepdim)


@op("linalg.vector_norm")
def vector_norm(t, x, ord=2, dim=None, keepdim=False, dtype=None):
    need_f32(dtype)
    return t.tutti_vector_norm(x, float(ord), all_dims(t, dim), keepdim)


@op("norm")
def norm(t, x, p="fro", dim=None, keepdim=False, dtype=None):
    need_f32(dtype)
    if p == "nuc":
        raise Left("p='nuc'")
    return t.tutti_vector_norm(x, 2.0 if p in ("fro", None) else float(p), all_dims(t, dim), keepdim)


for variant in ("fro", "inf"):
    op("norm", variant)(norm)


@op("cumsum")
def cumsum(t, x, dim, dtype=None):
    need_f32(dtype)
    return t.tutti_cumsum(x, dim)


@op("cumprod")
def cumprod(t, x, dim, dtype=None):
    need_f32(dtype)
    return t.tutti_cumprod(x, dim)


@op("softmax")
def softmax(t, x, dim, dtype=None):
    need_f32(dtype)
    return t.tutti_softmax_dim(x, dim)


@op("log_softmax")
def log_softmax(t, x, dim, dtype=None):
    need_f32(dtype)
    return t.tutti_log_softmax_dim(x, dim)


@op("nn.functional.softmin")
def softmin(t, x, dim, dtype=None):
    need_f32(dtype)
    return t.tutti_softmin(x, dim)


@op("sort")
def sort(t, x, dim=-1, descending=False, stable=False):
    """Without the places of equal elements, which PyTorch leaves open unless stable."""
    if str(x.torch.dtype) != "torch.float32":
        raise Left("integers")
    return [t.tutti_sort(x, dim, descending)] + ([t.tutti_argsort(x, dim, descending)] if stable else [])


@op("msort")
def msort(t, x):
    return t.tutti_sort(x, 0, False)


@op("argsort")
def argsort(t, x, dim=-1, descending=False, stable=False):
    return t.tutti_argsort(x, dim, descending)


@op("topk")
def topk(t, x, k, dim=-1, largest=True, sorted=True):
    return t.tutti_topk(x, t.i64(k), dim, largest)
