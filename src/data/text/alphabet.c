/* alphabet.c -- GPT-2's alphabet: a printable character for each byte.   SPDX-License-Identifier: MIT
 *
 * Bytes that are printable in Latin-1 are themselves; the others, in their order, the characters from U+0100 on. */
#include "data/text/alphabet.h"

#include <string.h>

static bool is_itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

void tutti__alphabet_character(uint8_t byte, char text[4])
{
    int code = byte;

    if (!is_itself(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !is_itself(b);
    }
    memset(text, 0, 4);
    if (code < 0x80) {
        text[0] = (char)code;
    } else {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
    }
}

/* The byte of a character below U+0800; -1: none. */
static int byte_of(int code)
{
    static const uint8_t others[] = {
        /* the bytes that are not themselves */
        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,
        17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,  31,  32,  127,
        128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144,
        145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};

    if (code < 256)
        return is_itself(code) ? code : -1;
    return code < 256 + (int)sizeof others ? others[code - 256] : -1;
}

size_t tutti__alphabet_bytes(const char *text, uint8_t *bytes, bool *other_p)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t n = 0;

    *other_p = false;
    while (*p) {
        const bool two = (*p & 0xe0) == 0xc0;
        const int code = *p < 0x80 ? *p : two ? (*p & 0x1f) << 6 | (p[1] & 0x3f) : 0x800;
        const int byte = byte_of(code);

        if (byte < 0) {
            *other_p = true;
            memcpy(bytes, text, strlen(text));
            return strlen(text);
        }
        bytes[n++] = (uint8_t)byte;
        p += two ? 2 : 1;
    }
    return n;
}
