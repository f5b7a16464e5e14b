/* tokenize.c -- the text of files, piece by piece, to tokens.   SPDX-License-Identifier: MIT
 *
 * A piece ends where its tokens do not depend on what follows; the rest of it begins the next one. */
#include "data/text/tokenize.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 4 << 20 };

typedef struct tokenizing {
    tutti_tokenizer *t;
    const tutti__token_sink *sink;
    const tutti__tick *tick;
    tutti__token_list list;
    char *text; /* [room] */
    size_t n, room;
    uint64_t done, total; /* bytes */
} tokenizing;

static tutti_status pass_on(tokenizing *k, uint64_t bytes)
{
    const tutti_status status = k->sink->put(k->sink->user, k->list.p, k->list.n);

    k->list.n = 0;
    k->done += bytes;
    TUTTI_TRY(status);
    k->t->matching.done = (size_t)k->done;
    return tutti__tick_call(k->tick, (size_t)k->done, (size_t)k->total);
}

/* Fills the buffer from the part; *at_p: what has been read. */
static tutti_status fill(tokenizing *k, const tutti__token_part *part, uint64_t *at_p, uint64_t end)
{
    const uint64_t left = end - *at_p;
    const size_t n = left < k->room - k->n ? (size_t)left : k->room - k->n;

    TUTTI_TRY(tutti__token_part_read(part, *at_p, k->text + k->n, n));
    k->n += n;
    *at_p += n;
    return TUTTI_OK;
}

static tutti_status grow(tokenizing *k)
{
    const size_t room = 2 * k->room + PIECE;
    char *text = realloc(k->text, room);

    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes of text", room);
    k->text = text;
    k->room = room;
    return TUTTI_OK;
}

/* Bytes [at, end) of a file. */
static tutti_status tokenize_part(tokenizing *k, const tutti__token_part *part, uint64_t at,
                                  uint64_t end)
{
    bool inside = false, is_last;
    size_t used, valid;

    for (k->n = 0;;) {
        TUTTI_TRY(fill(k, part, &at, end));
        is_last = at == end;
        used = k->n;
        valid = tutti__utf8_valid((const uint8_t *)k->text, k->n);
        if (k->n - valid >=
            (is_last ? 1 : 4)) /* it was UTF-8 when it was opened; patterns trust it */
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s has changed, and is no longer UTF-8 at byte %llu", part->path,
                               (unsigned long long)(part->offset + at - k->n + valid));
        if (is_last)
            TUTTI_TRY(tutti__tokenizer_encode_rest(k->t, k->text, k->n, inside, &k->list));
        else
            TUTTI_TRY(tutti__tokenizer_encode_some(k->t, k->text, valid, &inside, &k->list, &used));
        TUTTI_TRY(pass_on(k, used));
        if (is_last)
            return TUTTI_OK;
        k->n -= used;
        memmove(k->text, k->text + used, k->n);
        if (k->n > k->room / 2)
            TUTTI_TRY(grow(k));
    }
}

static tutti_status put_end_of_text(tokenizing *k)
{
    TUTTI_TRY(tutti__token_list_reserve(&k->list, 1));
    if (k->t->end_of_text >= 0)
        k->list.p[k->list.n++] = (uint32_t)k->t->end_of_text;
    return pass_on(k, 1);
}

static tutti_status tokenize_all(tokenizing *k, const tutti__tokens *text)
{
    const uint64_t from = text->from, to = text->from + text->used;

    for (size_t i = 0; i < text->n; i++) {
        const tutti__token_part *part = &text->parts[i];
        const uint64_t begin = from > part->first ? from - part->first : 0;
        const uint64_t end = to < part->first                 ? 0
                             : to - part->first < part->count ? to - part->first
                                                              : part->count;

        if (begin >= end)
            continue;
        TUTTI_TRY(part->bytes ? put_end_of_text(k) : tokenize_part(k, part, begin, end));
    }
    return TUTTI_OK;
}

tutti_status tutti__tokenize(tutti_tokenizer *t, const tutti__tokens *text,
                             const tutti__token_sink *sink, const tutti__tick *tick)
{
    tokenizing k = {.t = t, .sink = sink, .tick = tick, .total = text->used};
    tutti_status status = grow(&k);

    t->matching = (tutti__matching){.tick = tick, .total = (size_t)k.total};
    if (status == TUTTI_OK)
        status = tokenize_all(&k, text);
    t->matching = (tutti__matching){.tick = NULL};
    free(k.text);
    free(k.list.p);
    return status;
}
