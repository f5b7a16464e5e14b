/* encode.c -- text to tokens: added tokens, the stages of the pre-tokenizer, words.   SPDX-License-Identifier: MIT */
#include "data/text/nfc.h"
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* A piece of text whose end may not be the end of its segment. */
typedef struct piece {
    const char *text;
    size_t n;
    bool is_cut; /* more of it follows */
    bool inside; /* more of it is in front */
} piece;

static tutti_status run_stage(tutti_tokenizer *t, int i, const piece *p, tutti__token_list *list,
                              size_t *used_p);

/* With a space in front. */
static tutti_status run_with_space(tutti_tokenizer *t, int i, const piece *p,
                                   tutti__token_list *list, size_t *used_p)
{
    char *copy = malloc(p->n + 1);
    const piece longer = {.text = copy, .n = p->n + 1, .is_cut = p->is_cut, .inside = true};
    tutti_status status;

    if (!copy)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to encode a text of %zu bytes", p->n);
    *copy = ' ';
    memcpy(copy + 1, p->text, p->n);
    status = run_stage(t, i, &longer, list, used_p);
    *used_p -= *used_p > 0;
    free(copy);
    return status;
}

/* A piece of the next stage, which is whole. */
static tutti_status pass_on(tutti_tokenizer *t, int i, const char *text, size_t n,
                            tutti__token_list *list)
{
    size_t used;

    if (i + 1 == t->n_stages)
        return tutti__bpe_encode(&t->bpe, (const uint8_t *)text, n, list);
    return run_stage(t, i + 1, &(piece){.text = text, .n = n}, list, &used);
}

/* Divides a piece by stage i. *used_p: all of it, or what does not depend on its continuation. */
static tutti_status run_stage(tutti_tokenizer *t, int i, const piece *p, tutti__token_list *list,
                              size_t *used_p)
{
    const tutti__stage *stage = &t->stages[i];
    size_t begin, end;

    *used_p = 0;
    if (p->n == 0)
        return TUTTI_OK;
    if (stage->prefix_space && !p->inside && *p->text != ' ')
        return run_with_space(t, i, p, list, used_p);
    if (!stage->pattern || (p->is_cut && tutti__pattern_looks_behind(stage->pattern))) {
        if (p->is_cut)
            return TUTTI_OK;
        *used_p = p->n;
        if (!stage->pattern)
            return pass_on(t, i, p->text, p->n, list);
    }
    for (size_t at = 0; at < p->n; at = end) {
        TUTTI_TRY(
            tutti__pattern_next(stage->pattern, &t->matching, p->text, p->n, at, &begin, &end));
        if (p->is_cut && end + TUTTI__LOOK_AHEAD > p->n)
            return TUTTI_OK;
        if (begin > at && !stage->matches_only)
            TUTTI_TRY(pass_on(t, i, p->text + at, begin - at, list));
        if (end > begin)
            TUTTI_TRY(pass_on(t, i, p->text + begin, end - begin, list));
        *used_p = end;
    }
    return TUTTI_OK;
}

static tutti_status run_stages(tutti_tokenizer *t, const piece *p, tutti__token_list *list,
                               size_t *used_p)
{
    if (t->n_stages > 0)
        return run_stage(t, 0, p, list, used_p);
    *used_p = p->is_cut ? 0 : p->n;
    return tutti__bpe_encode(&t->bpe, (const uint8_t *)p->text, *used_p, list);
}

/* ---- Added tokens -------------------------------------------------------------------------------------------- */

/* The longest that begins here; NULL: none. */
static const tutti__added *added_at(const tutti_tokenizer *t, const char *text, size_t n,
                                    bool normalized)
{
    const tutti__added *best = NULL;

    for (size_t i = 0; i < t->n_added; i++) {
        const tutti__added *a = &t->added[i];

        if (a->normalized == normalized && a->n <= n && (!best || a->n > best->n) &&
            memcmp(a->text, text, a->n) == 0)
            best = a;
    }
    return best;
}

/* The first from `at` on, at *begin_p; NULL: none, *begin_p is n. */
static const tutti__added *next_added(const tutti_tokenizer *t, const piece *p, size_t at,
                                      bool normalized, size_t *begin_p)
{
    const tutti__added *found;

    for (; t->n_added > 0 && at < p->n; at++)
        if (t->added_first[(uint8_t)p->text[at]] &&
            (found = added_at(t, p->text + at, p->n - at, normalized))) {
            *begin_p = at;
            return found;
        }
    *begin_p = p->n;
    return NULL;
}

