"""Operations against PyTorch's own sample inputs.   SPDX-License-Identifier: MIT

    python torch_op_db.py [--library libtutti.so] [--table] [--record FILE] [NAME...]

For each operation that tests/op/op_db/*.py adapt, all F32 sample inputs of PyTorch's op_db
(torch.testing._internal.common_methods_invocations) are run here and there: results and gradients. An adaptor is

    @op("permute")                      # the name in op_db; op("norm", "variant") for one of several variants
    def permute(t, x, dims):            # the arguments of a sample: sample.input, *sample.args, **sample.kwargs
        return t.tutti_permute(x, t.dims(dims))

where tensors are Tensor objects (x.shape, x.torch), and t calls functions of libtutti: Python's ints, floats, bools and Tensors are
passed as int, float, bool and tutti_tensor *; t.i64(n), t.dims([...]), t.shape([...]), t.array([tensors]) and
t.struct({"stride": ctypes.c_int, ...}, by_reference, stride=2) make other arguments. It returns a Tensor or a list of them. `raise Left("reason")` leaves a sample out: it must say what our options do not express. What is left
out by the harness: more than 6 dimensions; a dimension of size 0 other than the first.

Results agree if |ours - theirs| <= 1e-5 + 1e-5 |theirs|, gradients if <= 1e-5 + 1e-4 |theirs| (op(..., tolerance=k) multiplies all of these).
--record writes samples of each operation for a test without PyTorch (recorded_calls.py).
Prints a line per operation; exit code 1 if a sample fails, 77 if this Python has no PyTorch."""
import argparse
import collections
import ctypes
import glob
import importlib.util
import math
import os
import sys

import recorded_calls
from tutti_structs import MAX_DIMS, Array, Device, Dims, Shape, dtypes_of, shape_of

try:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as e:
    print(f"skipped: {sys.executable} has no PyTorch with torch.testing ({e}); TUTTI_TEST_PYTHON names another interpreter")
    sys.exit(77)

F32, I64 = None, None  # set from the library: the values of tutti_dtype


class Left(Exception):
    """A sample that our options do not express."""


class Refused(Exception):
    """A poisoned result."""


def check_sizes(sizes):
    if len(sizes) > MAX_DIMS:
        raise Left(f"more than {MAX_DIMS} dimensions")
    if 0 in sizes[1:]:
        raise Left("a dimension other than the first has no elements")


class Tensor:
    """A tensor of the open step; `torch` is its source or None."""

    def __init__(self, p, source=None):
        self.p, self.torch = p, source

    @property
    def shape(self):
        return tuple(self.torch.shape)

    def dim(self):
        return self.torch.dim()


