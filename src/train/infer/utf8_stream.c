/* utf8_stream.c -- bytes that come in pieces, as whole characters.   SPDX-License-Identifier: MIT */
#include "train/infer/utf8_stream.h"

#include <string.h>

/* Bytes of a character that begins so; 0: none does. */
static size_t length_of(unsigned char first)
{
    return first < 0x80   ? 1
           : first < 0xc2 ? 0
           : first < 0xe0 ? 2
           : first < 0xf0 ? 3
           : first < 0xf5 ? 4
                          : 0;
}

/* Whether byte i >= 1 of a character may be c: the second one excludes overlong forms, surrogates and what is above U+10FFFF. */
static bool may_follow(const unsigned char *p, size_t i, unsigned char c)
{
    unsigned char low = 0x80, high = 0xbf;

    if (i == 1) {
        low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
        high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    }
    return c >= low && c <= high;
}

static size_t put(const void *bytes, size_t n, char *to)
{
    memcpy(to, bytes, n);
    return n;
}

/* What is kept is no character. */
static size_t replace(tutti__utf8_stream *s, char *to)
{
    s->n = 0;
    return put("\xef\xbf\xbd", 3, to);
}

size_t tutti__utf8_put(tutti__utf8_stream *s, const void *bytes, size_t n, bool last, char *to)
{
    const unsigned char *p = bytes;
    size_t written = 0;

    for (size_t i = 0; i < n; i++) {
        if (s->n > 0 && !may_follow(s->kept, s->n, p[i]))
            written += replace(s, to + written);
        s->kept[s->n++] = p[i];
        if (length_of(s->kept[0]) == 0)
            written += replace(s, to + written);
        else if (s->n == length_of(s->kept[0])) {
            written += put(s->kept, s->n, to + written);
            s->n = 0;
        }
    }
    if (last && s->n > 0)
        written += replace(s, to + written);
    return written;
}
