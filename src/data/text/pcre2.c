/* pcre2.c -- regular expressions by PCRE2, as tokenizers mean them.   SPDX-License-Identifier: MIT
 *
 * Tokenizers are made for Oniguruma or Rust's regex, where \s is Unicode's White_Space. PCRE2's has U+180E besides, so \s and \S are
 * replaced by the class itself. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/text/tokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

const char tutti__gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* White_Space */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

/* PCRE2 limits only the steps of one beginning of a match, and not those of repeats that cannot backtrack. So a match sees a window of
 * the text at first, with a limit in proportion, and asks for more if it reaches the end of one or the other (PCRE2_PARTIAL_HARD);
 * what it gets is charged. A pattern whose time is linear pays by the bytes that it goes on. */
enum {
    WINDOW = 256,           /* bytes, at first */
    GROWTH = 4,             /* of a window that is too small */
    STEPS_PER_BYTE = 4,     /* of a window */
    MOST_STEPS = 100000000, /* of one beginning */
    PAID_PER_BYTE = 256,    /* by going on */
    MOST_SAVED = 1 << 27,   /* to be charged */
    MOST_HEAP = 256 << 10,  /* KiB */
    CALLS_PER_TICK = 1024,
    MOST_TEXT = 1 << 16
};

struct tutti__pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    char *text; /* for messages */
};

static char *append(char *to, const char *text)
{
    const size_t n = strlen(text);

    memcpy(to, text, n);
    return to + n;
}

/* With \s and \S in PCRE2's words; NULL: no memory, or (*odd_p) \S within a class. */
static char *translate(const char *text, bool *odd_p)
{
    const size_t n = strlen(text);
    char *all = malloc(n * (sizeof SPACES + 4) + 1), *to = all;
    bool in_class = false;

    *odd_p = false;
    for (size_t i = 0; all && i < n; i++) {
        if (text[i] == '\\' && text[i + 1]) {
            const char next = text[++i];

            if (next == 'S' && in_class)
                *odd_p = true;
            if (next == 's' && in_class)
                to = append(to, SPACES);
            else if (next == 's' || next == 'S')
                to = append(to, next == 's' ? "[" SPACES "]" : "[^" SPACES "]");
            else {
                *to++ = '\\';
                *to++ = next;
            }
            continue;
        }
        if (text[i] == '[' && in_class)
            *odd_p = true; /* a class in a class: Oniguruma's, not PCRE2's */
        in_class = text[i] == '[' || (in_class && text[i] != ']');
        *to++ = text[i];
    }
    if (all)
        *to = '\0';
    if (*odd_p) {
        free(all);
        return NULL;
    }
    return all;
}

static tutti_status compile(tutti__pattern *p, const char *text, const char *shown, bool literal)
{
    const uint32_t options =
        PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    PCRE2_UCHAR why[200] = "";
    PCRE2_SIZE at;
    int error;

    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    if (!p->code) {
        if (error == PCRE2_ERROR_BACKSLASH_C_CALLER_DISABLED)
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "the pattern \"%.300s\" has \\C, which divides characters; "
                               "put . in its place",
                               shown);
        pcre2_get_error_message(error, why, sizeof why);
        return tutti__fail(TUTTI_ERR_FORMAT, "the pattern \"%.300s\" is not an expression: %s",
                           shown, (const char *)why);
    }
    /* without it, it is slower */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    p->match = pcre2_match_data_create(1, NULL);
    p->limits = pcre2_match_context_create(NULL);
    p->text = strdup(shown);
    if (!p->match || !p->limits || !p->text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a pattern");
    pcre2_set_heap_limit(p->limits, MOST_HEAP);
    return TUTTI_OK;
}

tutti_status tutti__pattern_new(tutti__pattern **pattern_p, const char *text, bool literal)
{
    tutti__pattern *p = *pattern_p = tutti__alloc(sizeof *p);
    char *own;
    bool odd = false;
    tutti_status status;

    if (!p)
        return TUTTI_ERR_MEMORY;
    if (!*text || strlen(text) > MOST_TEXT)
        status = tutti__fail(TUTTI_ERR_FORMAT, "the pattern has %zu bytes, expected 1 to %d",
                             strlen(text), MOST_TEXT);
    else {
        own = literal ? strdup(text) : translate(text, &odd);
        if (odd)
            status =
                tutti__fail(TUTTI_ERR_UNSUPPORTED,
                            "the pattern \"%.300s\" has a class within a class, or \\S in one; "
                            "write it as an alternation",
                            text);
        else if (!own)
            status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for a pattern");
        else
            status = compile(p, own, text, literal);
        free(own);
    }
    if (status != TUTTI_OK) {
        tutti__pattern_free(p);
        *pattern_p = NULL;
    }
    return status;
}

