"""Calls of operations, recorded with what PyTorch gave, and made again without PyTorch.   SPDX-License-Identifier: MIT

    python recorded_calls.py [--library libtutti.so] FILE

torch_op_db.py --record FILE writes FILE: for each operation some of its samples that have passed, each with its inputs, the
functions of libtutti that its adaptor called and their arguments, and PyTorch's results and gradients. Here they are compared by
the tolerances of torch_op_db.py. Exit code 1 if a sample fails."""
import argparse
import array
import base64
import ctypes
import gzip
import json
import math
import os
import sys

from tutti_structs import Array, Device, Shape, dtypes_of, shape_of

SIMPLE = {c._type_: c for c in vars(ctypes).values() if isinstance(getattr(c, "_type_", None), str)}


# ---- Writing --------------------------------------------------------------------------------------------


class Unrecordable(Exception):
    """An argument that a file cannot hold."""


def text_of(data):
    return base64.b64encode(bytes(data)).decode()


def kind_of(c):
    """A ctypes type as JSON: its code, [its element's, length] or a list of its fields'."""
    if issubclass(c, ctypes.Structure):
        return {"fields": [[name, kind_of(f)] for name, f in c._fields_]}
    if issubclass(c, ctypes.Array):
        return [kind_of(c._type_), c._length_]
    return c._type_


def has_pointer(kind):
    if isinstance(kind, dict):
        return any(has_pointer(k) for _, k in kind["fields"])
    return has_pointer(kind[0]) if isinstance(kind, list) else kind == "P"


def argument_of(a, tensors):
    """An argument of a call as JSON. tensors: {address: number} of those made before."""

    def number(address):
        if address is not None and address not in tensors:
            raise Unrecordable
        return None if address is None else tensors[address]

    if a is None or isinstance(a, ctypes.c_void_p):
        return {"tensor": number(None if a is None else a.value)}
    if isinstance(a, ctypes.Array) and a._type_ is ctypes.c_void_p:
        if a and all(p not in tensors for p in a):  # memory in which the function has put results
            return {"results": len(a)}
        return {"tensors": [number(p) for p in a]}
    if isinstance(a, bytes):
        return {"text": a.decode()}
    by_reference = type(a).__name__ == "CArgObject"
    value = a._obj if by_reference else a
    kind = kind_of(type(value))
    if isinstance(kind, dict) and has_pointer(kind):
        pointers = {name: number(getattr(value, name)) for name, k in kind["fields"] if k == "P"}
        if any(has_pointer(k) and k != "P" for _, k in kind["fields"]):
            raise Unrecordable
        return {"kind": kind, "bytes": text_of(value), "reference": by_reference, "pointers": pointers}
    return {"kind": kind, "bytes": text_of(value), "reference": by_reference}


def write(path, samples):
    with gzip.GzipFile(path, "wb", mtime=0) as f:
        f.write(json.dumps(samples, separators=(",", ":")).encode())


# ---- Reading --------------------------------------------------------------------------------------------


def type_of(kind):
    if isinstance(kind, dict):
        return type("S", (ctypes.Structure,), {"_fields_": [(name, type_of(k)) for name, k in kind["fields"]]})
    return type_of(kind[0]) * kind[1] if isinstance(kind, list) else SIMPLE[kind]


