/* no_pcre2.c -- replaces pcre2.c in a build without PCRE2.   SPDX-License-Identifier: MIT */
#include "data/text/tokenizer.h"

const char tutti__gpt2_pattern[] = "";

tutti_status tutti__pattern_new(tutti__pattern **pattern_p, const char *text, bool literal)
{
    (void)text;
    (void)literal;
    *pattern_p = NULL;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "this build has no tokenizers; install PCRE2's headers (libpcre2-dev) and "
                       "configure again");
}

void tutti__pattern_free(tutti__pattern *pattern)
{
    (void)pattern;
}

bool tutti__pattern_looks_behind(const tutti__pattern *pattern)
{
    (void)pattern;
    return false;
}

tutti_status tutti__pattern_next(tutti__pattern *pattern, tutti__matching *matching,
                                 const char *text, size_t n, size_t at, size_t *begin_p,
                                 size_t *end_p)
{
    (void)pattern;
    (void)matching;
    (void)text;
    (void)at;
    *begin_p = *end_p = n;
    return TUTTI_ERR_UNSUPPORTED;
}
