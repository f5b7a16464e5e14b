"""Training steps of models beside torchvision's, one process each, in turn: A B A B.   SPDX-License-Identifier: MIT

    python bench/models.py [--library build/libtutti.so] [--threads 1] [--rounds 3] [--recompute] [MODEL:SIDE:BATCH...]

A step is forward, cross-entropy, backward and SGD with momentum, on one batch in memory. PyTorch is the best of eager, channels last and
torch.compile (TUTTI_BENCH_COMPILE=0 leaves that out). Medians over the rounds of each process's median; memory is the process's peak less what it
had before the model was made. --recompute: beside ourselves with recomputed blocks instead, without PyTorch. `lstm` is two layers of 256 over 64 steps of 64 features, batch BATCH, with torch.nn.LSTM."""
import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import time

CASES = ["resnet18:32:64", "resnet18:224:8", "resnet50:224:8", "vit:224:8", "mobilenet_v2:224:8"]
CLASSES = 10


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(step, seconds=6.0):
    for _ in range(3):
        step()
    times, end = [], time.monotonic() + seconds
    while len(times) < 5 or (time.monotonic() < end and len(times) < 200):
        begin = time.monotonic()
        step()
        times.append((time.monotonic() - begin) * 1e3)
    return statistics.median(times)


def ours(library, model, side, batch, threads, recompute):
    import array
    import random

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/op"))
    from tutti_structs import Array, CtxOpts, Device, ModelOpts, P, SgdOpts, dtypes_of, shape_of

    c = ctypes.CDLL(library)
    c.tutti_last_error.restype = ctypes.c_char_p
    for name in ("tutti_input", "tutti_model_module", "tutti_model_forward", "tutti_cross_entropy"):
        getattr(c, name).restype = P
    dtypes = dtypes_of(c)

    def must(status):
        if status:
            sys.exit(c.tutti_last_error().decode())

    channels, height, width = (1, 64, 64) if model == "lstm" else (3, side, side)
    x = array.array("f", (random.gauss(0, 1) for _ in range(batch * channels * height * width)))
    y = array.array("q", (i % CLASSES for i in range(batch)))
    cx, m, optim = P(), P(), P()
    must(c.tutti_ctx_new(ctypes.byref(cx), Device(0, 0), ctypes.byref(CtxOpts(threads=threads))))
    before = peak_mib()
    opts = ModelOpts(channels, height, width, CLASSES, recompute=bool(recompute))
    if model == "lstm":
        opts.layers, opts.hidden = 2, 256
    must(c.tutti_model_new(ctypes.byref(m), cx, model.encode(), ctypes.byref(opts)))
    module = P(c.tutti_model_module(m))
    must(c.tutti_sgd_new(ctypes.byref(optim), module, ctypes.byref(SgdOpts(0.001, 0.9))))
    images = Array(x.buffer_info()[0], shape_of((batch, channels, height, width)), dtypes[b"F32"])
    labels = Array(y.buffer_info()[0], shape_of((batch,)), dtypes[b"I64"])

    def step():
        c.tutti_module_zero_grad(module)
        c.tutti_step_begin(cx, None)
        logits = P(c.tutti_model_forward(m, P(c.tutti_input(cx, images))))
        must(c.tutti_backward(P(c.tutti_cross_entropy(logits, P(c.tutti_input(cx, labels))))))
        must(c.tutti_optim_step(optim))
        c.tutti_step_end(cx)

    print(timed(step), peak_mib() - before)


def theirs(model, side, batch, threads, variant):
    import torch

    sys.path += [p for p in os.environ.get("TORCHVISION", "").split(":") if p]
    torch.set_num_threads(threads)
    if model == "lstm":
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.fc = torch.nn.LSTM(64, 256, 2, batch_first=True), torch.nn.Linear(256, CLASSES)

            def forward(self, x):
                return self.fc(self.lstm(x)[0][:, -1])

        x = torch.randn(batch, 64, 64)
    else:
        import torchvision

        x = torch.randn(batch, 3, side, side)
    before = peak_mib()
    if model == "lstm":
        net = Net()
    elif model == "vit":
        net = torchvision.models.VisionTransformer(side, 16, 12, 3, 192, 768, num_classes=CLASSES)
    else:
        net = torchvision.models.get_model(model, num_classes=CLASSES)
    y = torch.arange(batch) % CLASSES
    if variant == "last":
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optim = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    forward = torch.compile(net) if variant == "compile" else net

    def step():
        optim.zero_grad()
        torch.nn.functional.cross_entropy(forward(x), y).backward()
        optim.step()

    print(timed(step), peak_mib() - before)


def run(arguments):
    out = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if out.returncode:
        print(out.stderr[-600:], file=sys.stderr)
        return None
    return [float(v) for v in out.stdout.split()[-2:]]


def beside_recompute(given):
    print(f"{'model, side, batch':<24}{'ms':>8}{'recompute':>11}{'ratio':>7}{'MiB':>9}{'recompute':>11}{'ratio':>7}")
    for case in given.cases:
        at = ["--ours", os.path.abspath(given.library), *case.split(":"), str(given.threads)]
        rows = [[run([*at, flag]) for flag in "01"] for _ in range(given.rounds)]
        a, b, ma, mb = (statistics.median(r[k][i] for r in rows) for i in (0, 1) for k in (0, 1))
        print(f"{case:<24}{a:>8.1f}{b:>11.1f}{b / a:>7.2f}{ma:>9.0f}{mb:>11.0f}{mb / ma:>7.2f}", flush=True)


def main():
    if sys.argv[1:2] == ["--ours"]:
        return ours(sys.argv[2], sys.argv[3], *(int(v) for v in sys.argv[4:8]))
    if sys.argv[1:2] == ["--theirs"]:
        return theirs(sys.argv[2], *(int(v) for v in sys.argv[3:6]), sys.argv[6])
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/libtutti.so")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("cases", nargs="*", default=[*CASES, "lstm:0:32"])
    given = parser.parse_args()
    if given.recompute:
        return beside_recompute(given)
    print(f"{'model, side, batch':<24}{'Tutti ms':>10}{'PyTorch ms':>12}  {'variant':<9}{'ratio':>6}{'Tutti MiB':>11}{'PyTorch MiB':>12}{'ratio':>7}")
    for case in given.cases:
        model, side, batch = case.split(":")
        at = [model, side, batch, str(given.threads)]
        variants = ["plain", *(["last"] if model not in ("lstm", "vit") else []),
                    *(["compile"] if os.environ.get("TUTTI_BENCH_COMPILE") != "0" and model != "lstm" else [])]
        first = {v: r for v in variants if (r := run(["--theirs", *at, v]))}
        best = min(first, key=lambda v: first[v][0])
        mine, other = [], [first[best]]
        for i in range(given.rounds):
            mine.append(run(["--ours", os.path.abspath(given.library), *at, "0"]))
            if i:
                other.append(run(["--theirs", *at, best]))
        a, b = (statistics.median(r[0] for r in rows) for rows in (mine, other))
        ma, mb = (statistics.median(r[1] for r in rows) for rows in (mine, other))
        print(f"{case:<24}{a:>10.1f}{b:>12.1f}  {best:<9}{b / a:>6.2f}{ma:>11.0f}{mb:>12.0f}{ma / mb:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