void tutti__pattern_free(tutti__pattern *p)
{
    if (!p)
        return;
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->limits);
    pcre2_code_free(p->code);
    free(p->text);
    free(p);
}

bool tutti__pattern_looks_behind(const tutti__pattern *p)
{
    uint32_t characters = 1;

    pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &characters);
    return characters > 0;
}

/* ---- Matching ------------------------------------------------------------------------------------------------ */

/* What a match may see, and where it may begin. */
typedef struct view {
    size_t at, cut; /* from byte `at` on, up to `cut` */
    size_t window;
    bool only_here; /* not behind `at` */
} view;

static size_t character_end(const char *text, size_t n, size_t at)
{
    for (at++; at < n && ((uint8_t)text[at] & 0xc0) == 0x80;)
        at++;
    return at < n ? at : n;
}

static int match(tutti__pattern *p, const char *text, size_t n, view *v)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;

    v->cut = v->window < n - v->at ? character_end(text, n, v->at + v->window - 1) : n;
    options |= v->cut < n ? PCRE2_PARTIAL_HARD : 0;
    options |= v->only_here ? PCRE2_ANCHORED : 0;
    pcre2_set_match_limit(p->limits, v->window < MOST_STEPS / STEPS_PER_BYTE
                                         ? (uint32_t)v->window * STEPS_PER_BYTE
                                         : MOST_STEPS);
    return pcre2_match(p->code, (PCRE2_SPTR)text, v->cut, v->at, options, p->match, p->limits);
}

static tutti_status fail_on_text(const tutti__pattern *p, int error)
{
    PCRE2_UCHAR why[200] = "";

    if (error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_PARTIAL ||
        error == PCRE2_ERROR_HEAPLIMIT)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "the tokenizer's pattern \"%.300s\" takes too many steps on this text; "
                           "use a tokenizer whose pattern takes linear time",
                           p->text);
    pcre2_get_error_message(error, why, sizeof why);
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "the tokenizer's pattern \"%.300s\" fails on this text: %s", p->text,
                       (const char *)why);
}

/* After a match that has not come to an end: a larger view of one beginning, if it can be paid. */
static tutti_status enlarge(const tutti__pattern *p, tutti__matching *m, int error, view *v)
{
    const size_t begin = pcre2_get_ovector_pointer(p->match)[0];
    const bool is_limit = error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_JIT_STACKLIMIT;

    if (error != PCRE2_ERROR_PARTIAL &&
        !(is_limit && (!v->only_here || v->window < MOST_STEPS / STEPS_PER_BYTE)))
        return fail_on_text(p, error);
    if (m->spent >= MOST_SAVED)
        return fail_on_text(p, PCRE2_ERROR_MATCHLIMIT);
    if (error == PCRE2_ERROR_PARTIAL && !v->only_here && begin > v->at && begin < v->cut)
        v->at = begin;
    if (is_limit && !v->only_here) /* by any beginning in the window */
        m->spent += WINDOW * WINDOW * STEPS_PER_BYTE;
    v->window *= GROWTH;
    v->only_here = true;
    m->spent += v->window;
    return TUTTI_OK;
}

tutti_status tutti__pattern_next(tutti__pattern *p, tutti__matching *m, const char *text, size_t n,
                                 size_t at, size_t *begin_p, size_t *end_p)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(p->match);
    view v = {.at = at, .window = WINDOW};
    int n_found = PCRE2_ERROR_NOMATCH;
    uint64_t paid;

    *begin_p = *end_p = n;
    while (v.at < n && n_found < 0) {
        if (++m->calls % CALLS_PER_TICK == 0)
            TUTTI_TRY(tutti__tick_call(m->tick, m->done, m->total));
        n_found = match(p, text, n, &v);
        if (n_found == PCRE2_ERROR_NOMATCH)
            v = (view){.at = v.only_here ? character_end(text, n, v.at) : v.cut, .window = WINDOW};
        else if (n_found < 0)
            TUTTI_TRY(enlarge(p, m, n_found, &v));
    }
    if (n_found >= 0) {
        *begin_p = found[0];
        *end_p = found[1];
        /* \K may put the beginning anywhere. */
        if (*begin_p < at || *end_p <= *begin_p)
            return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                               "the tokenizer's pattern \"%.300s\" moves its own beginning",
                               p->text);
    }
    paid = (uint64_t)(*end_p - at) * PAID_PER_BYTE;
    m->spent -= paid < m->spent ? paid : m->spent;
    return TUTTI_OK;
}
