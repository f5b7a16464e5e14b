/* bpe.c -- byte pair encoding: merges the neighbours of the lowest rank until none is left.   SPDX-License-Identifier: MIT
 *
 * Most words of a text are short and have been seen before: a cache of words, indexed by their hash, has their tokens. Others are
 * merged by looking for the lowest rank again and again, long ones with a heap, and very long ones in blocks, so that a word of n bytes
 * takes n steps and little more memory than its tokens. */
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { CACHED = 1 << 14, SHORT = 48, BLOCK = 1 << 14 };
#define NONE    UINT32_MAX
#define NOWHERE SIZE_MAX

static tutti_status no_memory(void)
{
    return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a tokenizer");
}

tutti_status tutti__token_list_reserve(tutti__token_list *list, size_t more)
{
    size_t room = list->room;
    uint32_t *p;

    if (list->n + more <= room)
        return TUTTI_OK;
    room = 2 * room + more + 256;
    p = realloc(list->p, room * sizeof *p);
    if (!p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu tokens", room);
    list->p = p;
    list->room = room;
    return TUTTI_OK;
}

/* ---- Tables -------------------------------------------------------------------------------------------------- */

tutti_status tutti__bpe_set_tokens(tutti__bpe *bpe, const uint8_t *const *tokens,
                                   const uint32_t *lengths, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += lengths[i];
    bpe->at = malloc((n + 1) * sizeof *bpe->at);
    bpe->bytes = malloc(bytes + 1);
    bpe->cache = calloc(CACHED, sizeof *bpe->cache);
    if (!bpe->at || !bpe->bytes || !bpe->cache)
        return no_memory();
    bpe->n = n;
    bpe->at[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (lengths[i])
            memcpy(bpe->bytes + bpe->at[i], tokens[i], lengths[i]);
        bpe->at[i + 1] = bpe->at[i] + lengths[i];
    }
    return TUTTI_OK;
}

/* The power of two that leaves half of a table empty. */
static size_t table_size(size_t n)
{
    size_t size = 16;

    while (size < 2 * n)
        size *= 2;
    return size;
}

tutti_status tutti__bpe_reserve_merges(tutti__bpe *bpe, size_t n)
{
    const size_t size = table_size(n);

    bpe->merges = malloc(size * sizeof *bpe->merges);
    if (!bpe->merges)
        return no_memory();
    memset(bpe->merges, 0xff, size * sizeof *bpe->merges); /* ranks: NONE */
    bpe->merge_mask = size - 1;
    return TUTTI_OK;
}

static tutti__merge *place_of(const tutti__bpe *bpe, uint32_t left, uint32_t right)
{
    const uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(hash >> 20) & bpe->merge_mask;

    while (bpe->merges[i].rank != NONE &&
           (bpe->merges[i].left != left || bpe->merges[i].right != right))
        i = (i + 1) & bpe->merge_mask;
    return &bpe->merges[i];
}

void tutti__bpe_add_merge(tutti__bpe *bpe, uint32_t left, uint32_t right, uint32_t rank,
                          uint32_t token)
{
    tutti__merge *merge = place_of(bpe, left, right);

    bpe->n_merges += merge->rank == NONE;
    *merge = (tutti__merge){.left = left, .right = right, .rank = rank, .token = token};
}

static uint32_t *word_place(const tutti__bpe *bpe, const uint8_t *bytes, size_t n)
{
    size_t i = (size_t)tutti__hash64(bytes, n) & bpe->word_mask;

    for (; bpe->words[i]; i = (i + 1) & bpe->word_mask) {
        const size_t token = bpe->words[i] - 1, length = bpe->at[token + 1] - bpe->at[token];

        if (length == n && memcmp(bpe->bytes + bpe->at[token], bytes, n) == 0)
            break;
    }
    return &bpe->words[i];
}

tutti_status tutti__bpe_index_words(tutti__bpe *bpe, const bool *is_word)
{
    const size_t size = table_size(bpe->n);

    bpe->words = calloc(size, sizeof *bpe->words);
    if (!bpe->words)
        return no_memory();
    bpe->word_mask = size - 1;
    for (size_t i = 0; i < bpe->n; i++) {
        const size_t n = bpe->at[i + 1] - bpe->at[i];
        uint32_t *place;

        if (n == 0 || (is_word && !is_word[i]))
            continue;
        place = word_place(bpe, bpe->bytes + bpe->at[i], n);
        if (*place == 0)
            *place = (uint32_t)i + 1;
    }
    return TUTTI_OK;
}

int64_t tutti__bpe_find(const tutti__bpe *bpe, const uint8_t *bytes, size_t n)
{
    return (int64_t)*word_place(bpe, bytes, n) - 1;
}

void tutti__bpe_free(tutti__bpe *bpe)
{
    free(bpe->at);
    free(bpe->bytes);
    free(bpe->merges);
    free(bpe->words);
    free(bpe->cache);
    free(bpe->symbols);
    free(bpe->heap);
}

/* ---- Short words --------------------------------------------------------------------------------------------- */

/* n tokens in place; returns how many are left. */
static size_t merge_short(const tutti__bpe *bpe, uint32_t *tokens, size_t n)
{
    const tutti__merge *merges[SHORT]; /* of tokens i and i + 1 */

    for (size_t i = 0; i + 1 < n; i++)
        merges[i] = place_of(bpe, tokens[i], tokens[i + 1]);
    while (n > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < n; i++)
            if (merges[i]->rank < merges[best]->rank)
                best = i;
        if (merges[best]->rank == NONE)
            break;
        tokens[best] = merges[best]->token;
        memmove(tokens + best + 1, tokens + best + 2, (n - best - 2) * sizeof *tokens);
        if (best + 2 < n)
            memmove(merges + best, merges + best + 1, (n - best - 2) * sizeof *merges);
        n--;
        if (best > 0)
            merges[best - 1] = place_of(bpe, tokens[best - 1], tokens[best]);
        if (best + 1 < n)
            merges[best] = place_of(bpe, tokens[best], tokens[best + 1]);
    }
    return n;
}

