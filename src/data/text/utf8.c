/* utf8.c -- whether bytes are UTF-8.   SPDX-License-Identifier: MIT */
#include "data/text/tokens.h"

#include <string.h>

/* The character at p, of n bytes that are left; 0: invalid, or cut off. */
static size_t character(const uint8_t *p, size_t n)
{
    char text[5] = {0}; /* whose end is no continuation byte */

    memcpy(text, p, n < 4 ? n : 4);
    return (size_t)tutti__utf8_bytes(text);
}

size_t tutti__utf8_valid(const uint8_t *p, size_t n)
{
    size_t i = 0, bytes;
    uint64_t eight;

    while (i < n) {
        if (n - i >= 8) {
            memcpy(&eight, p + i, 8);
            if (!(eight & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        bytes = character(p + i, n - i);
        if (bytes == 0)
            break;
        i += bytes;
    }
    return i;
}