static tutti_status divide(tutti_tokenizer *t, piece *p, bool normalized, tutti__token_list *list,
                           size_t *used_p);

/* A text that changes is used only as a whole: positions within it would have no meaning to the caller. */
static tutti_status normalize_and_divide(tutti_tokenizer *t, piece *p, tutti__token_list *list,
                                         size_t *used_p)
{
    piece changed = {.inside = p->inside};
    char *text = NULL;
    tutti_status status;

    if (t->is_nfc)
        TUTTI_TRY(tutti__nfc(p->text, p->n, &text, &changed.n));
    if (!text)
        return divide(t, p, true, list, used_p);
    changed.text = text;
    *used_p = 0;
    status = p->is_cut ? TUTTI_OK : divide(t, &changed, true, list, used_p);
    p->inside = changed.inside;
    *used_p = p->is_cut ? 0 : p->n;
    free(text);
    return status;
}

/* First divides at the tokens that are not normalized, then, between them, at the others. Sets p->inside for what follows. */
static tutti_status divide(tutti_tokenizer *t, piece *p, bool normalized, tutti__token_list *list,
                           size_t *used_p)
{
    size_t begin, used;

    *used_p = 0;
    for (size_t at = 0; at < p->n;) {
        const tutti__added *added = next_added(t, p, at, normalized, &begin);
        const bool is_decided = !p->is_cut || begin + TUTTI__LOOK_AHEAD <= p->n;
        const size_t end = is_decided ? begin : p->n;
        piece between = {.text = p->text + at,
                         .n = end - at,
                         .is_cut = !is_decided || (p->is_cut && !added),
                         .inside = p->inside};

        TUTTI_TRY(normalized ? run_stages(t, &between, list, &used)
                             : normalize_and_divide(t, &between, list, &used));
        p->inside = normalized ? p->inside || used > 0 : between.inside;
        *used_p = at + used;
        if (between.is_cut || !added)
            return TUTTI_OK;
        TUTTI_TRY(tutti__token_list_reserve(list, 1));
        list->p[list->n++] = (uint32_t)added->token;
        p->inside = false;
        *used_p = at = begin + added->n;
    }
    return TUTTI_OK;
}

/* Of valid UTF-8, whose first byte says how long a character is. */
static tutti_status encode_characters(const tutti_tokenizer *t, const char *text, size_t n,
                                      tutti__token_list *list)
{
    size_t length;

    TUTTI_TRY(tutti__token_list_reserve(list, n));
    for (size_t at = 0; at < n; at += length) {
        const uint8_t first = (uint8_t)text[at];
        char character[5] = {0};
        int64_t token;

        length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        memcpy(character, text + at, length);
        token = tutti__bpe_find(&t->bpe, (const uint8_t *)character, length);
        if (token < 0)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "byte %zu of the text begins \"%s\", which is none of the %zu "
                               "characters of the training text",
                               t->matching.done + at, character, t->bpe.n);
        list->p[list->n++] = (uint32_t)token;
    }
    return TUTTI_OK;
}

/* Whether the tokens of a text are those of its parts, wherever it is cut between characters. */
static bool may_be_cut(const tutti_tokenizer *t)
{
    return t->is_characters || t->is_bytes;
}

tutti_status tutti__tokenizer_encode_rest(tutti_tokenizer *t, const char *text, size_t n,
                                          bool inside, tutti__token_list *list)
{
    piece p = {.text = text, .n = n, .inside = inside};
    size_t used;

    if (t->is_characters)
        return encode_characters(t, text, n, list);
    return divide(t, &p, false, list, &used);
}

tutti_status tutti__tokenizer_encode(tutti_tokenizer *t, const char *text, size_t n,
                                     tutti__token_list *list)
{
    t->matching.spent = 0;
    return tutti__tokenizer_encode_rest(t, text, n, false, list);
}

tutti_status tutti__tokenizer_encode_some(tutti_tokenizer *t, const char *text, size_t n,
                                          bool *inside_p, tutti__token_list *list, size_t *used_p)
{
    piece p = {.text = text, .n = n, .is_cut = true, .inside = *inside_p};
    tutti_status status;

    if (may_be_cut(t)) {
        *used_p = n;
        return tutti__tokenizer_encode_rest(t, text, n, true, list);
    }
    status = divide(t, &p, false, list, used_p);
    *inside_p = p.inside;
    return status;
}
