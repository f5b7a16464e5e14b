"""Files that llm.c's train_gpt2 reads: GPT-2 124M with random weights, and random tokens.   SPDX-License-Identifier: MIT

    python bench/peer/llmc_inputs.py CHECKOUT

Writes gpt2_124M.bin, and tokens in place of Tiny Shakespeare, into llm.c's folder, unless they are there. The formats are in llm.c's
train_gpt2.py: a header of 256 integers, then numbers."""
import array
import os
import random
import sys

CONTEXT, VOCAB, LAYERS, HEADS, WIDTH, PADDED = 1024, 50257, 12, 12, 768, 50304
TOKENS = 40000


def header(*fields):
    return array.array("i", [*fields, *[0] * (256 - len(fields))])


def write_model(path):
    noise = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 20)))
    ones, zeros = array.array("f", [1.0]) * (LAYERS * WIDTH), array.array("f", bytes(4 * LAYERS * 4 * WIDTH))
    c, n = WIDTH, LAYERS

    def normal(file, count):
        while count > 0:
            noise[: min(count, len(noise))].tofile(file)
            count -= len(noise)

    with open(path + ".part", "wb") as file:
        header(20240326, 3, CONTEXT, VOCAB, LAYERS, HEADS, WIDTH, PADDED).tofile(file)
        normal(file, PADDED * c)
        normal(file, CONTEXT * c)
        for weight, bias in ((0, n * c), (n * 3 * c * c, n * 3 * c), (n * c * c, n * c), (0, n * c), (n * 4 * c * c, n * 4 * c), (n * 4 * c * c, n * c), (0, c)):
            if weight:
                normal(file, weight)
            else:
                ones[:bias].tofile(file)
            zeros[:bias].tofile(file)
    os.replace(path + ".part", path)


def write_tokens(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        header(20240520, 1, TOKENS).tofile(file)
        array.array("H", (random.randrange(VOCAB) for _ in range(TOKENS))).tofile(file)


def main():
    folder = sys.argv[1]
    random.seed(0)
    model = os.path.join(folder, "gpt2_124M.bin")
    if not os.path.exists(model):
        write_model(model)
    for part in ("train", "val"):
        path = os.path.join(folder, "dev/data/tinyshakespeare", f"tiny_shakespeare_{part}.bin")
        if not os.path.exists(path):
            write_tokens(path)


if __name__ == "__main__":
    main()
