"""records.py -- reads event files and W&B's files with nothing but the standard library.   SPDX-License-Identifier: MIT

Another reading of the formats than the program's own: every CRC is verified, and messages are taken apart by their field
numbers, as (number, value) pairs.
"""
import json
import struct
import zlib


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """[(number, value)]: an int of a varint, bytes of the rest."""
    out, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            n = {1: 8, 5: 4}.get(kind) or varint()
            assert kind in (1, 2, 5) and at + n <= len(data), "not a message"
            value = data[at : at + n]
            at += n
        out.append((key >> 3, value))
    return out


def one(pairs, number, default=None):
    return next((v for n, v in pairs if n == number), default)


def every(pairs, number):
    return [v for n, v in pairs if n == number]


def double(value):
    return struct.unpack("<d", value)[0]


def doubles(value):
    return list(struct.unpack("<%dd" % (len(value) // 8), value))


def real(value):
    return struct.unpack("<f", value)[0]


# ---- TensorBoard


def events(path):
    """The messages of an event file."""
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        n, crc = struct.unpack_from("<QI", data, at)
        assert crc == crc32c(data[at : at + 8]), "%s: CRC of a length at %d" % (path, at)
        message = data[at + 12 : at + 12 + n]
        assert struct.unpack_from("<I", data, at + 12 + n)[0] == crc32c(message), "%s: CRC of a record at %d" % (path, at)
        yield fields(message)
        at += 16 + n


def event_file(path):
    """What a file tells: versions, starts (steps), scalars {tag: [(step, value)]}, histograms, texts, hparams."""
    told = {"order": [], "starts": [], "scalars": {}, "histograms": {}, "texts": {}, "hparams": [], "times": []}
    for event in events(path):
        step = one(event, 2, 0)
        told["times"].append(double(one(event, 1)))
        if one(event, 3):
            told["order"].append(one(event, 3).decode())
        if one(event, 7):
            told["order"].append("session log")
            assert one(fields(one(event, 7)), 1) == 1
            told["starts"].append(step)
        if not one(event, 5):
            continue
        for value in map(fields, every(fields(one(event, 5)), 1)):
            tag = one(value, 1).decode()
            if one(value, 2) is not None:
                told["scalars"].setdefault(tag, []).append((step, real(one(value, 2))))
            elif one(value, 5):
                told["histograms"].setdefault(tag, []).append((step, fields(one(value, 5))))
            elif one(value, 8):
                assert one(fields(one(fields(one(value, 9)), 1)), 1) == b"text"
                told["texts"][tag] = one(fields(one(value, 8)), 8).decode()
            else:
                plugin = fields(one(fields(one(value, 9)), 1))
                assert one(plugin, 1) == b"hparams"
                told["hparams"].append((tag, fields(one(plugin, 2))))
    return told


def hparams(told):
    """{key: value} of the session's start, and the status of its end (None: none)."""
    out, status = {}, None
    for tag, message in told["hparams"]:
        if tag == "_hparams_/session_start_info":
            for entry in map(fields, every(fields(one(message, 3)), 1)):
                value = fields(one(entry, 2))
                key = one(entry, 1).decode()
                number, text, flag = one(value, 2), one(value, 3), one(value, 4)
                out[key] = double(number) if number is not None else text.decode() if text is not None else bool(flag)
        else:
            assert tag == "_hparams_/session_end_info"
            status = one(fields(one(message, 4)), 1)
    return out, status


# ---- Weights & Biases

KINDS = {2: "history", 3: "summary", 5: "config", 6: "files", 7: "stats", 17: "run", 18: "exit", 20: "final", 21: "header",
         22: "footer", 26: "environment"}


def wandb(path):
    """[(kind, fields)] of a .wandb file."""
    data, at, parts, out = open(path, "rb").read(), 7, [], []
    assert data[:7] == b":W&B\xe1\xbe\x00", "header of %s" % path
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            assert not any(data[at : at + left])
            at += left
            continue
        crc, n, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + 7 : at + 7 + n]
        assert crc == zlib.crc32(data[at + 6 : at + 7] + chunk) and len(chunk) == n, "CRC at %d" % at
        assert (kind in (1, 2)) == (not parts), "order of chunks"
        parts.append(chunk)
        at += 7 + n
        if kind in (1, 4):
            record = fields(b"".join(parts))
            parts = []
            assert one(record, 1) == len(out) + 1, "numbers of records"
            number, value = next((n, v) for n, v in record if n in KINDS)
            out.append((KINDS[number], fields(value)))
    assert not parts, "a record without its end"
    return out


def items(message, number=1):
    """{key: value} of a history row (or a summary, or a configuration)."""
    return {one(i, 1).decode(): json.loads(one(i, 16)) for i in map(fields, every(message, number))}
