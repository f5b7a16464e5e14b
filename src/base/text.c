/* text.c -- texts from outside made fit for a terminal.   SPDX-License-Identifier: MIT
 *
 * Names of files and tensors are bytes that somebody else chose: a newline forges a line of a log, an escape sequence
 * moves the cursor, U+202E turns the rest of the line round. */
#include "base/base.h"

#include <string.h>

/* How many bytes the character of UTF-8 at p has; 0: it is none. What ends too early ends in the NUL, which continues
 * nothing. */
int tutti__utf8_bytes(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    int n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90)) /* longer than need be */
        return 0;
    if ((p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf4 && p[1] >= 0x90)) /* no character */
        return 0;
    return n;
}

/* Control characters, C1 (U+0080 to U+009F) included, and those that change the direction of writing. */
static bool is_harmful(const unsigned char *p, int n)
{
    if (n == 0)
        return true;
    if (n == 1)
        return p[0] < 0x20 || p[0] == 0x7f;
    if (n == 2)
        return p[0] == 0xc2 && p[1] < 0xa0;
    /* U+200E, U+200F, U+2028 to U+202E; U+2066 to U+2069 */
    return n == 3 && p[0] == 0xe2 &&
           ((p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
            (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

char *tutti__printable(char *to, size_t capacity, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t used = 0;

    while (*p && used + 1 < capacity) {
        int n = tutti__utf8_bytes((const char *)p);
        char piece[24] = "";

        if (!is_harmful(p, n))
            memcpy(piece, p, (size_t)n);
        else if (*p == '\n' || *p == '\t' || *p == '\r')
            snprintf(piece, sizeof piece, "\\%c", *p == '\n' ? 'n' : *p == '\t' ? 't' : 'r');
        else
            for (int i = 0; i < (n ? n : 1); i++)
                snprintf(piece + 4 * i, sizeof piece - 4 * (size_t)i, "\\x%02x", p[i]);
        if (used + strlen(piece) >= capacity)
            break;
        memcpy(to + used, piece, strlen(piece));
        used += strlen(piece);
        p += n ? n : 1;
    }
    to[used] = '\0';
    return to;
}
