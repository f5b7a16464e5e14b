"""Adaptors: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
from torch_op_db import Left, ctypes, op, torch

REDUCTIONS = {"mean": 0, "sum": 1, "none": 2, "batchmean": 3}
RESERVED = ctypes.c_uint64 * 4
ZERO = 1.17549435082228750797e-38  # TUTTI_ZERO


def opts(t, reduction, size_average=None, reduce=None, **fields):
    """Options by reference: {name: (ctypes type, value)}"""
    if size_average is not None or reduce is not None:
        raise Left("size_average and reduce, which PyTorch has replaced by reduction")
    kinds = {"reduction": ctypes.c_int, **{k: v[0] for k, v in fields.items()}, "reserved": RESERVED}
    return t.struct(kinds, True, reduction=REDUCTIONS[reduction], **{k: v[1] for k, v in fields.items()})


def tensor(x):
    return (ctypes.c_void_p, x.p if x is not None else None)


def real(value):
    """0 says zero."""
    return (ctypes.c_float, value if value != 0 else ZERO)


def ignored(index):
    return {"has_ignore_index": (ctypes.c_bool, True), "ignore_index": (ctypes.c_int64, index)}


@op("nn.functional.cross_entropy")
def cross_entropy(t, x, target, weight=None, reduction="mean", label_smoothing=0.0, ignore_index=-100, **old):
    if old:
        raise Left("size_average and reduce, which PyTorch has replaced by reduction")
    kinds = {"label_smoothing": ctypes.c_float, "has_ignore_index": ctypes.c_bool, "ignore_index": ctypes.c_int64,
             "weight": ctypes.c_void_p, "reduction": ctypes.c_int, "reserved": RESERVED}
    o = t.struct(kinds, True, label_smoothing=label_smoothing, has_ignore_index=True, ignore_index=ignore_index,
                 weight=weight.p if weight is not None else None, reduction=REDUCTIONS[reduction])
    return t.tutti_cross_entropy_with(x, target, o)


@op("nn.functional.linear_cross_entropy")
def linear_cross_entropy(t, x, linear_weight, target, linear_bias=None, weight=None, reduction="mean", label_smoothing=0.0, ignore_index=None,
                         options=None):
    if len(linear_weight.shape) > 2:
        raise Left("a weight of more than two dimensions, for K-dimensional losses")
    kinds = {"label_smoothing": ctypes.c_float, "has_ignore_index": ctypes.c_bool, "ignore_index": ctypes.c_int64,
             "weight": ctypes.c_void_p, "reduction": ctypes.c_int, "chunk_rows": ctypes.c_int64, "reserved": RESERVED}
    chunk = getattr(options, "batch_chunk_size", None) or 0
    o = t.struct(kinds, True, label_smoothing=label_smoothing, has_ignore_index=ignore_index is not None, ignore_index=ignore_index or 0,
                 weight=weight.p if weight is not None else None, reduction=REDUCTIONS[reduction], chunk_rows=chunk)
    return t.tutti_linear_cross_entropy(x, linear_weight, linear_bias, target, o)


@op("nn.functional.nll_loss")
def nll_loss(t, x, target, weight=None, reduction="mean", ignore_index=-100, **old):
    return t.tutti_nll_loss(x, target, opts(t, reduction, **old, weight=tensor(weight), **ignored(ignore_index)))


def broadcast(t, x, target):
    """As PyTorch, which only warns."""
    shape = torch.broadcast_shapes(x.shape, target.shape)
    x, target = [v if v.shape == shape else t.tutti_expand(v, t.shape(shape)) for v in (x, target)]
    return x, target


@op("nn.functional.mse_loss")
def mse_loss(t, x, target, reduction="mean", weight=None, **old):
    if weight is not None:
        raise Left("weight")
    return t.tutti_mse_loss_with(*broadcast(t, x, target), opts(t, reduction, **old))


@op("nn.functional.l1_loss")
def l1_loss(t, x, target, reduction="mean", weight=None, **old):
    if weight is not None:
        raise Left("weight")
    return t.tutti_l1_loss(*broadcast(t, x, target), opts(t, reduction, **old))


@op("nn.functional.smooth_l1_loss")
def smooth_l1_loss(t, x, target, reduction="mean", beta=1.0, **old):
    return t.tutti_smooth_l1_loss(*broadcast(t, x, target), opts(t, reduction, **old, beta=real(beta)))


@op("nn.functional.huber_loss")
def huber_loss(t, x, target, reduction="mean", delta=1.0, weight=None):
    if weight is not None:
        raise Left("weight")
    return t.tutti_huber_loss(*broadcast(t, x, target), opts(t, reduction, delta=real(delta)))


@op("nn.functional.kl_div")
def kl_div(t, x, target, reduction="mean", log_target=False, **old):
    return t.tutti_kl_div(*broadcast(t, x, target), opts(t, reduction, **old, log_target=(ctypes.c_bool, log_target)))


def entropy_opts(t, reduction, weight, pos_weight=None, **old):
    return opts(t, reduction, **old, weight=tensor(weight), pos_weight=tensor(pos_weight))


@op("nn.functional.binary_cross_entropy")
def binary_cross_entropy(t, x, target, weight=None, reduction="mean", **old):
    return t.tutti_binary_cross_entropy(x, target, entropy_opts(t, reduction, weight, **old))


@op("nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(t, x, target, weight=None, reduction="mean", pos_weight=None, **old):
    return t.tutti_binary_cross_entropy_with_logits(x, target, entropy_opts(t, reduction, weight, pos_weight, **old))


@op("nn.functional.poisson_nll_loss")
def poisson_nll_loss(t, x, target, log_input=True, full=False, eps=1e-8, reduction="mean", **old):
    flags = {"linear_input": (ctypes.c_bool, not log_input), "full": (ctypes.c_bool, full)}
    return t.tutti_poisson_nll_loss(x, target, opts(t, reduction, **old, **flags, eps=real(eps)))


@op("nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(t, x, target, var, full=False, eps=1e-6, reduction="mean"):
    if not hasattr(var, "p"):
        raise Left("the variance is a number")
    shape = torch.broadcast_shapes(x.shape, target.shape)
    if len(var.shape) < len(shape):
        var = t.tutti_reshape(var, t.shape([*var.torch.shape, 1]))
        var = t.tutti_expand(var, t.shape(shape))
    elif var.shape != shape:
        var = t.tutti_expand(var, t.shape(shape))
    x, target = broadcast(t, x, target)
    return t.tutti_gaussian_nll_loss(x, target, var, opts(t, reduction, full=(ctypes.c_bool, full), eps=real(eps)))


@op("nn.functional.soft_margin_loss")
def soft_margin_loss(t, x, target, reduction="mean", **old):
    return t.tutti_soft_margin_loss(x, target, opts(t, reduction, **old))


def margin_opts(t, reduction, margin, **old):
    return opts(t, reduction, **old, margin=real(margin))


@op("nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(t, x, target, margin=1.0, reduction="mean", **old):
    return t.tutti_hinge_embedding_loss(*broadcast(t, x, target), margin_opts(t, reduction, margin, **old))


@op("nn.functional.margin_ranking_loss")
def margin_ranking_loss(t, a, b, target, margin=0.0, reduction="mean", **old):
    return t.tutti_margin_ranking_loss(a, b, target, margin_opts(t, reduction, margin, **old))


@op("nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(t, a, b, target, margin=0.0, reduction="mean", **old):
    return t.tutti_cosine_embedding_loss(a, b, target, margin_opts(t, reduction, margin, **old))


@op("nn.functional.triplet_margin_loss")
def triplet_margin_loss(t, anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, reduction="mean"):
    if not anchor.shape == positive.shape == negative.shape:
        raise Left("shapes that are broadcast")
    o = opts(t, reduction, margin=real(margin), p=(ctypes.c_float, p), eps=real(eps), swap=(ctypes.c_bool, swap))
    return t.tutti_triplet_margin_loss(anchor, positive, negative, o)


@op("nn.functional.cosine_similarity")
def cosine_similarity(t, a, b, dim=1, eps=1e-8):
    return t.tutti_cosine_similarity(a, b, dim, float(eps))


@op("nn.functional.pairwise_distance")
def pairwise_distance(t, a, b, p=2.0, eps=1e-6, keepdim=False):
    if a.shape != b.shape:
        raise Left("shapes that are broadcast")
    return t.tutti_pairwise_distance(a, b, float(p), float(eps), keepdim)
