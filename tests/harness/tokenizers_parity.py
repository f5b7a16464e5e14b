#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tokenizers_parity.py LIBTUTTI.SO TEXT FOLDER: tutti_tokenizer_* beside Hugging Face's tokenizers.
tokenizers_parity.py --record TEXT FILE: three small tokenizers with tokens of 150 strings, as tests/golden/tokenizers.json.gz.

Trains small byte-level BPE tokenizers on TEXT, in the forms that tokenizer.json has, and compares tokens and decoded text of 1,000
odd strings. With TUTTI_TEST_TIKTOKEN (GPT-2's ranks, as gpt2.tiktoken of openai-whisper) that vocabulary too. Prints the time
of both on TEXT, in one thread."""
import base64
import ctypes
import gzip
import json
import os
import random
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Tutti:
    def __init__(self, library, path):
        self.lib = lib = ctypes.CDLL(library)
        lib.tutti_last_error.restype = ctypes.c_char_p
        lib.tutti_tokenizer_vocab.restype = lib.tutti_tokenizer_end_of_text.restype = ctypes.c_int64
        lib.tutti_tokenizer_stream.restype = ctypes.c_size_t
        lib.tutti_tokenizer_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t]
        self.libc = ctypes.CDLL(None)
        self.libc.free.argtypes = [ctypes.c_void_p]
        self.t = ctypes.c_void_p()
        if lib.tutti_tokenizer_open(ctypes.byref(self.t), path.encode()) != 0:
            raise ValueError(lib.tutti_last_error().decode())

    def vocab(self):
        return self.lib.tutti_tokenizer_vocab(self.t)

    def encode(self, text):
        data = text.encode()
        tokens, n = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        if self.lib.tutti_tokenizer_encode(self.t, data, ctypes.c_size_t(len(data)), ctypes.byref(tokens), ctypes.byref(n)) != 0:
            raise ValueError(self.lib.tutti_last_error().decode())
        ids = tokens[:n.value]
        self.libc.free(tokens)
        return ids

    def decode(self, ids):
        tokens = (ctypes.c_int64 * len(ids))(*ids)
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        if self.lib.tutti_tokenizer_decode(self.t, tokens, ctypes.c_size_t(len(ids)), ctypes.byref(text), ctypes.byref(n)) != 0:
            raise ValueError(self.lib.tutti_last_error().decode())
        data = ctypes.string_at(text, n.value)
        self.libc.free(text)
        return data

    def stream(self, ids):
        state, out, text = ctypes.create_string_buffer(16), ctypes.create_string_buffer(8192), b""
        for token in [*ids, -1]:
            n = self.lib.tutti_tokenizer_stream(self.t, state, token, out, len(out))
            assert n < len(out)
            text += out.raw[:n]
        return text


def strings(count):
    rng = random.Random(5)
    ranges = [(0x20, 0x7e), (0x09, 0x0d), (0x00, 0x1f), (0x7f, 0xa0), (0xa1, 0x17f), (0x300, 0x36f), (0x41, 0x7a), (0x300, 0x345), (0xac00, 0xac40), (0x1161, 0x1175), (0x11a8, 0x11c2), (0x1f00, 0x1fff), (0xfb1d, 0xfb4e), (0x1d15e, 0x1d164), (0x370, 0x3ff), (0x400, 0x4ff),
              (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1680, 0x1680), (0x180b, 0x180e),
              (0x2000, 0x206f), (0x2070, 0x209f), (0x2100, 0x214f), (0x2150, 0x218f), (0x2460, 0x24ff), (0x2e80, 0x2fdf), (0x3000, 0x30ff),
              (0x4e00, 0x4fff), (0xac00, 0xacff), (0xe000, 0xe0ff), (0xfe00, 0xfeff), (0xff00, 0xffef), (0xfff0, 0xffff),
              (0x10000, 0x100ff), (0x1d400, 0x1d7ff), (0x1f300, 0x1f6ff), (0x1f900, 0x1f9ff), (0x20000, 0x200ff), (0xe0020, 0xe007f),
              (0x10fff0, 0x10ffff)]
    words = ["don't", "we'LL", "I'd", "IT'S", "it\u017f", "'\u017f", "'s", " 12345", "3.14159", "caf\u00e9", "cafe\u0301", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
             "\U0001f1e9\U0001f1ea", "\u180e", "\u0085", "\u00a0", "\r\n", "\r\n\r\n", "   ", "\t\t", "<|endoftext|>", "<|endof", "<|special|>", " <|special|> ",
             "hello", "World", "\u2028", "\ufeff", "na\u00efve", "\u00bd", "\u2163", "\u0661\u0662\u0663", "a" * 70, "ab" * 40, "?!?!", "()", "\x00", "the king"]
    fixed = ["", " ", "\n", "a", "\x00", "  a", "a  ", "a  b", "\n\n\n", " \n ", "\u200d", "'", "''s", "x" * 3000, " " * 500 + "x", "ab" * 2000]
    for text in fixed:
        yield text
    for i in range(count - len(fixed)):
        parts = []
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.5:
                parts.append(rng.choice(words))
            else:
                low, high = rng.choice(ranges)
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 6))))
            if rng.random() < 0.3:
                parts.append(rng.choice([" ", "  ", "\n", "\t"]))
        yield "".join(parts)


def train(pre, text, size, added=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens([AddedToken("<|special|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(content, normalized=True) for content in added])
    return tokenizer


def compare(name, ours, theirs):
    bad = 0
    for text in strings(1000):
        want, got = theirs.encode(text, add_special_tokens=False).ids, ours.encode(text)
        back = theirs.decode(want, skip_special_tokens=False)
        same = got == want and ours.decode(want).decode("utf-8", "replace") == back and ours.stream(want).decode() == back
        if not same and (bad := bad + 1) <= 5:
            print(f"{name}: {text!r}: tokens {got} expected {want}, text {ours.decode(want)!r} and {ours.stream(want)!r} expected {back!r}")
    rng = random.Random(6)
    for _ in range(300):  # tokens in no order: bytes that are no characters
        ids = [rng.randrange(ours.vocab()) for _ in range(rng.randrange(1, 20))]
        back = theirs.decode(ids, skip_special_tokens=False)
        if (ours.decode(ids).decode("utf-8", "replace") != back or ours.stream(ids).decode() != back) and (bad := bad + 1) <= 5:
            print(f"{name}: tokens {ids}: text {ours.decode(ids)!r} and {ours.stream(ids)!r} expected {back!r}")
    print(f"{name}: {bad} differences, vocabulary of {ours.vocab()}")
    assert ours.vocab() == theirs.get_vocab_size()
    return bad


def measure(name, ours, theirs, text):
    n = len(text.encode())
    begin = time.perf_counter()
    want = theirs.encode(text, add_special_tokens=False).ids
    middle = time.perf_counter()
    got = ours.encode(text)
    end = time.perf_counter()
    assert got == want
    print(f"{name}: {n} bytes, tokenizers {n / (middle - begin) / 1e6:.1f} MB/s, tutti {n / (end - middle) / 1e6:.1f} MB/s")


def tiktoken(path):
    """The same as Hugging Face's: merges from ranks."""
    ranks = {}
    with open(path) as lines:
        for line in lines:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    alphabet = dict(zip([b for b in range(256)], [None] * 256))
    others = 0
    for b in range(256):
        itself = 33 <= b <= 126 or 161 <= b <= 172 or b >= 174
        alphabet[b] = chr(b if itself else 256 + others)
        others += not itself
    name = lambda token: "".join(alphabet[b] for b in token)  # noqa: E731
    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) == 1:
            continue
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            rank, i = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
            assert rank < ranks[token]
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        merges.append((name(parts[0]), name(parts[1])))
    tokenizer = Tokenizer(models.BPE(vocab={name(t): r for t, r in ranks.items()}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def record(source, path):
    with open(source, newline="") as file:
        text = file.read()[:200000]
    kinds = {"gpt2": train(pre_tokenizers.ByteLevel(add_prefix_space=False), text, 500), "llama3": train(llama3(), text, 500, ["the king"]),
             "nfc": train(llama3(), text, 300)}
    kinds["nfc"].normalizer = normalizers.NFC()
    rows = []
    for name, tokenizer in kinds.items():
        samples = [sample for sample in strings(400) if "\0" not in sample and len(sample) < 300][:150]
        cases = [[sample, ids, tokenizer.decode(ids, skip_special_tokens=False)]
                 for sample in samples for ids in [tokenizer.encode(sample, add_special_tokens=False).ids]]
        rows.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "cases": cases})
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
        file.write(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode())


