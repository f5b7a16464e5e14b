"""Recurrent layers against torch.nn's: results, last states and all gradients.   SPDX-License-Identifier: MIT

    python torch_recurrent.py [--library libtutti.so]

op_db has no recurrent layers, so that torch_op_db.py cannot run them. Results and gradients may differ by 1e-5 of the largest element.
Exit code 1 if a combination fails, 77 if this Python has no PyTorch."""
import argparse
import ctypes
import itertools
import os
import sys

from torch_op_db import Tensor, Tutti, torch

SIZES = ((1, 1, 1, 1), (5, 3, 4, 6), (17, 9, 33, 20), (40, 12, 64, 48))  # T, N, K, H
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
FIELDS = {name: ctypes.c_void_p for name in (*WEIGHTS, "h0", "c0")}
FIELDS |= {"batch_first": ctypes.c_bool, "reverse": ctypes.c_bool, "relu": ctypes.c_bool, "reserved": ctypes.c_uint64 * 4}


def difference(ours, theirs):
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))


def theirs_of(layer, x, h0, c0, batch_first, reverse):
    """y, h_n, and of an LSTM c_n."""
    steps = 1 if batch_first else 0
    state = None if h0 is None else (h0[None], c0[None]) if c0 is not None else h0[None]
    y, last = layer(x.flip(steps) if reverse else x, state)
    y = y.flip(steps) if reverse else y
    return [y, *[s[0] for s in (last if isinstance(last, tuple) else [last])]]


def ours_of(t, kind, x, named, options):
    args = t.struct(FIELDS, True, **{name: s.p for name, s in named.items()}, **options)
    states = [ctypes.c_void_p() for _ in range(2 if kind == "lstm" else 1)]
    y = getattr(t, f"tutti_functional_{kind}")(x, args, *[ctypes.byref(s) for s in states])
    return [y, *[Tensor(s.value) for s in states]]


def largest_difference(t, kind, size, bias, batch_first, state, reverse, relu):
    T, N, K, H = size
    layer = getattr(torch.nn, kind.upper())(K, H, bias=bias, batch_first=batch_first, **({"nonlinearity": "relu"} if relu else {}))
    named = {name: getattr(layer, f"{name}_l0") for name in WEIGHTS[: 4 if bias else 2]}
    for name in ("h0", "c0")[: (2 if kind == "lstm" else 1) if state else 0]:
        named[name] = torch.randn(N, H, requires_grad=True)
    x = torch.randn((N, T, K) if batch_first else (T, N, K), requires_grad=True)
    theirs = theirs_of(layer, x, named.get("h0"), named.get("c0"), batch_first, reverse)
    seeds = [torch.randn_like(y) for y in theirs]
    wanted = torch.autograd.grad(theirs, [x, *named.values()], seeds)
    t.begin()
    sources = [t.tensor(s) for s in (x, *named.values())]
    options = {"batch_first": batch_first, "reverse": reverse, "relu": relu}
    ours = ours_of(t, kind, sources[0], dict(zip(named, sources[1:])), options)
    found = [difference(t.read(a), b.detach()) for a, b in zip(ours, theirs)]
    found += [difference(a, b) for a, b in zip(t.gradients(ours, seeds, sources), wanted)]
    t.end()
    return max(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=os.path.join(os.environ.get("BUILD_DIR", "build"), "libtutti.so"))
    t = Tutti(os.path.abspath(parser.parse_args().library))
    torch.manual_seed(0)
    both = (False, True)
    n, failed, worst = 0, 0, 0.0
    for case in itertools.product(("lstm", "gru", "rnn"), SIZES, both, both, both, both, both):
        if case[-1] and case[0] != "rnn":
            continue
        found = largest_difference(t, *case)
        n, worst = n + 1, max(worst, found)
        if not found <= 1e-5:
            failed += 1
            print(f"FAILED {case[0]} T,N,K,H={case[1]} bias, batch_first, state, reverse, relu={case[2:]}: {found:.2g}", file=sys.stderr)
    print(f"{n - failed} of {n} combinations passed; largest difference {worst:.2g}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
