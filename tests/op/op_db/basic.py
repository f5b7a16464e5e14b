"""Adaptors: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
from torch_op_db import Left, op


@op("add")
def add(t, a, b, alpha=1):
    if alpha != 1:
        b = t.tutti_scale(b, float(alpha))
    return t.tutti_add(a, b)


@op("sub")
def sub(t, a, b, alpha=1):
    if alpha != 1:
        b = t.tutti_scale(b, float(alpha))
    return t.tutti_sub(a, b)


@op("mul")
def mul(t, a, b):
    return t.tutti_mul(a, b)


@op("nn.functional.relu")
def relu(t, x, inplace=False):
    return t.tutti_relu(x)


@op("sigmoid")
def sigmoid(t, x):
    return t.tutti_sigmoid(x)


@op("tanh")
def tanh(t, x):
    return t.tutti_tanh(x)


@op("nn.functional.gelu")
def gelu(t, x, approximate="none"):
    return t.tutti_gelu(x, 1 if approximate == "tanh" else 0)


@op("expand")
def expand(t, x, sizes):
    return t.tutti_expand(x, t.shape(sizes))


@op("permute")
def permute(t, x, dims):
    return t.tutti_permute(x, t.dims(dims))


@op("transpose")
def transpose(t, x, dim0, dim1):
    return t.tutti_transpose(x, dim0, dim1)


@op("cat")
def cat(t, tensors, dim=0):
    if any(0 in x.shape for x in tensors):
        raise Left("an empty tensor of one dimension among others")
    return t.tutti_cat(t.array(tensors), len(tensors), dim)


@op("reshape")
def reshape(t, x, sizes):
    return t.tutti_reshape(x, t.shape(sizes))


@op("view")
def view(t, x, sizes):
    return t.tutti_reshape(x, t.shape(sizes))


@op("nn.functional.linear")
def linear(t, x, weight, bias=None):
    if weight.dim() == 1:
        raise Left("a weight of one dimension")
    return t.tutti_functional_linear(x, weight, bias)

