#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_shakespeare.py TINYSHAKESPEARE.TXT > src/data/format/shakespeare.z

Compresses the text (zlib's format, level 9), as shakespeare.c reads it. The input is the file that char-rnn and nanoGPT train on,
https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt: 1,115,394 bytes.
"""
import hashlib
import sys
import zlib

SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def main():
    with open(sys.argv[1], "rb") as file:
        text = file.read()
    digest = hashlib.sha256(text).hexdigest()
    if digest != SHA256:
        sys.exit(f"{sys.argv[1]} has the SHA-256 {digest}, expected {SHA256}")
    sys.stdout.buffer.write(zlib.compress(text, 9))


if __name__ == "__main__":
    main()
