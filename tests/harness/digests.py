# digests.py -- reads the record of digests, and defines its digest and two numbers once more.   SPDX-License-Identifier: MIT
import json
import re
import struct

MASK = (1 << 64) - 1


def record(run, rank):
    """{(step, shard, kind, name, micro-batch or occurrence): (digest, norm, dot)}; later lines replace earlier ones."""
    found = {}
    for line in open(f"{run}/digests/rank-{rank}.jsonl"):
        line = json.loads(line)
        seen = {}
        for kind, name, digest, norm, dot, *micro in line.get("entries", []):
            nth = seen.setdefault((kind, name), 0)
            seen[kind, name] += 1
            found[line["step"], line.get("shard"), kind, name, micro[0] if micro else nth] = (digest, norm, dot)
    return found


def steps(run):
    """The recorded steps of rank 0."""
    return sorted({k[0] for k in record(run, 0) if k[2] != "initial"})


def added(records):
    """The same keys without [BEGIN:END]: (elements named so, sums of digests, of squares and of dots, how many ranks have all of it)."""
    sums = {}
    for r in records:
        for (step, shard, kind, name, nth), (digest, norm, dot) in r.items():
            piece = re.match(r"(.*)\[(\d+):(\d+)\]$", name)
            key = step, shard, kind, piece[1] if piece else name, nth
            n, digests, norm2, dots, copies = sums.get(key, (0, 0, 0.0, 0.0, 0))
            n += int(piece[3]) - int(piece[2]) if piece else 0
            sums[key] = n, digests + int(digest, 16), norm2 + norm * norm, dots + dot, copies + (piece is None)
    return {k: (*total, copies or 1) for k, (*total, copies) in sums.items()}


def splitmix64(number):
    z = (number + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def sign(k):
    return -1 if splitmix64(k // 64) >> k % 64 & 1 else 1


def digest(values):
    """Of F32."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    keys = [splitmix64(j) & 0xFFFFFFFF | 1 for j in range(1024)]
    total = sum(w * keys[i % 1024] * (splitmix64(1024 + i // 1024) | 1) for i, w in enumerate(words))
    return f"{total & MASK:016x}"


def numbers(values):
    """Norm and dot."""
    table = [sign(k) for k in range(1024)]
    dot = sum(x * table[i % 1024] * sign(1024 + i // 1024) for i, x in enumerate(values))
    return sum(x * x for x in values) ** 0.5, dot


def safetensors(path):
    """{name: values} of F32 tensors."""
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    return {name: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__" and t["dtype"] == "F32"}
