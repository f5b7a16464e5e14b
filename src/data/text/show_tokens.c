/* show_tokens.c -- describes a data set of tokens.   SPDX-License-Identifier: MIT */
#include "data/text/tokenize.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 4096, MOST_FREQUENT = 10, BEGINNING = 64, SHOWN = 400 };

typedef struct token_survey {
    const tutti__tokens *t;
    tutti_tokenizer *tokenizer; /* NULL: not known */
    uint64_t *counts;           /* [t->vocab] */
} token_survey;

static tutti_status count(token_survey *s, const tutti__tick *tick)
{
    const tutti__tokens *t = s->t;
    int64_t some[AT_ONCE];
    size_t n;

    for (uint64_t done = 0; done < t->used; done += n) {
        n = t->used - done < AT_ONCE ? (size_t)(t->used - done) : AT_ONCE;
        TUTTI_TRY(tutti__tokens_read(t, t->from + done, n, some));
        TUTTI_TRY(tutti__tokens_check(t, t->from + done, n, some));
        for (size_t i = 0; i < n; i++)
            s->counts[some[i]]++;
        TUTTI_TRY(tutti__tick_call(tick, (size_t)(done + n), (size_t)t->used));
    }
    return TUTTI_OK;
}

static void print_token(FILE *out, const token_survey *s, size_t token)
{
    size_t n;
    const char *bytes = tutti_tokenizer_bytes(s->tokenizer, (int64_t)token, &n);
    char text[64], shown[256];

    snprintf(text, sizeof text, "%.*s", n < 40 ? (int)n : 40, bytes);
    fprintf(out, "%-8zu %12llu %8.2f %%  %s%s%s\n", token, (unsigned long long)s->counts[token],
            100 * (double)s->counts[token] / (double)s->t->used, s->tokenizer ? "\"" : "",
            tutti__printable(text, shown, sizeof shown), s->tokenizer ? "\"" : "");
}

static void print_most_frequent(FILE *out, const token_survey *s)
{
    const size_t vocab = (size_t)s->t->vocab;
    uint64_t before = UINT64_MAX;
    size_t printed = 0, last = 0;

    fprintf(out, "\n%-8s %12s %10s  %s\n", "token", "times", "", s->tokenizer ? "text" : "");
    while (printed < MOST_FREQUENT && before > 0) {
        size_t best = vocab; /* of those as frequent as the last one, only the ones behind it */

        for (size_t i = 0; i < vocab; i++)
            if ((s->counts[i] < before || (s->counts[i] == before && i > last)) &&
                (best == vocab || s->counts[i] > s->counts[best]))
                best = i;
        if (best == vocab || s->counts[best] == 0)
            break;
        print_token(out, s, best);
        before = s->counts[best];
        last = best;
        printed++;
    }
}

static tutti_status print_beginning(FILE *out, const token_survey *s)
{
    const size_t n = s->t->used < BEGINNING ? (size_t)s->t->used : BEGINNING;
    int64_t tokens[BEGINNING];
    char *text, shown[4 * SHOWN];
    size_t bytes, valid;

    TUTTI_TRY(tutti__tokens_read(s->t, s->t->from, n, tokens));
    if (!s->tokenizer) {
        fprintf(out, "\nthe first tokens:");
        for (size_t i = 0; i < n && i < 16; i++)
            fprintf(out, " %lld", (long long)tokens[i]);
        fputc('\n', out);
        return TUTTI_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= tutti_tokenizer_vocab(s->tokenizer))
            return TUTTI_OK; /* of a vocabulary that was made larger */
    TUTTI_TRY(tutti_tokenizer_decode(s->tokenizer, tokens, n, &text, &bytes));
    valid = tutti__utf8_valid((const uint8_t *)text, bytes < SHOWN ? bytes : SHOWN);
    text[valid] = '\0';
    fprintf(out, "\nthe text begins:\n%s\n", tutti__printable_lines(text, shown, sizeof shown));
    free(text);
    return TUTTI_OK;
}

static void print_all(FILE *out, const tutti_dataset *dataset, const token_survey *s)
{
    const int64_t end = tutti_tokenizer_end_of_text(s->tokenizer);
    const char *path = s->tokenizer ? s->tokenizer->path : "", *name = strrchr(path, '/');
    size_t used = 0;
    char shown[256];

    for (int i = 0; i < s->t->vocab; i++)
        used += s->counts[i] > 0;
    fprintf(out, "data set   %s, %s\n", dataset->info.name, dataset->info.split);
    fprintf(out, "tokens     %llu\n", (unsigned long long)s->t->used);
    fprintf(out, "samples    %zu of %zu tokens\n", dataset->info.count, s->t->context);
    fprintf(out, "vocabulary %d, of which %zu occur\n", s->t->vocab, used);
    fprintf(out, "tokenizer  %s\n",
            !s->tokenizer ? "not known (give it with --tokenizer FILE)"
            : *path       ? tutti__printable(name ? name + 1 : path, shown, sizeof shown)
            : s->tokenizer->is_characters ? "characters"
                                          : "bytes");
    if (end >= 0 && end < s->t->vocab)
        fprintf(out, "documents  %llu\n", (unsigned long long)s->counts[end] + 1);
}

static tutti_status survey(const tutti_dataset *dataset, FILE *out, const tutti__tick *tick)
{
    const tutti__tokens *t = dataset->self;
    const char *places[] = {t->tokenizer};
    token_survey s = {.t = t, .counts = tutti__alloc((size_t)t->vocab * sizeof *s.counts)};
    tutti_status status = s.counts ? count(&s, tick) : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK && strstr(t->fit, "\"tokenizer\""))
        status = tutti__tokenizer_of_fit(&s.tokenizer, t->fit, NULL, places, 1);
    if (status == TUTTI_OK) {
        print_all(out, dataset, &s);
        print_most_frequent(out, &s);
        status = print_beginning(out, &s);
    }
    free(s.counts);
    tutti_tokenizer_free(s.tokenizer);
    return status;
}

bool tutti__data_show_tokens(const tutti_dataset *dataset, FILE *out, const tutti__tick *tick,
                             tutti_status *status_p)
{
    if (!dataset->format || dataset->format->read_arrays != tutti__tokens_sample)
        return false;
    *status_p = survey(dataset, out, tick);
    return true;
}
