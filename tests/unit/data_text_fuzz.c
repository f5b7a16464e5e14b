/* text: no bytes in a tokenizer's file, a .bin or a text crash a reader.   SPDX-License-Identifier: MIT
 *
 * Each round damages a good file: the result is an error with a message, or a tokenizer whose tokens of a text are in range and
 * mean something, or samples below the vocabulary; never an invalid access, which sanitizers check. The noise is Philox's, so that
 * a failure can be reproduced. An argument: the number of rounds of all kinds of files together; data_text_fuzz_long.sh. */
#include "data_support.h"

#include "data/dataset.h"
#include "data_tokenizers.h"

#include <tutti/tokenizer.h>

enum { ROOM = 32768, KINDS = 5 };

static size_t rounds = 200; /* of a kind */

typedef struct text_noise {
    uint32_t round, drawn;
} text_noise;

static uint32_t draw(text_noise *n, uint32_t below)
{
    uint32_t words[4];

    tutti__philox(77, (tutti__philox_counter){{n->round, n->drawn++, 0, 0}}, words);
    return below ? words[0] % below : 0;
}

/* Of what JSON, expressions and base64 are made, or any. */
static char character(text_noise *n)
{
    static const char often[] = "\"\"\"{}[],:  0123456789\\()[]*+?|^$.ptnulfaersLNsS<>=-/u\xc4\xa0";

    return draw(n, 4) ? often[draw(n, sizeof often - 1)] : (char)draw(n, 256);
}

/* Digits become digits, and letters letters: what is read is well-formed, and means something else. */
static size_t damage_gently(text_noise *n, const char *good, size_t n_good, char *bad)
{
    memcpy(bad, good, n_good);
    for (uint32_t i = 1 + draw(n, 4); i > 0; i--) {
        const size_t at = draw(n, (uint32_t)n_good);
        const char c = bad[at];

        if (c >= '0' && c <= '9')
            bad[at] = (char)('0' + draw(n, 10));
        else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
            bad[at] = (char)((c & 0x60) + 1 + draw(n, 26));
    }
    return n_good;
}

/* Changed, inserted, removed and repeated bytes; some rounds cut the file, or are noise alone. */
static size_t damage(text_noise *n, const char *good, size_t n_good, char *bad)
{
    size_t size = n_good;

    if (n->round % 4 == 1)
        return damage_gently(n, good, n_good, bad);
    memcpy(bad, good, n_good);
    if (n->round % 32 == 0) {
        size = draw(n, 3000);
        for (size_t i = n->round % 64 ? 4 : 0; i < size && i < ROOM; i++)
            bad[i] = character(n);
        return size;
    }
    for (uint32_t i = 1 + draw(n, n->round % 2 ? 2 : 6); i > 0 && size > 8; i--) {
        const size_t at = draw(n, (uint32_t)size), length = 1 + draw(n, 4);
        const size_t from = draw(n, (uint32_t)size);

        if (draw(n, 3) == 0) { /* a piece of it elsewhere */
            const size_t room = size - (at > from ? at : from);

            memmove(bad + at, bad + from, length < room ? length : room);
        } else if (draw(n, 3) == 0 && size + length < ROOM) {
            memmove(bad + at + length, bad + at, size - at);
            for (size_t k = 0; k < length; k++)
                bad[at + k] = character(n);
            size += length;
        } else if (draw(n, 3) == 0 && at + length < size) {
            memmove(bad + at, bad + at + length, size - at - length);
            size -= length;
        } else
            bad[at] = character(n);
    }
    return n->round % 11 == 0 ? draw(n, (uint32_t)size) : size;
}

/* ---- Tokenizers ---------------------------------------------------------------------------------------------- */

static void use(tutti_tokenizer *t, const char *text)
{
    tutti_text_stream stream = {.n = 0};
    int64_t *tokens;
    char *back, piece[4096];
    size_t n, bytes, length, sum = 0;

    if (tutti_tokenizer_encode(t, text, strlen(text), &tokens, &n) != TUTTI_OK) {
        assert_true(strlen(tutti_last_error()) > 10);
        return;
    }
    assert_int_equal(tutti_tokenizer_decode(t, tokens, n, &back, &bytes), TUTTI_OK);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(tokens[i], 0, tutti_tokenizer_vocab(t) - 1);
        (void)tutti_tokenizer_bytes(t, tokens[i], &length);
        sum += length;
        (void)tutti_tokenizer_stream(t, &stream, tokens[i], piece, sizeof piece);
    }
    assert_int_equal(sum, bytes);
    free(tokens);
    free(back);
}

static size_t opened;

static void try_tokenizer(const char *path)
{
    static char many[3000];
    tutti_tokenizer *t;

    if (tutti_tokenizer_open(&t, path) != TUTTI_OK) {
        assert_null(t);
        assert_true(strlen(tutti_last_error()) > 10);
        return;
    }
    opened++;
    memset(many, 'l', sizeof many - 1);
    use(t, "hello hello\n\n  hell 123 w\xc3\xb6rld's <|endoftext|> \xf0\x9f\x98\x80 he"
           "o\xcc\x88\xcc\xa3\xe1\x84\x80\xe1\x85\xa1");
    use(t, many);
    tutti_tokenizer_free(t);
}