class Tutti:
    """Calls functions of libtutti in one context."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.tutti_last_error.restype = ctypes.c_char_p
        names = dtypes_of(self.library)
        global F32, I64
        F32, I64 = names[b"F32"], names[b"I64"]
        self.cx = ctypes.c_void_p()
        self.must(self.library.tutti_ctx_new(ctypes.byref(self.cx), Device(0, 0), None))

    def must(self, status):
        if status != 0:
            raise Refused(self.library.tutti_last_error().decode())

    def begin(self):
        self.alive = []
        self.inputs, self.calls = [], []  # of this step: for --record
        self.library.tutti_step_begin(self.cx, None)

    def end(self):
        self.library.tutti_step_end(self.cx)

    # ---- arguments ----
    i64 = ctypes.c_int64
    f32 = ctypes.c_float

    def dims(self, dims):
        dims = [dims] if isinstance(dims, int) else list(dims)
        if len(dims) > MAX_DIMS:
            raise Left(f"more than {MAX_DIMS} dimensions")
        return Dims(len(dims), (ctypes.c_int * MAX_DIMS)(*dims))

    def shape(self, sizes):
        if len(sizes) > MAX_DIMS:
            raise Left(f"more than {MAX_DIMS} dimensions")
        return shape_of(list(sizes))

    def array(self, tensors):
        """tutti_tensor *const *"""
        a = (ctypes.c_void_p * len(tensors))(*[t.p if t is not None else None for t in tensors])
        self.alive.append(a)
        return a

    def struct(self, fields, by_reference=False, **values):
        """fields: {"name": ctypes type}, all of the C struct's, in order; those without a value are 0."""
        kind = type("S", (ctypes.Structure,), {"_fields_": list(fields.items())})
        value = kind(**values)
        self.alive.append(value)
        return ctypes.byref(value) if by_reference else value

    # ---- calls ----
    def __getattr__(self, name):
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p

        def call(*args):
            given = []
            for a in args:
                if isinstance(a, Tensor):
                    a = ctypes.c_void_p(a.p)
                elif isinstance(a, bool):
                    a = ctypes.c_bool(a)
                elif isinstance(a, int):
                    a = ctypes.c_int(a)
                elif isinstance(a, float):
                    a = ctypes.c_float(a)
                given.append(a)
            result = Tensor(function(*given))
            self.calls.append((name, given, result))
            return result

        return call

    def tensor(self, x, needs_grad=True):
        """A torch tensor as an input; booleans become floats."""
        check_sizes(x.shape)
        if tuple(x.shape) == (0,) and x.dtype != torch.int64:
            raise Left("an input of one dimension without elements")
        if x.dtype in (torch.bool,):
            x = x.to(torch.float32)
        if x.dtype not in (torch.float32, torch.int64):
            raise Left(f"{str(x.dtype).replace('torch.', '')} elements")
        data = x.detach().contiguous()
        grad = needs_grad and x.dtype == torch.float32 and x.requires_grad
        if data.numel() == 0:  # torch gives no memory
            data = torch.zeros(1, dtype=data.dtype)
        self.alive.append(data)
        array = Array(data.data_ptr(), shape_of(x.shape), F32 if x.dtype == torch.float32 else I64)
        function = self.library.tutti_input_with_grad if grad else self.library.tutti_input
        function.restype = ctypes.c_void_p
        result = Tensor(function(self.cx, array), x)
        self.inputs.append((result, x.detach(), bool(grad)))
        return result

    def read(self, t):
        """Its elements as a torch tensor."""
        p = ctypes.c_void_p(t.p)
        self.must(self.library.tutti_tensor_status(p))
        self.library.tutti_tensor_shape.restype = Shape
        shape = self.library.tutti_tensor_shape(p)
        dtype = torch.int64 if self.library.tutti_tensor_dtype(p) == I64 else torch.float32
        y = torch.empty([shape.d[i] for i in range(shape.n)], dtype=dtype)
        self.must(self.library.tutti_tensor_read(p, ctypes.c_void_p(y.data_ptr())))
        return y

    def gradients(self, outputs, seeds, inputs):
        """The gradients of sum(output * seed)."""
        loss = None
        for y, seed in zip(outputs, seeds):
            term = self.tutti_mul(y, self.tensor(seed, False))
            term = self.tutti_scale(self.tutti_mean(term), float(seed.numel()))
            loss = term if loss is None else self.tutti_add(loss, term)
        self.must(self.library.tutti_backward(ctypes.c_void_p(loss.p)))
        grads = []
        for x in inputs:
            g = torch.zeros(x.shape)
            p = ctypes.c_void_p(x.p)
            self.library.tutti_tensor_grad.restype = ctypes.c_void_p
            if g.numel() and self.library.tutti_tensor_grad(p):
                self.must(self.library.tutti_tensor_grad_read(p, ctypes.c_void_p(g.data_ptr())))
            grads.append(g)
        return grads


# ---- Adaptors -------------------------------------------------------------------------------------------

ADAPTORS = {}
TOLERANCES = collections.defaultdict(lambda: 1)


def op(name, variant="", tolerance=1):
    def register(function):
        ADAPTORS[(name, variant)] = function
        TOLERANCES[(name, variant)] = tolerance
        return function

    return register


def load_adaptors():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "op_db")
    module = type(sys)("torch_op_db")
    module.op, module.Left, module.ctypes, module.torch = op, Left, ctypes, torch
    sys.modules["torch_op_db"] = module
    for path in sorted(glob.glob(os.path.join(folder, "*.py"))):
        spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# ---- A sample -------------------------------------------------------------------------------------------


def tree(value, function):
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(tree(v, function) for v in value) if type(value) in (list, tuple) else [tree(v, function) for v in value]
    if isinstance(value, dict):
        return {k: tree(v, function) for k, v in value.items()}
    return value