/* ---- Long words ---------------------------------------------------------------------------------------------- */

static bool comes_first(const tutti__bpe_candidate *a, const tutti__bpe_candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static tutti_status push(tutti__bpe *bpe, const tutti__bpe_candidate *c)
{
    tutti__bpe_candidate *heap = bpe->heap;
    size_t i = bpe->heap_n;

    if (i == bpe->heap_room) {
        heap = realloc(heap, (2 * i + 256) * sizeof *heap);
        if (!heap)
            return no_memory();
        bpe->heap = heap;
        bpe->heap_room = 2 * i + 256;
    }
    bpe->heap_n++;
    for (; i > 0 && comes_first(c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = *c;
    return TUTTI_OK;
}

static tutti__bpe_candidate pop(tutti__bpe *bpe)
{
    tutti__bpe_candidate *heap = bpe->heap, top = heap[0], last = heap[--bpe->heap_n];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < bpe->heap_n) {
        if (child + 1 < bpe->heap_n && comes_first(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_first(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* The merge of the symbol with the one behind it, if there is one. */
static tutti_status push_merge(tutti__bpe *bpe, size_t at)
{
    const tutti__symbol *s = bpe->symbols;
    const tutti__merge *merge;

    if (at == NOWHERE || s[at].behind == NOWHERE)
        return TUTTI_OK;
    merge = place_of(bpe, (uint32_t)s[at].token, (uint32_t)s[s[at].behind].token);
    if (merge->rank == NONE)
        return TUTTI_OK;
    return push(bpe, &(tutti__bpe_candidate){.rank = merge->rank,
                                             .left = merge->left,
                                             .right = merge->right,
                                             .token = merge->token,
                                             .at = at});
}

/* Whether the symbols of a candidate are still what they were. */
static bool is_current(const tutti__symbol *s, const tutti__bpe_candidate *c)
{
    return s[c->at].token == (int64_t)c->left && s[c->at].behind != NOWHERE &&
           s[s[c->at].behind].token == (int64_t)c->right;
}

/* As merge_short. */
static tutti_status merge_with_heap(tutti__bpe *bpe, uint32_t *tokens, size_t *n_p)
{
    const size_t n = *n_p;
    tutti__symbol *s = bpe->symbols;
    size_t left = 0;

    if (n > bpe->symbol_room) {
        free(s);
        s = bpe->symbols = malloc(n * sizeof *s);
        bpe->symbol_room = s ? n : 0;
    }
    if (!s)
        return no_memory();
    for (size_t i = 0; i < n; i++)
        s[i] = (tutti__symbol){tokens[i], i ? i - 1 : NOWHERE, i + 1 < n ? i + 1 : NOWHERE};
    bpe->heap_n = 0;
    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(push_merge(bpe, i));
    while (bpe->heap_n > 0) {
        const tutti__bpe_candidate c = pop(bpe);
        size_t gone;

        if (!is_current(s, &c))
            continue;
        gone = s[c.at].behind;
        s[c.at].token = c.token;
        s[c.at].behind = s[gone].behind;
        s[gone].token = -1;
        if (s[c.at].behind != NOWHERE)
            s[s[c.at].behind].before = c.at;
        TUTTI_TRY(push_merge(bpe, s[c.at].before));
        TUTTI_TRY(push_merge(bpe, c.at));
    }
    for (size_t i = 0; i != NOWHERE; i = s[i].behind)
        tokens[left++] = (uint32_t)s[i].token;
    *n_p = left;
    return TUTTI_OK;
}

/* ---- Very long words ----------------------------------------------------------------------------------------- */

static tutti_status merge(tutti__bpe *bpe, uint32_t *tokens, size_t *n_p)
{
    if (bpe->n_merges == 0)
        return TUTTI_OK;
    if (*n_p > SHORT)
        return merge_with_heap(bpe, tokens, n_p);
    *n_p = merge_short(bpe, tokens, *n_p);
    return TUTTI_OK;
}

/* Appends the tokens of single bytes. */
static void append_bytes(const tutti__bpe *bpe, const uint8_t *bytes, size_t n,
                         tutti__token_list *list)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t token = bpe->of_byte[bytes[i]] >= 0 ? bpe->of_byte[bytes[i]] : bpe->unknown;

        if (token >= 0)
            list->p[list->n++] = (uint32_t)token;
    }
}

static size_t length_of(const tutti__bpe *bpe, int64_t token)
{
    return bpe->at[token + 1] - bpe->at[token];
}

static bool is_made_of(const tutti__bpe *bpe, const tutti__merge *merge)
{
    const uint8_t *whole = bpe->bytes + bpe->at[merge->token];
    const size_t n = length_of(bpe, merge->left), rest = length_of(bpe, merge->right);

    return length_of(bpe, merge->token) == n + rest &&
           memcmp(whole, bpe->bytes + bpe->at[merge->left], n) == 0 &&
           memcmp(whole + n, bpe->bytes + bpe->at[merge->right], rest) == 0;
}

/* Appends the tokens of bytes. */
static tutti_status append_merged(tutti__bpe *bpe, const uint8_t *bytes, size_t n,
                                  tutti__token_list *list)
{
    const size_t before = list->n;
    size_t left;

    TUTTI_TRY(tutti__token_list_reserve(list, n));
    append_bytes(bpe, bytes, n, list);
    left = list->n - before;
    TUTTI_TRY(merge(bpe, list->p + before, &left));
    list->n = before + left;
    return TUTTI_OK;
}

/* Whether tokens are exactly the bytes that they are made of: each byte is a token, and no id has two texts. */
static bool is_exact(tutti__bpe *bpe)
{
    bool exact = true;

    if (bpe->exact != 0)
        return bpe->exact > 0;
    for (int i = 0; i < 256 && exact; i++) {
        const int64_t token = bpe->of_byte[i];

        exact = token >= 0 && length_of(bpe, token) == 1 && bpe->bytes[bpe->at[token]] == i;
    }
    for (size_t i = 0; i <= bpe->merge_mask && exact; i++)
        exact = bpe->merges[i].rank == NONE || is_made_of(bpe, &bpe->merges[i]);
    bpe->exact = exact ? 1 : -1;
    return exact;
}

static size_t bytes_of(const tutti__bpe *bpe, const uint32_t *tokens, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += length_of(bpe, tokens[i]);
    return bytes;
}

/* Two neighbouring parts of a word, whose tokens are the list's last ones. */
typedef struct seam {
    const uint8_t *at;  /* the first byte of the second part */
    size_t left, right; /* tokens of the parts */
    tutti__token_list *list;
    tutti__token_list some; /* what is merged anew */
} seam;

/* Merges the bytes of a tokens in front of the seam and b behind it. *fits_p: the outer ones stay what they are. */
static tutti_status merge_anew(tutti__bpe *bpe, seam *s, size_t a, size_t b, bool *fits_p)
{
    const uint32_t *right = s->list->p + s->list->n - s->right;
    const size_t before = bytes_of(bpe, right - a, a), behind = bytes_of(bpe, right, b);

    s->some.n = 0;
    TUTTI_TRY(tutti__token_list_reserve(&s->some, before + behind));
    append_bytes(bpe, s->at - before, before + behind, &s->some);
    TUTTI_TRY(merge(bpe, s->some.p, &s->some.n));
    *fits_p = (a == s->left || s->some.p[0] == right[-(ptrdiff_t)a]) &&
              (b == s->right || s->some.p[s->some.n - 1] == right[b - 1]);
    return TUTTI_OK;
}

/* Makes the tokens of both parts those of the whole. Merges across the seam change what is near it: the bytes of a few tokens on both
 * sides are merged anew. If the outermost of them stay what they were, then all neighbours in the sequence are pairs that merging leaves
 * apart (those in the middle because merging has just left them so), and a sequence of such pairs is what merging makes of its bytes.
 * Else more tokens are taken. */
static tutti_status join(tutti__bpe *bpe, seam *s)
{
    tutti__token_list *list = s->list;
    size_t a = 0, b = 0;
    uint32_t *from;
    bool fits = false;

    for (size_t k = 2; !fits; k *= 2) {
        a = k < s->left ? k : s->left;
        b = k < s->right ? k : s->right;
        TUTTI_TRY(merge_anew(bpe, s, a, b, &fits));
    }
    TUTTI_TRY(tutti__token_list_reserve(list, s->some.n));
    from = list->p + list->n - s->right - a;
    memmove(from + s->some.n, from + a + b, (s->right - b) * sizeof *from);
    memcpy(from, s->some.p, s->some.n * sizeof *from);
    list->n = list->n - a - b + s->some.n;
    return TUTTI_OK;
}

/* A word's tokens to the list's end. */
static tutti_status encode_blocks(tutti__bpe *bpe, const uint8_t *word, size_t n,
                                  tutti__token_list *list)
{
    const size_t first = list->n;
    seam s = {.list = list};
    tutti_status status = TUTTI_OK;

    for (size_t at = 0; at < n && status == TUTTI_OK; at += BLOCK) {
        s.at = word + at;
        s.left = list->n - first;
        status = append_merged(bpe, s.at, n - at < BLOCK ? n - at : BLOCK, list);
        s.right = list->n - first - s.left;
        if (status == TUTTI_OK && at > 0)
            status = join(bpe, &s);
    }
    free(s.some.p);
    return status;
}

/* ---- Words --------------------------------------------------------------------------------------------------- */

/* Of a word that is not in the cache: to the list's end. */
static tutti_status encode_new(tutti__bpe *bpe, const uint8_t *word, size_t n,
                               tutti__token_list *list)
{
    const int64_t whole = bpe->words ? tutti__bpe_find(bpe, word, n) : TUTTI__NO_TOKEN;

    if (whole < 0)
        return n > 2 * BLOCK && is_exact(bpe) ? encode_blocks(bpe, word, n, list)
                                              : append_merged(bpe, word, n, list);
    TUTTI_TRY(tutti__token_list_reserve(list, 1));
    list->p[list->n++] = (uint32_t)whole;
    return TUTTI_OK;
}

tutti_status tutti__bpe_encode(tutti__bpe *bpe, const uint8_t *word, size_t n,
                               tutti__token_list *list)
{
    const size_t before = list->n;
    tutti__word *kept;

    if (n == 0)
        return TUTTI_OK;
    if (n > TUTTI__WORD_BYTES)
        return encode_new(bpe, word, n, list);
    kept = &bpe->cache[tutti__hash64(word, n) & (CACHED - 1)];
    TUTTI_TRY(tutti__token_list_reserve(list, TUTTI__WORD_TOKENS));
    if (kept->n_bytes == n && memcmp(kept->bytes, word, n) == 0) {
        for (uint32_t i = 0; i < kept->n_tokens; i++)
            list->p[list->n++] = kept->tokens[i];
        return TUTTI_OK;
    }
    TUTTI_TRY(encode_new(bpe, word, n, list));
    if (list->n - before > TUTTI__WORD_TOKENS)
        return TUTTI_OK;
    kept->n_bytes = (uint8_t)n;
    kept->n_tokens = (uint32_t)(list->n - before);
    memcpy(kept->bytes, word, n);
    for (uint32_t i = 0; i < kept->n_tokens; i++)
        kept->tokens[i] = list->p[before + i];
    return TUTTI_OK;
}