static void fuzz_tokenizer(const char *path, const char *open, const char *good, size_t n_good)
{
    char bad[ROOM];

    opened = 0;
    for (text_noise n = {0}; n.round < rounds; n.round++, n.drawn = 0) {
        put(path, bad, damage(&n, good, n_good, bad));
        try_tokenizer(open);
    }
    assert_true(!has_patterns() || (opened > 0 && opened < rounds)); /* some of each */
}

static void tokenizer_json(void **state)
{
    const tokenizer_parts parts = {
        .normalizer = "{\"type\": \"NFC\"}",
        .pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
               "{\"Regex\": \"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
               "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\"}, "
               "{\"type\": \"ByteLevel\", \"use_regex\": false}]}"};
    char good[16384];

    (void)state;
    fuzz_tokenizer("tokenizer.json", "tokenizer.json", good,
                   tokenizer_text(good, sizeof good, parts));
}

static void tiktoken(void **state)
{
    static char bad[ROOM + TIKTOKEN_ROOM];
    char good[8192];
    const size_t n_good = tiktoken_text(good, sizeof good);

    (void)state;
    opened = 0;
    for (text_noise n = {0}; n.round < rounds; n.round++, n.drawn = 0) {
        size_t size = damage(&n, good, n_good, bad);

        size += tiktoken_filler(bad + size, 261, TIKTOKENS);
        put("ranks.tiktoken", bad, size);
        try_tokenizer("ranks.tiktoken");
    }
    assert_true(!has_patterns() || (opened > 0 && opened < rounds));
}

static void merges(void **state)
{
    static const char good[] = "#version: 0.2\nh e\nl l\nhe ll\nhell o\nhello hello\n";

    (void)state;
    put_vocab("vocab.json");
    fuzz_tokenizer("merges.txt", "vocab.json", good, sizeof good - 1);
}

/* ---- Data ---------------------------------------------------------------------------------------------------- */

static void try_data(const char *spec, const tutti_text_opts *text)
{
    int64_t x[4], y[4];
    tutti_dataset *dataset;
    tutti_dataset_info info;

    if (tutti_dataset_open_with(&dataset, spec, &(tutti_dataset_opts){.text = text}) != TUTTI_OK) {
        assert_true(strlen(tutti_last_error()) > 10);
        return;
    }
    info = tutti_dataset_describe(dataset);
    for (size_t i = 0; i < info.count && i < 20; i++) {
        if (tutti__dataset_read(dataset, i, NULL, (void *const[]){x, y}) != TUTTI_OK) {
            assert_true(strlen(tutti_last_error()) > 10);
            continue;
        }
        for (int k = 0; k < 4; k++) {
            assert_in_range(x[k], 0, info.classes - 1);
            assert_in_range(y[k], 0, info.classes - 1);
        }
    }
    tutti_dataset_free(dataset);
}

static void bin_files(void **state)
{
    const int32_t heads[2][4] = {{20240520, 1, 30, 300}, {20240801, 7, 30, 0}};
    const tutti_text_opts four = {.context = 4}, small = {.context = 4, .vocab = 200};
    static char good[1024 + 30 * 4], bad[ROOM];

    (void)state;
    for (text_noise n = {0}; n.round < rounds; n.round++, n.drawn = 0) {
        const size_t kind = n.round % 2, bytes = 1024 + 30 * (kind ? 4 : 2);

        memset(good, 0, sizeof good);
        for (size_t i = 1024; i < bytes; i += kind ? 4 : 2)
            good[i] = (char)i;
        memcpy(good, heads[kind], sizeof heads[kind]);
        if (n.round % 3 == 0) { /* in the header alone, which decides */
            memcpy(bad, good, bytes);
            bad[draw(&n, 16)] = (char)draw(&n, 256);
            put("t.bin", bad, n.round % 4 ? bytes : draw(&n, (uint32_t)bytes));
        } else
            put("t.bin", bad, damage(&n, good, bytes, bad));
        try_data("tokens:t.bin/all", n.round % 5 ? &four : &small);
        try_data("tokens:t.bin/test", &four);
    }
}

static void text_files(void **state)
{
    static const char good[] = "\xef\xbb\xbfhello w\xc3\xb6rld's\n \xe2\x82\xac \xf0\x9f\x98\x80 "
                               "<|endoftext|> hello hello";
    const tutti_text_opts bytes = {.context = 4},
                          tokens = {.context = 4, .tokenizer = "tokenizer.json"};
    char bad[ROOM];

    (void)state;
    put_tokenizer("tokenizer.json", TOKENIZER_PARTS);
    for (text_noise n = {0}; n.round < rounds; n.round++, n.drawn = 0) {
        put("t.txt", bad, damage(&n, good, sizeof good - 1, bad));
        try_data("text:t.txt/train", &bytes);
        try_data("text:t.txt/all", &tokens);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[KINDS] = {
        IN_FOLDER(tokenizer_json), IN_FOLDER(tiktoken),   IN_FOLDER(merges),
        IN_FOLDER(bin_files),      IN_FOLDER(text_files),
    };

    if (argc > 1)
        rounds = (size_t)strtoul(argv[1], NULL, 10) / KINDS;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