def outputs_of(result):
    return [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]


def agree(ours, theirs, rtol, tolerance, what):
    if tuple(ours.shape) != tuple(theirs.shape):
        raise AssertionError(f"{what}: the shape is {list(ours.shape)}, expected {list(theirs.shape)}")
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    same = (a - b).abs() <= tolerance * (1e-5 + rtol * b.abs())
    same |= (a == b) | (a.isnan() & b.isnan())
    if not bool(same.all()):
        worst = torch.where(same, torch.zeros_like(a), (a - b).abs().nan_to_num(math.inf)).flatten()
        at = int(worst.argmax())
        raise AssertionError(f"{what}: element {at} is {a.flatten()[at]:.9g}, expected {b.flatten()[at]:.9g}")


def recorded(x):
    x = x.detach().contiguous()
    dtype = "I64" if x.dtype == torch.int64 else "F32"
    return {"shape": list(x.shape), "dtype": dtype, "data": recorded_calls.text_of(x.to(torch.int64 if dtype == "I64" else torch.float32).numpy().tobytes())}


def record_of(t, ours, theirs):
    """What recorded_calls.py needs to make the calls of this step again, but for gradients."""
    numbers, calls, made = {}, [], 0

    def count(addresses):
        nonlocal made
        for p in addresses:
            numbers.setdefault(p, made)
            made += 1

    count(y.p for y, _, _ in t.inputs)
    for name, args, y in t.calls:
        calls.append([name, [recorded_calls.argument_of(a, numbers) for a in args]])
        results = [p for a, c in zip(args, calls[-1][1]) if "results" in c for p in a]
        count([y.p, *results])
    inputs = [{**recorded(x.to(torch.float32) if x.dtype == torch.bool else x), "grad": grad} for _, x, grad in t.inputs]
    return {"inputs": inputs, "calls": calls, "outputs": [numbers[y.p] for y in ours], "results": [recorded(y) for y in theirs],
            "seeded": [], "seeds": [], "gradients": []}, numbers


def run_sample(t, info, adaptor, sample, tolerance, record=False):
    """The record, if wanted."""
    sources = []

    def ours_of(x):
        y = t.tensor(x)
        sources.append(y)
        return y

    t.begin()
    try:
        args = tree([sample.input, *sample.args], ours_of)
        kwargs = tree(sample.kwargs, ours_of)
        result = adaptor(t, *args, **kwargs)
        ours = [r for r in (result if isinstance(result, (list, tuple)) else [result])]
        theirs = outputs_of(info.op(sample.input, *sample.args, **sample.kwargs))
        if sample.output_process_fn_grad is not None:
            theirs = outputs_of(sample.output_process_fn_grad(theirs if len(theirs) > 1 else theirs[0]))
        theirs = theirs[: len(ours)]
        for i, (a, b) in enumerate(zip(ours, theirs)):
            check_sizes(b.shape)
            agree(t.read(a), b.detach(), 1e-5, tolerance, f"result {i}")
        done, numbers = record_of(t, ours, theirs) if record else (None, None)
        leaves = [x for x in sources if x.torch.dtype == torch.float32 and x.torch.requires_grad]
        if not any(b.requires_grad for b in theirs) or not leaves or not all(b.numel() for b in theirs):
            return done
        pairs = [(a, b) for a, b in zip(ours, theirs) if b.requires_grad]
        generator = torch.Generator().manual_seed(7)
        seeds = [torch.rand(b.shape, generator=generator) + 0.5 for _, b in pairs]
        wanted = torch.autograd.grad([b for _, b in pairs], [x.torch for x in leaves], seeds, allow_unused=True)
        found = t.gradients([a for a, _ in pairs], seeds, leaves)
        for i, (a, b) in enumerate(zip(found, wanted)):
            agree(a, torch.zeros_like(a) if b is None else b, 1e-4, tolerance, f"gradient {i}")
        if record:
            done["seeded"], done["seeds"] = [numbers[a.p] for a, _ in pairs], [recorded(x) for x in seeds]
            done["gradients"] = [[numbers[x.p], recorded(torch.zeros(x.shape) if b is None else b)] for x, b in zip(leaves, wanted)]
        return done
    finally:
        t.end()


