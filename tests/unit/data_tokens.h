/* data_tokens.h -- texts to tokens and back, for tests of tokenizers.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DATA_TOKENS_H
#define TUTTI_TESTS_DATA_TOKENS_H

#include "data_support.h"

#include "data/text/tokenizer.h"

static inline tutti_tokenizer *open_file(const char *path)
{
    tutti_tokenizer *t;

    if (tutti_tokenizer_open(&t, path) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return t;
}

/* The tokens as "1 2 3". */
static inline const char *encode(tutti_tokenizer *t, const char *text)
{
    static char line[4096];
    int64_t *tokens;
    size_t n, at = 0;

    if (tutti_tokenizer_encode(t, text, strlen(text), &tokens, &n) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    line[0] = '\0';
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, "%s%lld", i ? " " : "",
                               (long long)tokens[i]);
    free(tokens);
    return line;
}

static inline void assert_back(tutti_tokenizer *t, const char *text)
{
    tutti_text_stream stream = {.n = 0};
    char piece[256], all[4096] = "", *back;
    int64_t *tokens;
    size_t n, bytes;

    assert_int_equal(tutti_tokenizer_encode(t, text, strlen(text), &tokens, &n), TUTTI_OK);
    assert_int_equal(tutti_tokenizer_decode(t, tokens, n, &back, &bytes), TUTTI_OK);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(back, text);
    for (size_t i = 0; i <= n; i++) {
        assert_true(tutti_tokenizer_stream(t, &stream, i < n ? tokens[i] : -1, piece,
                                           sizeof piece) < sizeof piece);
        assert_true(tutti__is_utf8(piece));
        strcat(all, piece);
    }
    assert_string_equal(all, text);
    free(tokens);
    free(back);
}

#endif
