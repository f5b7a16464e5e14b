#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_digits.py DIGITS.CSV.GZ > src/data/format/digits.inc

Writes the 8x8 digits as rows of text that C can include: a digit of base 17 (0..9, A..G) for each of the 64 pixels,
then the label. The input is scikit-learn's digits.csv.gz: 1797 lines of 64 pixels (0..16) and a label, commas between.
Also prints, to standard error, the mean and the standard deviation of the training part that digits.c states.
"""
import gzip
import math
import sys

HEAD = """\
/* digits.inc -- 8x8 digits: "Optical Recognition of Handwritten Digits", its test part, 1797 images.
 *
 * SPDX-License-Identifier: CC-BY-4.0
 *
 * E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository, https://doi.org/10.24432/C50P49
 * Licence of the data: Creative Commons Attribution 4.0 International (CC BY 4.0),
 * https://creativecommons.org/licenses/by/4.0/. Changed: written as text, nothing left out.
 *
 * Made by tools/make_digits.py; do not edit. A row is an image: 64 pixels, row by row, in base 17 (0..9, A..G),
 * then the label. */
"""


def main():
    with gzip.open(sys.argv[1], "rt") as lines:
        rows = [[int(float(field)) for field in line.split(",")] for line in lines]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    assert all(0 <= pixel <= 16 for row in rows for pixel in row[:64])
    assert all(0 <= row[64] <= 9 for row in rows)
    print(HEAD, end="")
    for row in rows:
        print('"' + "".join("0123456789ABCDEFG"[value] for value in row) + '",')
    train = [(p * 255 + 8) // 16 / 255 for i, row in enumerate(rows) if i % 5 != 4 for p in row[:64]]
    mean = sum(train) / len(train)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in train) / len(train))
    print(f"training part: mean {mean:.4f}, standard deviation {deviation:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
