/* utf8_stream.h -- bytes that come in pieces, as whole characters.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_UTF8_STREAM_H
#define TUTTI_TRAIN_UTF8_STREAM_H

#include "base/base.h"

/* Starts as {0}. */
typedef struct tutti__utf8_stream {
    unsigned char kept[4]; /* the beginning of a character whose end has not come */
    size_t n;
} tutti__utf8_stream;

/* Room for what n bytes become, at most. */
static inline size_t tutti__utf8_room(size_t n)
{
    return 3 * (n + 4);
}
/* Writes the characters that are complete with these n bytes, and U+FFFD for what is none, as Python's errors="replace" does;
 * keeps a beginning. last: nothing follows. Returns the number of bytes written. */
size_t tutti__utf8_put(tutti__utf8_stream *s, const void *bytes, size_t n, bool last, char *to);

#endif
