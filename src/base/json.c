/* json.c -- strings of JSON, written.   SPDX-License-Identifier: MIT */
#include "base/base.h"

/* How many bytes the character of UTF-8 at p has; 0: it is none. What ends too early ends in the NUL, which continues
 * nothing. */
static int utf8_bytes(const unsigned char *p)
{
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

bool tutti__is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    for (int n; *p; p += n)
        if ((n = utf8_bytes(p)) == 0)
            return false;
    return true;
}

void tutti__json_string(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    putc('"', out);
    while (*p) {
        int n = utf8_bytes(p);

        if (n == 0)
            fputs("\\ufffd", out);
        else if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(out, "\\u%04x", *p);
        else
            fwrite(p, 1, (size_t)n, out);
        p += n ? n : 1;
    }
    putc('"', out);
}