class Replay:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.tutti_last_error.restype = ctypes.c_char_p
        self.library.tutti_tensor_shape.restype = Shape
        self.names = dtypes_of(self.library)
        self.cx, device = ctypes.c_void_p(), Device()
        text = os.environ.get("TUTTI_TEST_DEVICE") or "cpu"
        self.must(self.library.tutti_device_parse(ctypes.byref(device), text.encode(), 0))
        self.must(self.library.tutti_ctx_new(ctypes.byref(self.cx), device, None))

    def must(self, status):
        if status != 0:
            raise AssertionError(self.library.tutti_last_error().decode())

    def call(self, name, *args):
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p
        return function(*args)

    def input(self, given, needs_grad):
        data = array.array("f" if given["dtype"] == "F32" else "q", base64.b64decode(given["data"]) or bytes(8))
        self.alive.append(data)
        where = Array(data.buffer_info()[0], shape_of(given["shape"]), self.names[given["dtype"].encode()])
        return self.call("tutti_input_with_grad" if needs_grad else "tutti_input", self.cx, where)

    def argument(self, a, tensors):
        def tensor(i):
            return None if i is None else tensors[i]

        if "tensor" in a:
            return ctypes.c_void_p(tensor(a["tensor"]))
        if "text" in a:
            return a["text"].encode()
        if "results" in a:
            value = (ctypes.c_void_p * a["results"])()
        elif "tensors" in a:
            value = (ctypes.c_void_p * len(a["tensors"]))(*map(tensor, a["tensors"]))
        else:
            value = type_of(a["kind"]).from_buffer_copy(base64.b64decode(a["bytes"]))
            for name, i in a.get("pointers", {}).items():
                setattr(value, name, tensor(i))
        self.alive.append(value)
        return ctypes.byref(value) if a.get("reference") else value

    def agree(self, p, read, expected, rtol, tolerance, what):
        shape = self.library.tutti_tensor_shape(ctypes.c_void_p(p))
        sizes = [shape.d[i] for i in range(shape.n)]
        if sizes != expected["shape"]:
            raise AssertionError(f"{what}: the shape is {sizes}, expected {expected['shape']}")
        wanted = array.array("f" if expected["dtype"] == "F32" else "q", base64.b64decode(expected["data"]))
        found = array.array(wanted.typecode, wanted)
        if wanted:
            self.must(read(ctypes.c_void_p(p), ctypes.c_void_p(found.buffer_info()[0])))
        for i, (a, b) in enumerate(zip(found, wanted)):
            if a != b and not (math.isnan(a) and math.isnan(b)) and not abs(a - b) <= tolerance * (1e-5 + rtol * abs(b)):
                raise AssertionError(f"{what}: element {i} is {a:.9g}, expected {b:.9g}")

    def loss(self, sample, tensors):
        """sum(output * seed)"""
        loss = None
        for y, seed in zip(sample["seeded"], sample["seeds"]):
            term = self.call("tutti_mul", ctypes.c_void_p(tensors[y]), ctypes.c_void_p(self.input(seed, False)))
            count = ctypes.c_float(float(math.prod(seed["shape"])))
            term = self.call("tutti_scale", ctypes.c_void_p(self.call("tutti_mean", ctypes.c_void_p(term))), count)
            loss = term if loss is None else self.call("tutti_add", ctypes.c_void_p(loss), ctypes.c_void_p(term))
        return loss

    def run(self, sample):
        self.alive = []
        self.library.tutti_step_begin(self.cx, None)
        try:
            tensors = [self.input(i, i["grad"]) for i in sample["inputs"]]
            for name, args in sample["calls"]:
                given = [self.argument(a, tensors) for a in args]
                tensors.append(self.call(name, *given))
                tensors += [p for a, value in zip(args, given) if "results" in a for p in value]
            for y, expected in zip(sample["outputs"], sample["results"]):
                p = ctypes.c_void_p(tensors[y])
                self.must(self.library.tutti_tensor_status(p))
                self.agree(tensors[y], self.library.tutti_tensor_read, expected, 1e-5, sample["tolerance"], "result")
            if not sample["gradients"]:
                return
            self.must(self.library.tutti_backward(ctypes.c_void_p(self.loss(sample, tensors))))
            for x, expected in sample["gradients"]:
                if self.call("tutti_tensor_grad", ctypes.c_void_p(tensors[x])):
                    self.agree(tensors[x], self.library.tutti_tensor_grad_read, expected, 1e-4, sample["tolerance"], "gradient")
                elif any(array.array("f", base64.b64decode(expected["data"]))):
                    raise AssertionError("gradient: there is none")
        finally:
            self.library.tutti_step_end(self.cx)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default=os.path.join(os.environ.get("BUILD_DIR", "build"), "libtutti.so"))
    parser.add_argument("file")
    given = parser.parse_args()
    replay = Replay(os.path.abspath(given.library))
    with gzip.open(given.file, "rb") as f:
        samples = json.load(f)
    failures = 0
    for sample in samples:
        try:
            replay.run(sample)
        except AssertionError as e:
            failures += 1
            print(f"FAILED {sample['name']}({sample['text']}): {e}", file=sys.stderr)
    operations = len({sample["name"] for sample in samples})
    print(f"{operations} operations, {len(samples) - failures} of {len(samples)} samples passed")
    sys.exit(1 if failures or not samples else 0)


if __name__ == "__main__":
    main()