def describe(sample):
    def text(v):
        if isinstance(v, torch.Tensor):
            return f"{str(v.dtype).replace('torch.', '')}{list(v.shape)}"
        if isinstance(v, (list, tuple)):
            return "(" + ", ".join(text(e) for e in v) + ")"
        return repr(v)

    kwargs = [f"{k}={text(v)}" for k, v in sample.kwargs.items()]
    return ", ".join([text(sample.input), *[text(a) for a in sample.args], *kwargs])


# Of each operation so many samples are recorded, the smallest of those with different numbers of dimensions and arguments.
RECORDED, RECORDED_ELEMENTS = 3, 2000


def some_of(records):
    kinds = {}
    for r in records:
        elements = sum(math.prod(x["shape"]) for x in r["inputs"] + r["results"])
        kind = tuple(len(x["shape"]) for x in r["inputs"]), tuple(name for name, _ in r["calls"])
        if r["calls"] and 0 < elements <= RECORDED_ELEMENTS:
            kinds.setdefault(kind, (elements, r))
            kinds[kind] = min(kinds[kind], (elements, r), key=lambda pair: pair[0])
    return [r for _, r in sorted(kinds.values(), key=lambda pair: -pair[0])[:RECORDED]]


def run_operation(t, info, adaptor, tolerance, records=None):
    """passed, failures [(sample, message)], reasons {text: count}; with `records` appends those of some samples"""
    passed, failures, reasons = 0, [], collections.Counter()
    mine = []
    torch.manual_seed(0)
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd):
        try:
            try:
                record = run_sample(t, info, adaptor, sample, tolerance, records is not None)
            except recorded_calls.Unrecordable:
                record = run_sample(t, info, adaptor, sample, tolerance)
            passed += 1
            if record:
                mine.append({"name": info.name, "text": describe(sample), "tolerance": tolerance, **record})
        except Left as e:
            reasons[str(e)] += 1
        except (AssertionError, Refused, TypeError) as e:
            failures.append((describe(sample), f"{type(e).__name__ if isinstance(e, TypeError) else ''}{e}"))
    if records is not None:
        records += some_of(mine)
    return passed, failures, reasons


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=os.path.join(os.environ.get("BUILD_DIR", "build"), "libtutti.so"))
    parser.add_argument("--table", action="store_true", help="print a table in Markdown")
    parser.add_argument("--record", metavar="FILE", help="write samples for recorded_calls.py")
    parser.add_argument("names", nargs="*", help="of op_db: only these")
    given = parser.parse_args()
    load_adaptors()
    t = Tutti(os.path.abspath(given.library))
    totals = collections.Counter()
    known = set()
    records = [] if given.record else None
    if given.table:
        print("| operation of op_db | run | passed | left out |\n|---|---|---|---|")
    for info in op_db:
        key = (info.name, info.variant_test_name)
        known.add(key)
        if key not in ADAPTORS or (given.names and info.name not in given.names):
            continue
        passed, failures, reasons = run_operation(t, info, ADAPTORS[key], TOLERANCES[key], records)
        name = info.name + (f" ({info.variant_test_name})" if info.variant_test_name else "")
        left = "; ".join(f"{n}: {reason}" for reason, n in sorted(reasons.items()))
        run = passed + len(failures)
        totals.update(operations=1, run=run, passed=passed, left=sum(reasons.values()))
        print(f"| `{name}` | {run} | {passed} | {left} |" if given.table else f"{name}: {passed} of {run} passed; left out {sum(reasons.values())} ({left})")
        for sample, message in failures[:5]:
            print(f"  FAILED {name}({sample}): {message}", file=sys.stderr)
    if given.record:
        recorded_calls.write(given.record, records)
    for key in sorted(set(ADAPTORS) - known):
        print(f"  note: this PyTorch's op_db has no {key[0]} {key[1]}", file=sys.stderr)
    print(f"{'' if given.table else 'in all: '}{totals['operations']} operations, {totals['passed']} of {totals['run']} samples passed, "
          f"{totals['left']} left out", file=sys.stderr if given.table else sys.stdout)
    sys.exit(0 if totals["passed"] == totals["run"] and totals["run"] else 1)


if __name__ == "__main__":
    main()
