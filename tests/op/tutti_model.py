"""Models of libtutti beside those of PyTorch, for the tests here.   SPDX-License-Identifier: MIT"""
import argparse
import ctypes
import os
import sys

import torch
from tutti_structs import AdamOpts, Array, Device, P, Shape, StepOpts, dtypes_of, shape_of

FAILED = []  # lines


def check(what, ours, theirs, tolerance, least=0.0):
    """The largest difference, relative to the largest element or `least`."""
    scale = max(theirs.abs().max().item(), least) or 1
    error = (ours.double() - theirs.double()).abs().max().item() / scale
    if not error <= tolerance:
        FAILED.append(f"{what}: off by {error:.2g} of the largest, tolerance {tolerance:g}")
    return error


def arguments():
    """The library that the command line names, and a function that says whether a case is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=os.path.join(os.environ.get("BUILD_DIR", "build"), "libtutti.so"))
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    return Tutti(os.path.abspath(given.library)), lambda name: not given.names or name in given.names


def finish():
    for line in FAILED[:20]:
        print("FAILED", line, file=sys.stderr)
    sys.exit(1 if FAILED else 0)


class Tutti:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.tutti_last_error.restype = self.c.tutti_tensor_name.restype = ctypes.c_char_p
        for name in ("tutti_input", "tutti_model_module", "tutti_model_forward", "tutti_cross_entropy", "tutti_module_state",
                     "tutti_module_parameter", "tutti_tensor_grad", "tutti_reshape"):
            getattr(self.c, name).restype = P
        self.c.tutti_module_n_state.restype = ctypes.c_size_t
        self.c.tutti_tensor_shape.restype = Shape
        self.c.tutti_item.restype = ctypes.c_float
        self.dtypes = dtypes_of(self.c)
        self.cx = P()
        self.must(self.c.tutti_ctx_new(ctypes.byref(self.cx), Device(0, 0), None))

    def must(self, status):
        if status != 0:
            raise RuntimeError(self.c.tutti_last_error().decode())

    def input(self, x):
        dtype = self.dtypes[b"F32" if x.dtype == torch.float32 else b"I64"]
        return P(self.c.tutti_input(self.cx, Array(x.data_ptr(), shape_of(x.shape), dtype)))


class Model:
    def __init__(self, t, name, opts):
        self.t, self.p, self.classes = t, P(), opts.classes
        t.must(t.c.tutti_model_new(ctypes.byref(self.p), t.cx, name.encode(), ctypes.byref(opts)))
        self.module = P(t.c.tutti_model_module(self.p))

    def state(self):
        n = self.t.c.tutti_module_n_state(self.module)
        tensors = [P(self.t.c.tutti_module_state(self.module, ctypes.c_size_t(i))) for i in range(n)]
        return {self.t.c.tutti_tensor_name(p).decode(): p for p in tensors}

    def shape(self, p):
        shape = self.t.c.tutti_tensor_shape(p)
        return [shape.d[i] for i in range(shape.n)]

    def load(self, state):
        for name, p in self.state().items():
            self.t.must(self.t.c.tutti_tensor_write(p, P(state[name].contiguous().data_ptr())))

    def read(self, p, like, gradient=False):
        x = torch.empty_like(like).contiguous()
        function = self.t.c.tutti_tensor_grad_read if gradient else self.t.c.tutti_tensor_read
        self.t.must(function(p, P(x.data_ptr())))
        return x

    def logits(self, x, like, evaluate):
        opts = StepOpts(evaluate, not evaluate)
        self.t.c.tutti_step_begin(self.t.cx, ctypes.byref(opts))
        y = self.read(P(self.t.c.tutti_model_forward(self.p, self.t.input(x))), like)
        self.t.c.tutti_step_end(self.t.cx)
        return y

    def backward(self, x, labels):
        """The loss of a training step, whose gradients are kept."""
        self.t.c.tutti_module_zero_grad(self.module)
        self.t.c.tutti_step_begin(self.t.cx, None)
        y = P(self.t.c.tutti_model_forward(self.p, self.t.input(x)))
        if x.dtype == torch.int64:  # of a language model: [N,T,V]
            y, labels = P(self.t.c.tutti_reshape(y, shape_of([x.numel(), self.classes]))), labels.reshape(-1)
        loss = P(self.t.c.tutti_cross_entropy(y, self.t.input(labels)))
        self.t.must(self.t.c.tutti_backward(loss))
        value = self.t.c.tutti_item(loss)
        self.t.c.tutti_step_end(self.t.cx)
        return value


def language_loss(model, x, y):
    """Of a model of transformers."""
    return torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())


def ten_steps(t, label, theirs, ours, x, y):
    """Of AdamW, on one batch of tokens: the largest error, and pairs of losses."""
    p = P()
    t.must(t.c.tutti_adamw_new(ctypes.byref(p), ours.module, ctypes.byref(AdamOpts(lr=1e-3, weight_decay=0.01))))
    optim = torch.optim.AdamW([q for q in theirs.parameters() if q.requires_grad], lr=1e-3, weight_decay=0.01)
    losses = []
    for _ in range(10):
        optim.zero_grad()
        loss = language_loss(theirs, x, y)
        loss.backward()
        optim.step()
        losses.append((ours.backward(x, y), loss.item()))
        t.must(t.c.tutti_optim_step(p))
    t.c.tutti_optim_free(p)
    return check(f"{label}: losses of ten steps", *torch.tensor(losses).unbind(1), 1e-5), losses
