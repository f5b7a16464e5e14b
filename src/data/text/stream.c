/* stream.c -- text that appears token by token, whole characters only.   SPDX-License-Identifier: MIT */
#include "data/text/tokenizer.h"

#include <string.h>

/* How many bytes at p, fewer than a character, can be the beginning of one; n if all are. Like U+FFFD's "maximal subpart" of
 * Unicode: what cannot be continued becomes one U+FFFD. */
static size_t beginning_of(const char *p, size_t n)
{
    static const char fill[] =
        "\x80\x8f\x90\x9f\xa0\xbf"; /* some of which continues every beginning */
    char text[5] = {0};
    size_t length = 0;

    for (size_t k = 1; k <= n && k <= 3; k++) {
        bool can = false;

        for (size_t i = 0; i < sizeof fill - 1 && !can; i++) {
            memset(text, 0, sizeof text);
            memcpy(text, p, k);
            text[k] = fill[i];
            for (size_t rest = k + 1; rest < 4; rest++)
                text[rest] = '\x80';
            can = tutti__utf8_bytes(text) > (int)k;
        }
        if (!can)
            break;
        length = k;
    }
    return length;
}

/* A sink of characters that only counts beyond its size. */
typedef struct sink {
    char *text;
    size_t size, n;
} sink;

static void write_to(sink *to, const char *p, size_t n)
{
    if (to->n + n < to->size)
        memcpy(to->text + to->n, p, n);
    to->n += n;
}

/* Writes what is complete of the bytes that are held. */
static void write_complete(sink *to, tutti_text_stream *stream, bool is_end)
{
    while (stream->n > 0) {
        char next[5] = {0};
        size_t length;

        memcpy(next, stream->held, (size_t)(stream->n < 4 ? stream->n : 4));
        length = *next ? (size_t)tutti__utf8_bytes(next) : 1;
        if (length > 0) {
            write_to(to, next, length);
        } else {
            length = beginning_of(stream->held, (size_t)stream->n);
            if (length == (size_t)stream->n && !is_end)
                return;
            write_to(to, "\xef\xbf\xbd", 3);
            length += length == 0;
        }
        stream->n -= (int)length;
        memmove(stream->held, stream->held + length, (size_t)stream->n);
    }
}

size_t tutti_tokenizer_stream(const tutti_tokenizer *t, tutti_text_stream *stream, int64_t token,
                              char *text, size_t size)
{
    sink to = {.text = text, .size = text ? size : 0};
    tutti_text_stream after;
    const char *bytes;
    size_t n;

    if (!stream || stream->n < 0 || stream->n > 3)
        return 0;
    after = *stream;
    bytes = tutti_tokenizer_bytes(t, token, &n);
    for (size_t i = 0; i < n; i++) {
        after.held[after.n++] = bytes[i];
        write_complete(&to, &after, false);
    }
    if (token < 0)
        write_complete(&to, &after, true);
    if (to.n >= to.size)
        return to.n;
    text[to.n] = '\0';
    *stream = after;
    return to.n;
}

tutti_status tutti__tokenizer_append(const tutti_tokenizer *t, tutti_text_stream *stream,
                                     int64_t token, tutti__stream_text *text)
{
    for (;;) {
        const size_t left = text->room - text->n;
        const size_t n =
            tutti_tokenizer_stream(t, stream, token, text->p ? text->p + text->n : NULL, left);
        char *more;

        if (n < left) {
            text->n += n;
            return TUTTI_OK;
        }
        more = realloc(text->p, 2 * text->room + n + 64);
        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a text");
        text->p = more;
        text->room = 2 * text->room + n + 64;
    }
}
