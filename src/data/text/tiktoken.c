/* tiktoken.c -- files of tiktoken: lines of a token in base64 and its rank.   SPDX-License-Identifier: MIT
 *
 * There are no merges in them: two neighbours become a token if their bytes together are one, that of the lowest rank first. Here
 * each way to divide a token into two becomes a merge, so that the same code does both. */
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTH = 512 };

static tutti_status bad_line(const tutti_tokenizer *t, size_t line, const char *why)
{
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s: line %zu %s; expected a token in base64, a space and its rank", t->path,
                       line, why);
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes in place; 0: it is not base64. */
static size_t from_base64(char *text)
{
    const size_t n = strlen(text);
    size_t out = 0;

    for (size_t i = 0; i < n; i += 4) {
        int v[4], padding = 0;

        for (size_t k = 0; k < 4; k++) {
            v[k] = i + k < n ? value_of(text[i + k]) : -1;
            if (v[k] < 0 && (i + 4 < n || i + k >= n || text[i + k] != '=' || k < 2))
                return 0;
            if (v[k] >= 0 && padding)
                return 0;
            padding += v[k] < 0;
        }
        text[out++] = (char)(v[0] << 2 | v[1] >> 4);
        if (padding < 2)
            text[out++] = (char)(v[1] << 4 | v[2] >> 2);
        if (padding < 1)
            text[out++] = (char)(v[2] << 6 | v[3]);
    }
    return out;
}

typedef struct ranks {
    const uint8_t **bytes;
    uint32_t *lengths;
    size_t n, lines;
} ranks;

/* "IQ== 0" */
static tutti_status read_line(const tutti_tokenizer *t, ranks *r, char *text, size_t line)
{
    char *space = strchr(text, ' ');
    int64_t rank;
    size_t n;

    if (!space)
        return bad_line(t, line, "has no space");
    *space = '\0';
    if (!tutti__parse_int64(space + 1, &rank) || rank < 0 || (size_t)rank > r->lines)
        return bad_line(t, line, "has no rank, or one beyond the number of lines");
    n = from_base64(text);
    if ((n == 0 && strcmp(text, "=") != 0) || n > MOST_LENGTH) /* Whisper has one without bytes */
        return bad_line(t, line, "is not base64 of 1 to 512 bytes");
    if (r->bytes[rank])
        return bad_line(t, line, "has a rank that another line has");
    r->bytes[rank] = (const uint8_t *)text;
    r->lengths[rank] = (uint32_t)n;
    r->n = (size_t)rank >= r->n ? (size_t)rank + 1 : r->n;
    return TUTTI_OK;
}

static tutti_status read_lines(const tutti_tokenizer *t, ranks *r, char *text)
{
    char *line, *rest = text;

    for (size_t i = 1; (line = strsep(&rest, "\n")); i++) {
        line[strcspn(line, "\r")] = '\0';
        if (*line)
            TUTTI_TRY(read_line(t, r, line, i));
    }
    if (r->n == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has no tokens", t->path);
    return TUTTI_OK;
}

/* The file does not say by which pattern its tokens were made, and another one makes other tokens: the vocabularies that go with GPT-2's
 * are known by their sizes. *end_p: the place of <|endoftext|>. */
static tutti_status check_kind(const tutti_tokenizer *t, const ranks *r, size_t *end_p)
{
    enum { GPT2 = 50256, WHISPER = 50257, P50K = 50281 };
    size_t gaps = 0;

    *end_p = r->n;
    for (size_t i = 0; i < r->n; i++)
        if (!r->bytes[i] && ++gaps == 1)
            *end_p = i;
    if (gaps == 0 ? r->n == GPT2 || r->n == WHISPER : gaps == 1 && r->n == P50K && *end_p == GPT2)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "%s has %zu tokens; expected those of r50k_base (GPT-2's, %d), p50k_base (%d) "
        "or Whisper (%d), which divide text by GPT-2's pattern; of others, use the "
        "tokenizer.json",
        t->path, r->n - gaps, GPT2, P50K - 1, WHISPER);
}

static tutti_status add_merges(tutti_tokenizer *t, const ranks *r, size_t end)
{
    tutti__bpe *bpe = &t->bpe;
    size_t most = 0;

    for (size_t i = 0; i < r->n; i++)
        most += r->lengths[i] > 1 ? r->lengths[i] - 1 : 0;
    TUTTI_TRY(tutti__bpe_reserve_merges(bpe, most));
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 1; i != end && k < r->lengths[i]; k++) {
            const int64_t left = tutti__bpe_find(bpe, r->bytes[i], k);
            const int64_t right = tutti__bpe_find(bpe, r->bytes[i] + k, r->lengths[i] - k);

            if (left >= 0 && right >= 0)
                tutti__bpe_add_merge(bpe, (uint32_t)left, (uint32_t)right, (uint32_t)i,
                                     (uint32_t)i);
        }
    return TUTTI_OK;
}

/* All ranks, and <|endoftext|>. */
static tutti_status set_ranks(tutti_tokenizer *t, ranks *r, size_t *end_p)
{
    static const char end[] = "<|endoftext|>";
    tutti__bpe *bpe = &t->bpe;

    TUTTI_TRY(check_kind(t, r, end_p));
    r->bytes[*end_p] = (const uint8_t *)end;
    r->lengths[*end_p] = sizeof end - 1;
    r->n += *end_p == r->n;
    TUTTI_TRY(tutti__bpe_set_tokens(bpe, r->bytes, r->lengths, r->n));
    TUTTI_TRY(tutti__bpe_index_words(bpe, NULL));
    for (int byte = 0; byte < 256; byte++) {
        const uint8_t one = (uint8_t)byte;

        bpe->of_byte[byte] = tutti__bpe_find(bpe, &one, 1);
        if (bpe->of_byte[byte] < 0)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s has no token of the byte 0x%02x alone; "
                               "expected one for each byte",
                               t->path, byte);
    }
    return add_merges(t, r, *end_p);
}

tutti_status tutti__tokenizer_read_tiktoken(tutti_tokenizer *t, char *text)
{
    tutti__stage stage = {.pattern = NULL};
    ranks r = {.lines = 1};
    tutti_status status = TUTTI_OK;
    size_t end;

    for (const char *p = text; *p; p++)
        r.lines += *p == '\n';
    t->bpe.unknown = TUTTI__NO_TOKEN;
    r.bytes = calloc(r.lines + 2, sizeof *r.bytes);
    r.lengths = calloc(r.lines + 2, sizeof *r.lengths);
    if (!r.bytes || !r.lengths)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s", t->path);
    if (status == TUTTI_OK)
        status = read_lines(t, &r, text);
    if (status == TUTTI_OK)
        status = set_ranks(t, &r, &end);
    if (status == TUTTI_OK)
        status = tutti__tokenizer_add(t, "<|endoftext|>", (int64_t)end, false);
    if (status == TUTTI_OK)
        status = tutti__pattern_new(&stage.pattern, tutti__gpt2_pattern, false);
    if (status == TUTTI_OK)
        status = tutti__tokenizer_add_stage(t, &stage);
    free(r.bytes);
    free(r.lengths);
    return status;
}