def llama3():
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def main():
    if sys.argv[1] == "--record":
        record(*sys.argv[2:])
        return
    library, source, folder = sys.argv[1:]
    with open(source, newline="") as file:
        text = file.read()
    kinds = {
        "gpt2": train(pre_tokenizers.ByteLevel(add_prefix_space=False), text, 1500),
        "prefix": train(pre_tokenizers.ByteLevel(add_prefix_space=True), text, 600, ["hello", "he", " World"]),
        "llama3": train(llama3(), text, 1500, ["the king"]),
        "digits": train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), text, 400),
        "removed": train(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}+"), "removed", invert=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), text, 400),
        "literal": train(pre_tokenizers.Sequence([pre_tokenizers.Split("a.", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]), text, 400),
    }
    kinds["nfc"] = train(llama3(), text, 600, ["the king"])
    kinds["nfc"].normalizer = normalizers.NFC()
    bad = 0
    for name, theirs in kinds.items():
        path = os.path.join(folder, name + ".json")
        theirs.save(path)
        bad += compare(name, Tutti(library, path), theirs)
    with open(os.path.join(folder, "llama3.json")) as file:  # merges as strings, and words that are tokens need none
        spec = json.load(file)
    spec["model"]["ignore_merges"] = True
    spec["model"]["vocab"]["Citizen"] = len(spec["model"]["vocab"])
    for token in spec["added_tokens"][1:]:
        token["id"] += 1
    spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
    path = os.path.join(folder, "strings.json")
    with open(path, "w") as file:
        json.dump(spec, file)
    bad += compare("strings", Tutti(library, path), Tokenizer.from_file(path))
    os.makedirs(os.path.join(folder, "pair"), exist_ok=True)
    kinds["gpt2"].model.save(os.path.join(folder, "pair"))
    pair = Tutti(library, os.path.join(folder, "pair"))
    for sample in strings(200):
        if "<|" not in sample:
            assert pair.encode(sample) == kinds["gpt2"].encode(sample).ids, sample
    measure("gpt2", Tutti(library, os.path.join(folder, "gpt2.json")), kinds["gpt2"], text)
    measure("llama3", Tutti(library, os.path.join(folder, "llama3.json")), kinds["llama3"], text)
    ranks = os.environ.get("TUTTI_TEST_TIKTOKEN")
    if ranks:
        theirs = tiktoken(ranks)
        bad += compare("gpt2.tiktoken", Tutti(library, ranks), theirs)
        measure("gpt2.tiktoken", Tutti(library, ranks), theirs, text)
    else:
        print("GPT-2's own ranks: not tried (TUTTI_TEST_TIKTOKEN names gpt2.tiktoken)")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
