"""Adaptors: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
import math

from torch_op_db import Left, ctypes, op, torch


def of_one(name, function):
    op(name)(lambda t, x, inplace=False: getattr(t, function)(x))


for name in ("neg", "abs", "exp", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos"):
    of_one(name, "tutti_" + name)
for name in ("silu", "hardswish", "hardsigmoid", "relu6", "logsigmoid"):
    of_one("nn.functional." + name, "tutti_" + name)
of_one("log", "tutti_functional_log")


@op("nn.functional.leaky_relu")
def leaky_relu(t, x, negative_slope=0.01, inplace=False):
    return t.tutti_leaky_relu(x, float(negative_slope))


@op("nn.functional.elu")
def elu(t, x, alpha=1.0, inplace=False):
    return t.tutti_elu(x, float(alpha))


@op("nn.functional.softplus")
def softplus(t, x, beta=1, threshold=20):
    return t.tutti_softplus(x, float(beta), float(threshold))


@op("nn.functional.hardtanh")
def hardtanh(t, x, min_val=-1.0, max_val=1.0, inplace=False):
    return t.tutti_hardtanh(x, float(min_val), float(max_val))


@op("clamp")
def clamp(t, x, min=None, max=None):
    """With tensors as bounds: by minimum and maximum."""
    if isinstance(min, (int, float, type(None))) and isinstance(max, (int, float, type(None))):
        return t.tutti_clamp(x, -math.inf if min is None else float(min), math.inf if max is None else float(max))
    if min is not None:
        x = t.tutti_maximum(x, min)
    return x if max is None else t.tutti_minimum(x, max)


@op("clamp_min")
def clamp_min(t, x, min):
    return t.tutti_maximum(x, min)


@op("clamp_max")
def clamp_max(t, x, max):
    return t.tutti_minimum(x, max)


@op("pow")
@op("float_power")
def pow(t, x, exponent):
    if not hasattr(x, "p"):
        raise Left("the base is a number")
    return t.tutti_pow(x, exponent) if hasattr(exponent, "p") else t.tutti_pow_scalar(x, float(exponent))


@op("div", "no_rounding_mode")
@op("true_divide")
def div(t, a, b, rounding_mode=None):
    return t.tutti_div(a, b)


@op("minimum")
@op("min", "binary")
def minimum(t, a, b):
    return t.tutti_minimum(a, b)


@op("maximum")
@op("max", "binary")
def maximum(t, a, b):
    return t.tutti_maximum(a, b)


@op("where")
def where(t, a, condition, b):
    return t.tutti_where(condition, a, b)


@op("masked_fill")
def masked_fill(t, x, mask, value):
    if hasattr(value, "p"):
        return t.tutti_where(mask, value, x)
    return t.tutti_masked_fill(x, mask, ctypes.c_double(value))


def comparison(name):
    def compare(t, a, b):
        if hasattr(b, "p"):
            return getattr(t, "tutti_" + name)(a, b)
        return getattr(t, f"tutti_{name}_scalar")(a, float(b))

    op(name)(compare)


for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    comparison(name)
