"""Normalisation: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
import ctypes

from torch_op_db import Left, op


@op("nn.functional.layer_norm")
def layer_norm(t, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    if x.shape[-len(normalized_shape):].count(1) == len(normalized_shape):
        raise Left("rows of one element, whose gradient is 0 here and a rounding error there")
    return t.tutti_functional_layer_norm(x, t.shape(normalized_shape), weight, bias, float(eps))


@op("nn.functional.rms_norm")
def rms_norm(t, x, normalized_shape, weight=None, eps=None):
    return t.tutti_functional_rms_norm(x, t.shape(normalized_shape), weight, 0.0 if eps is None else float(eps))


@op("nn.functional.group_norm")
def group_norm(t, x, groups, weight=None, bias=None, eps=1e-5):
    return t.tutti_functional_group_norm(x, groups, weight, bias, float(eps))


@op("nn.functional.instance_norm")
def instance_norm(t, x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    if not use_input_stats:
        raise Left("running statistics")
    return t.tutti_functional_instance_norm(x, weight, bias, float(eps))


@op("nn.functional.batch_norm")
def batch_norm(t, x, running_mean=None, running_var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    if not training:
        raise Left("training=False, which is a property of our step")
    if None in (running_mean, running_var, weight, bias):
        raise Left("no weight, bias or running statistics")
    kinds = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}
    if x.dim() not in kinds:
        raise Left(f"{x.dim()} dimensions")
    pointers = ["weight", "bias", "running_mean", "running_var"]
    fields = {name: ctypes.c_void_p for name in pointers}
    fields |= {"momentum": ctypes.c_float, "eps": ctypes.c_float, "relu": ctypes.c_bool}
    fields |= {"residual": ctypes.c_void_p, "peers": ctypes.c_void_p, "reserved": ctypes.c_uint64 * 4}
    args = t.struct(fields, True, weight=weight.p, bias=bias.p, running_mean=running_mean.p, running_var=running_var.p,
                    momentum=momentum, eps=eps)
    return getattr(t, f"tutti_functional_batch_norm{kinds[x.dim()]}")(x, args)


@op("nn.functional.local_response_norm")
def local_response_norm(t, x, size, alpha=1e-4, beta=0.75, k=1.0):
    return t.tutti_functional_local_response_norm(x, size, float(alpha), float(beta), float(k))


@op("nn.functional.normalize")
def normalize(t, x, p=2.0, dim=1, eps=1e-12):
    if not isinstance(dim, int):
        raise Left("several dims")
    return t.tutti_normalize(x, float(p), dim, float(eps))
