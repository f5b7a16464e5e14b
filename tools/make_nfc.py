#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_nfc.py > src/data/text/nfc.inc

Writes the tables of Unicode's normalization form C, of Python's unicodedata: canonical decompositions, compositions, and classes
of combining characters. Syllables of Hangul are left to arithmetic.
"""
import sys
import unicodedata


def rows(name, kind, entries):
    print(f"static const {kind} {name}[] = {{")
    line = "   "
    for entry in entries:
        text = " {" + ", ".join(f"0x{value:x}" for value in entry) + "},"
        if len(line) + len(text) > 118:
            print(line)
            line = "   "
        line += text
    print(line + "\n};\n")


def main():
    decompositions, compositions, classes = [], [], []
    for code in range(sys.maxunicode + 1):
        if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF:
            continue
        mapping = unicodedata.decomposition(chr(code))
        if mapping and not mapping.startswith("<"):
            parts = [int(part, 16) for part in mapping.split()]
            decompositions.append((code, parts[0], parts[1] if len(parts) > 1 else 0))
            if len(parts) == 2 and unicodedata.normalize("NFC", chr(parts[0]) + chr(parts[1])) == chr(code):
                compositions.append((parts[0], parts[1], code))
        combining = unicodedata.combining(chr(code))
        if combining and classes and classes[-1][1] == code - 1 and classes[-1][2] == combining:
            classes[-1] = (classes[-1][0], code, combining)
        elif combining:
            classes.append((code, code, combining))
    print(f"/* nfc.inc -- tables of Unicode {unicodedata.unidata_version} for normalization form C.   SPDX-License-Identifier: MIT")
    print(" *\n * Made by tools/make_nfc.py; do not edit. */")
    print("/* A character, and what it is composed of; 0: of one. */")
    rows("DECOMPOSITIONS", "nfc_row", decompositions)
    print("/* Two characters, and what they are composed to. */")
    rows("COMPOSITIONS", "nfc_row", sorted(compositions))
    print("/* From a character to another, and their combining class. */")
    rows("CLASSES", "nfc_row", classes)


if __name__ == "__main__":
    main()
