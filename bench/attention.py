"""Attention alone beside PyTorch's, forward and backward, one process each, in turn: A B A B.   SPDX-License-Identifier: MIT

    python bench/attention.py [--library build/libtutti.so] [--threads 1] [--rounds 3] [--cpu] [--full] [--bf16] [FORM:BATCH:TOKENS...]

12 heads of 64; causal, with --full not. FORM `heads` is scaled_dot_product_attention of q, k, v [N,12,T,64] here and there. `packed` is what a model
has, [N,T,2304] as its linear layer gives it: multi_head_attention here; split, transpose, scaled_dot_product_attention, transpose there.
Medians over the rounds of each process's median; --cpu: of CPU time, for one thread on a busy machine. MiB: the process's peak less what it had with the
sources. --bf16: sources of 16 bit. TUTTI_CPU_ISA=avx2 and ATEN_CPU_CAPABILITY=avx2 make both do without AVX-512."""
import argparse
import array
import ctypes
import os
import random
import resource
import statistics
import subprocess
import sys
import time

HEADS, SIZE = 12, 64
CASES = [f"{form}:{case}" for form in ("heads", "packed") for case in ("4:64", "4:256", "1:1024", "1:4096")]


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(step, clock, seconds=4.0):
    """Medians of forward's and of both times, ms."""
    step()
    before, end, times = peak_mib(), time.monotonic() + seconds, []
    step()
    while len(times) < 5 or (time.monotonic() < end and len(times) < 300):
        begin = clock()
        between = step()
        times.append(((between - begin) * 1e3, (clock() - begin) * 1e3))
    print(*(statistics.median(t[i] for t in times) for i in (0, 1)), max(before, peak_mib()))


def shapes_of(form, batch, tokens):
    return [(batch, tokens, 3 * HEADS * SIZE)] if form == "packed" else [(batch, HEADS, tokens, SIZE)] * 3


def ours(library, form, batch, tokens, given, clock):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/op"))
    from tutti_structs import Array, AttentionOpts, CtxOpts, Device, P, dtypes_of, shape_of

    c = ctypes.CDLL(library)
    c.tutti_last_error.restype = ctypes.c_char_p
    for name in ("tutti_input_with_grad", "tutti_scaled_dot_product_attention", "tutti_multi_head_attention", "tutti_mean", "tutti_cast"):
        getattr(c, name).restype = P
    dtypes = dtypes_of(c)

    def must(status):
        if status:
            sys.exit(c.tutti_last_error().decode())

    shapes = shapes_of(form, batch, tokens)
    count = batch * tokens * HEADS * SIZE * 3 // len(shapes)
    data = [array.array("f", (random.gauss(0, 1) for _ in range(4096))) * (count // 4096) for _ in shapes]
    sources = [Array(d.buffer_info()[0], shape_of(s), dtypes[b"F32"]) for d, s in zip(data, shapes)]
    opts, cx = ctypes.byref(AttentionOpts(is_causal=not given.full)), P()
    must(c.tutti_ctx_new(ctypes.byref(cx), Device(0, 0), ctypes.byref(CtxOpts(threads=given.threads))))
    base = peak_mib()

    def step():
        c.tutti_step_begin(cx, None)
        x = [P(c.tutti_input_with_grad(cx, s)) for s in sources]
        if given.bf16:
            x = [P(c.tutti_cast(t, dtypes[b"BF16"])) for t in x]
        y = c.tutti_multi_head_attention(x[0], None, None, HEADS, opts) if form == "packed" else c.tutti_scaled_dot_product_attention(*x, opts)
        between = clock()
        must(c.tutti_backward(P(c.tutti_mean(P(y)))))
        c.tutti_step_end(cx)
        return between

    timed(step, clock)
    print(base)


def theirs(form, batch, tokens, given, clock):
    import torch

    torch.set_num_threads(given.threads)
    attend = torch.nn.functional.scaled_dot_product_attention
    sources = [torch.randn(s, requires_grad=True) for s in shapes_of(form, batch, tokens)]
    base = peak_mib()

    def step():
        x = [s.to(torch.bfloat16) if given.bf16 else s for s in sources]
        if form == "packed":
            x = [t.view(batch, tokens, HEADS, SIZE).transpose(1, 2) for t in x[0].split(HEADS * SIZE, dim=2)]
        y = attend(*x, is_causal=not given.full)
        if form == "packed":
            y = y.transpose(1, 2).contiguous().view(batch, tokens, HEADS * SIZE)
        between = clock()
        for s in sources:
            s.grad = None
        y.mean().backward()
        return between

    timed(step, clock)
    print(base)


def run(arguments):
    out = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(out.stderr[-600:])
    forward, both, peak, base = (float(v) for v in out.stdout.split()[-4:])
    return forward, both - forward, peak - base


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/libtutti.so")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--one", choices=["ours", "theirs"])
    parser.add_argument("cases", nargs="*", default=CASES)
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.monotonic
    if given.one:
        form, batch, tokens = given.cases[0].split(":")
        at = form, int(batch), int(tokens), given, clock
        return ours(os.path.abspath(given.library), *at) if given.one == "ours" else theirs(*at)
    print(f"{'form, batch, tokens':<18}{'Tutti ms':>20}{'PyTorch ms':>20}{'ratio':>22}{'MiB':>8}{'PyTorch':>9}")
    print(f"{'':<18}{'forward':>10}{'backward':>10}{'forward':>10}{'backward':>10}{'forward':>8}{'backw.':>7}{'both':>7}")
    for case in given.cases:
        at = [*(a for a in sys.argv[1:] if a not in given.cases), case, "--one"]
        pairs = [(run([*at, "ours"]), run([*at, "theirs"])) for _ in range(given.rounds)]
        (f, b, m), (tf, tb, tm) = ([statistics.median(p[k][i] for p in pairs) for i in range(3)] for k in (0, 1))
        print(f"{case:<18}{f:>10.2f}{b:>10.2f}{tf:>10.2f}{tb:>10.2f}{tf / f:>8.2f}{tb / b:>7.2f}{(tf + tb) / (f + b):>7.2f}{m:>8.1f}{tm:>9.1f}",
              flush=True)


if __name__ == "__main__":
    main()
