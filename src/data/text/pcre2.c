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

enum { MOST_STEPS = 100000000, MOST_TEXT = 1 << 16 };

struct tutti__pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
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
    const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
    PCRE2_UCHAR why[200] = "";
    PCRE2_SIZE at;
    int error;

    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(error, why, sizeof why);
        return tutti__fail(TUTTI_ERR_FORMAT, "the pattern \"%.300s\" is not an expression: %s",
                           shown, (const char *)why);
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it, it is slower */
    p->match = pcre2_match_data_create(1, NULL);
    p->limits = pcre2_match_context_create(NULL);
    if (!p->match || !p->limits)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a pattern");
    pcre2_set_match_limit(p->limits, MOST_STEPS);
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
            status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                 "the pattern \"%.300s\" has a class within a class, or \\S in one",
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
    free(p);
}

bool tutti__pattern_looks_behind(const tutti__pattern *p)
{
    uint32_t characters = 1;

    pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &characters);
    return characters > 0;
}

tutti_status tutti__pattern_next(tutti__pattern *p, const char *text, size_t n, size_t at,
                                 size_t *begin_p, size_t *end_p)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(p->match);
    const int n_found = pcre2_match(p->code, (PCRE2_SPTR)text, n, at,
                                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, p->match, p->limits);
    PCRE2_UCHAR why[200] = "";

    *begin_p = *end_p = n;
    if (n_found == PCRE2_ERROR_NOMATCH)
        return TUTTI_OK;
    if (n_found < 0) {
        pcre2_get_error_message(n_found, why, sizeof why);
        return tutti__fail(TUTTI_ERR_FORMAT, "the tokenizer's pattern fails on this text: %s",
                           (const char *)why);
    }
    *begin_p = found[0];
    *end_p = found[1];
    /* \K may put the beginning anywhere. */
    if (*begin_p < at || *end_p <= *begin_p)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "the tokenizer's pattern moves its own beginning");
    return TUTTI_OK;
}
