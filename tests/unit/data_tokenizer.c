/* Tokenizers: tokens of texts, and back; files that are refused, by name; the same tokens piece by piece.
 * SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/text/tokenize.h"
#include "data/text/tokenizer.h"
#include "data_tokenizers.h"
#include "data_tokens.h"

#include <fcntl.h>

static void json_encodes_and_decodes(void **state)
{
    tutti_tokenizer *t;

    (void)state;
    put_tokenizer("tokenizer.json", TOKENIZER_PARTS);
    t = open_file(".");
    assert_int_equal(tutti_tokenizer_vocab(t), 263);
    assert_int_equal(tutti_tokenizer_end_of_text(t), 262);
    assert_string_equal(encode(t, "hello"), "260"); /* he ll o, hello */
    assert_string_equal(encode(t, " hello hell"), "32 260 32 258");
    assert_string_equal(encode(t, ""), "");
    assert_string_equal(encode(t, "he<|endoftext|>he"), "256 262 256");
    assert_back(t, "hello w\xc3\xb6rld \xf0\x9f\x98\x80\n\t hello <|endoftext|> 123");
    assert_string_equal(encode(t, "o\xcc\x88"), "111 204 136");
    assert_int_equal(tutti_tokenizer_encode(t, "a\xff", 2, &(int64_t *){NULL}, &(size_t){0}),
                     TUTTI_ERR_FORMAT);
    assert_error_says("not UTF-8 at byte 1", NULL, NULL);
    tutti_tokenizer_free(t);
}

/* A text as a pattern has no expressions. */
static void literal_patterns_divide(void **state)
{
    tutti_tokenizer *t;

    (void)state;
    put_tokenizer("tokenizer.json",
                  (tokenizer_parts){
                      .pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                             "\"pattern\": {\"String\": \"\\\\C\"}, \"behavior\": \"Isolated\"}, "
                             "{\"type\": \"ByteLevel\", \"use_regex\": false}]}"});
    t = open_file("tokenizer.json");
    assert_string_equal(encode(t, "he\\Cll"), "256 92 67 257");
    tutti_tokenizer_free(t);
}

static void form_c_is_composed(void **state)
{
    tutti_tokenizer *t;

    (void)state;
    put_tokenizer("tokenizer.json", (tokenizer_parts){.normalizer = "{\"type\": \"NFC\"}"});
    t = open_file("tokenizer.json");
    assert_string_equal(encode(t, "o\xcc\x88"), "195 182");    /* o, diaeresis: one character */
    assert_string_equal(encode(t, "\xe2\x84\xab"), "195 133"); /* the Angstrom sign: a letter */
    assert_string_equal(encode(t, "\xe1\x84\x80\xe1\x85\xa1"), "234 176 128"); /* Hangul */
    assert_string_equal(encode(t, "hello<|endoftext|>\xcc\xb8"), "260 262 204 184");
    assert_back(t, "w\xc3\xb6rld \xf0\x9f\x98\x80 \xe4\xb8\xad");
    tutti_tokenizer_free(t);
}

/* Bytes that are in no character become U+FFFD, as in Python's errors="replace". */
static void broken_characters_are_replaced(void **state)
{
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"\xe2\x82"
         "a",
         "\xef\xbf\xbd"
         "a"},
        {"\xf0\x9f\x98\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    tutti_tokenizer *t;

    (void)state;
    assert_int_equal(
        tutti__tokenizer_of_fit(&t, "{\"tokenizer\":{\"kind\":\"bytes\"}}", NULL, NULL, 0),
        TUTTI_OK);
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        tutti_text_stream stream = {.n = 0};
        char piece[16], all[64] = "";

        for (const char *p = rows[i].bytes; *p; p++) {
            assert_int_equal(tutti_tokenizer_stream(t, &stream, (uint8_t)*p, NULL, 0) > 8, false);
            tutti_tokenizer_stream(t, &stream, (uint8_t)*p, piece, sizeof piece);
            strcat(all, piece);
        }
        tutti_tokenizer_stream(t, &stream, -1, piece, sizeof piece);
        strcat(all, piece);
        assert_string_equal(all, rows[i].text);
    }
    assert_string_equal(encode(t, "a\xc3\xb6"), "97 195 182");
    tutti_tokenizer_free(t);
}

static void characters_are_tokens(void **state)
{
    const char *fit = "{\"tokenizer\":{\"kind\":\"characters\",\"characters\":\"\\nab\xc3\xb6\"}}";
    tutti_tokenizer *t;

    (void)state;
    assert_int_equal(tutti__tokenizer_of_fit(&t, fit, NULL, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_tokenizer_vocab(t), 4);
    assert_string_equal(encode(t, "b\xc3\xb6\na"), "2 3 0 1");
    assert_back(t, "b\xc3\xb6\na");
    assert_int_equal(tutti_tokenizer_encode(t, "abc", 3, &(int64_t *){NULL}, &(size_t){0}),
                     TUTTI_ERR_FORMAT);
    assert_error_says("byte 2", "\"c\"", "4 characters");
    tutti_tokenizer_free(t);
}

/* A pre-tokenizer that divides by a regular expression. */
#define SPLIT(regex)                                                                               \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": " \
    "\"" regex                                                                                     \
    "\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}"

static void parts_are_refused_by_name(void **state)
{
    static const struct {
        tokenizer_parts parts;
        const char *a, *b;
    } rows[] = {
        {{.type = "WordPiece"}, "model.type \"WordPiece\"", "byte-level BPE"},
        {{.model = "\"byte_fallback\": true,"}, "byte_fallback", NULL},
        {{.model = "\"dropout\": 0.1,"}, "dropout", NULL},
        {{.model = "\"end_of_word_suffix\": \"</w>\","}, "end_of_word_suffix \"</w>\"", NULL},
        {{.model = "\"unk_token\": \"nothing\","}, "unk_token", "not in model.vocab"},
        {{.normalizer = "{\"type\": \"NFKC\"}"}, "normalizer \"NFKC\"", NULL},
        {{.pre = "{\"type\": \"Metaspace\"}"}, "\"Metaspace\"", NULL},
        {{.pre = "null"}, "pre_tokenizer \"null\"", NULL},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                 "{\"Regex\": \"(\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\"}]}"},
         "pattern \"(\"",
         "not an expression"},
        {{.pre = SPLIT("a\\\\C")}, "pattern \"a\\C\" has \\C", "put . in its place"},
        {{.pre =
              "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
              "{\"Regex\": \"a\"}, \"behavior\": \"MergedWithNext\"}, {\"type\": \"ByteLevel\"}]}"},
         "MergedWithNext",
         NULL},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
                 "{\"type\": \"Digits\"}]}"},
         "ByteLevel",
         NULL},
        {{.decoder = "{\"type\": \"WordPiece\"}"}, "decoder \"WordPiece\"", NULL},
        {{.merges = "[\"h e\", \"x\"]"}, "merge 1 is \"x\"", "two tokens"},
        {{.merges = "[[\"h\", \"q\"]]"}, "\"hq\" is not in the vocabulary", NULL},
        {{.merges = "[3]"}, "merge 0", "pair"},
        {{.added = "{\"id\": 262, \"content\": \"<x>\", \"lstrip\": true}"}, "lstrip", "<x>"},
        {{.added = "{\"id\": 262, \"content\": \"hello\"}"}, "\"hello\" has the id 262", "260"},
        {{.added = "{\"id\": -1, \"content\": \"x\"}"}, "-1", NULL},
        {{.vocab = "\"two\": 5,"}, "two tokens", "id 5"},
    };
    tutti_tokenizer *t;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        put_tokenizer("tokenizer.json", rows[i].parts);
        assert_int_not_equal(tutti_tokenizer_open(&t, "tokenizer.json"), TUTTI_OK);
        assert_error_says(rows[i].a, rows[i].b, "tokenizer.json");
    }
    put_text("tokenizer.json", "{\"model\":");
    assert_int_equal(tutti_tokenizer_open(&t, "tokenizer.json"), TUTTI_ERR_FORMAT);
    assert_error_says("not JSON", NULL, NULL);
    assert_int_equal(tutti_tokenizer_open(&t, "absent"), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti__make_dirs("empty"), TUTTI_OK);
    assert_int_equal(tutti_tokenizer_open(&t, "empty"), TUTTI_ERR_NOT_FOUND);
    assert_error_says("folder empty", "tokenizer.json", NULL);
}

static void tiktoken_ranks_are_merges(void **state)
{
    tutti_tokenizer *t;

    (void)state;
    put_tiktoken("ranks.tiktoken");
    t = open_file("ranks.tiktoken");
    assert_int_equal(tutti_tokenizer_vocab(t), 50257);
    assert_int_equal(tutti_tokenizer_end_of_text(t), 50256);
    assert_string_equal(encode(t, "hello hell<|endoftext|>"), "260 32 258 50256");
    assert_back(t, "hello w\xc3\xb6rld <|endoftext|>");
    tutti_tokenizer_free(t);
    put_text("bad.tiktoken", "IQ== 0\nIg==\n");
    assert_int_equal(tutti_tokenizer_open(&t, "bad.tiktoken"), TUTTI_ERR_FORMAT);
    assert_error_says("line 2", "no space", NULL);
    put_text("bad.tiktoken", "IQ== 0\nI*== 1\n");
    assert_int_equal(tutti_tokenizer_open(&t, "bad.tiktoken"), TUTTI_ERR_FORMAT);
    assert_error_says("line 2", "base64", NULL);
    put_text("bad.tiktoken", "IQ== 0\nIg== 1\n");
    assert_int_equal(tutti_tokenizer_open(&t, "bad.tiktoken"), TUTTI_ERR_UNSUPPORTED);
    assert_error_says("has 2 tokens", "use the tokenizer.json", NULL);
}

/* A file of ranks does not name its pattern: vocabularies are known by their sizes, and by where <|endoftext|> has its place. */
static void tiktoken_kinds(void **state)
{
    static const struct {
        int n, gap, end; /* ranks below n but `gap`; end -1: refused */
    } kinds[] = {{50257, -1, 50257}, {50281, 50256, 50256}, {50281, -1, -1}, {50281, 50000, -1},
                 {50255, -1, -1},    {50256, 300, -1},      {151643, -1, -1}};
    char *text = malloc(12 * 151643 + 8192);
    tutti_tokenizer *t;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(kinds); i++) {
        const int n = kinds[i].n, gap = kinds[i].gap >= 0 ? kinds[i].gap : n;
        size_t bytes = tiktoken_text(text, 8192);

        bytes += tiktoken_filler(text + bytes, 261, gap);
        bytes += tiktoken_filler(text + bytes, gap + 1, n);
        if (n == 50257) /* Whisper's has a token without bytes */
            bytes += (size_t)sprintf(text + bytes - strlen("AMRQ 50256\n"), "= 50256\n") -
                     strlen("AMRQ 50256\n");
        put("kind.tiktoken", text, bytes - 1); /* without the last end of line */
        if (kinds[i].end >= 0) {
            t = open_file("kind.tiktoken");
            assert_int_equal(tutti_tokenizer_end_of_text(t), kinds[i].end);
            assert_int_equal(tutti_tokenizer_vocab(t), n > kinds[i].end ? n : n + 1);
            assert_back(t, "hello <|endoftext|>");
            tutti_tokenizer_free(t);
        } else {
            assert_int_equal(tutti_tokenizer_open(&t, "kind.tiktoken"), TUTTI_ERR_UNSUPPORTED);
            assert_error_says("expected those of r50k_base", NULL, NULL);
        }
    }
    put("byte.tiktoken", text, tiktoken_filler(text, 0, TIKTOKENS));
    assert_int_equal(tutti_tokenizer_open(&t, "byte.tiktoken"), TUTTI_ERR_FORMAT);
    assert_error_says("byte 0x00", NULL, NULL);
    free(text);
}

static void pairs_of_files(void **state)
{
    tutti_tokenizer *t;

    (void)state;
    put_vocab("p/vocab.json");
    put_text("p/merges.txt", "#version: 0.2\nh e\nl l\nhe ll\nhell o\nhello hello\n");
    t = open_file("p");
    assert_string_equal(encode(t, "hello hell"), "260 32 258");
    tutti_tokenizer_free(t);
    put("p/merges.txt", "h e\n\0l l\n", 9);
    assert_int_equal(tutti_tokenizer_open(&t, "p/vocab.json"), TUTTI_ERR_FORMAT);
    assert_error_says("merges.txt", "byte 4 is 0", NULL);
    put_text("p/merges.txt", "h e l\n");
    assert_int_equal(tutti_tokenizer_open(&t, "p/vocab.json"), TUTTI_ERR_FORMAT);
    assert_error_says("merge 0", NULL, NULL);
    assert_int_equal(unlink("p/merges.txt"), 0);
    assert_int_equal(tutti_tokenizer_open(&t, "p/vocab.json"), TUTTI_ERR_NOT_FOUND);
    assert_error_says("merges", NULL, NULL);
    put_text("m/vocab.json", "{\"a\": 0, \"model\": 1}"); /* a word, not a tokenizer.json's part */
    assert_int_equal(tutti_tokenizer_open(&t, "m/vocab.json"), TUTTI_ERR_NOT_FOUND);
    assert_error_says("m/vocab.json", "merges", NULL);
}

/* A run's copy is found by its digest, not another tokenizer. */
static void tokenizers_are_found_again(void **state)
{
    const char *places[] = {NULL, "absent", "other", "run"};
    tutti_tokenizer *t;
    char *json, fit[512];

    (void)state;
    put_tokenizer("mine/some.json", TOKENIZER_PARTS);
    put_tokenizer("other/tokenizer.json",
                  (tokenizer_parts){.added = "{\"id\": 262, \"content\": \"</s>\"}"});
    assert_int_equal(tutti__make_dirs("run"), TUTTI_OK);
    assert_int_equal(tutti__tokenizer_copy("mine/some.json", "run"), TUTTI_OK);
    t = open_file("mine/some.json");
    json = tutti__tokenizer_json(t);
    snprintf(fit, sizeof fit, "{\"tokenizer\":%s}", json);
    free(json);
    tutti_tokenizer_free(t);
    assert_int_equal(tutti__tokenizer_of_fit(&t, fit, NULL, places, 4), TUTTI_OK);
    assert_string_equal(t->path, "run/tokenizer.json");
    tutti_tokenizer_free(t);
    assert_int_equal(tutti__tokenizer_of_fit(&t, fit, NULL, places, 3), TUTTI_ERR_NOT_FOUND);
    assert_error_says("digest", "--tokenizer FILE", NULL);
    assert_int_equal(tutti__tokenizer_of_fit(&t, fit, "other", places, 3), TUTTI_OK);
    tutti_tokenizer_free(t);
    assert_int_equal(tutti__tokenizer_of_fit(&t, "{}", NULL, places, 4), TUTTI_ERR_NOT_FOUND);
}

/* Tokens need no tokenizer: one beside them gives the vocabulary, or is left aside. */
static void tokens_beside_a_tokenizer(void **state)
{
    static const uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const tutti_dataset_opts opts = {.text = &(tutti_text_opts){.context = 4}};
    tutti_dataset *dataset;

    (void)state;
    put("d/train.bin", tokens, sizeof tokens);
    put_tokenizer("d/tokenizer.json", TOKENIZER_PARTS);
    assert_int_equal(tutti_dataset_open_with(&dataset, "tokens:d/all", &opts), TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 263);
    assert_string_equal(tutti__dataset_tokenizer(dataset), "d/tokenizer.json");
    tutti_dataset_free(dataset);
    assert_int_equal(tutti_dataset_open_with(&dataset, "tokens:d/train.bin/all", &opts), TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 263);
    tutti_dataset_free(dataset);
    put_tokenizer("d/tokenizer.json", (tokenizer_parts){.type = "Unigram"});
    assert_int_equal(tutti_dataset_open_with(&dataset, "tokens:d/all", &opts), TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 11);
    assert_null(tutti__dataset_tokenizer(dataset));
    tutti_dataset_free(dataset);
}

/* A file of 32 bits for a large vocabulary, with llm.c's header, is read as it was written. */
static void large_vocabularies_have_32_bits(void **state)
{
    static const char *const sources[] = {"a.txt", "b.txt"};
    const tutti__bin_job job = {
        .sources = sources, .n = 2, .tokenizer = "tokenizer.json", .out = "train.bin"};
    const tutti_dataset_opts opts = {.text = &(tutti_text_opts){.context = 2}};
    tutti__bin_report report;
    tutti_dataset *dataset;
    int64_t x[2], y[2];

    (void)state;
    put_tokenizer("tokenizer.json",
                  (tokenizer_parts){.added = "{\"id\": 70000, \"content\": \"<|endoftext|>\"}"});
    put_text("a.txt", "hello he");
    put_text("b.txt", "ll");
    assert_int_equal(tutti__bin_write(&job, &report), TUTTI_OK);
    assert_true(report.width == 4 && report.tokens == 5 && report.documents == 2 &&
                report.vocab == 70001 && report.bytes == 10);
    assert_int_equal(tutti_dataset_open_with(&dataset, "tokens:train.bin/all", &opts), TUTTI_OK);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 70001);
    assert_int_equal(tutti__dataset_read(dataset, 1, NULL, (void *const[]){x, y}), TUTTI_OK);
    assert_true(x[0] == 256 && x[1] == 70000 && y[0] == 70000 && y[1] == 257);
    tutti_dataset_free(dataset);
    assert_int_equal(tutti__bin_write(&(tutti__bin_job){.sources = sources,
                                                        .n = 1,
                                                        .tokenizer = "tokenizer.json",
                                                        .out = "raw.bin",
                                                        .raw = true},
                                      &report),
                     TUTTI_ERR_ARG);
    assert_error_says("--raw", "70001", NULL);
}

typedef struct tokens_so_far {
    uint32_t *p;
    size_t n;
} tokens_so_far;

static tutti_status put_some(void *user, const uint32_t *tokens, size_t n)
{
    tokens_so_far *all = user;

    all->p = realloc(all->p, (all->n + n + 1) * sizeof *all->p);
    assert_non_null(all->p);
    memcpy(all->p + all->n, tokens, n * sizeof *tokens);
    all->n += n;
    return TUTTI_OK;
}

/* Text is checked when it is opened, and is read again to be tokenized. */
static void text_that_changes_is_refused(void **state)
{
    enum { BYTES = 12 << 20 };
    static const size_t places[] = {0, 5000001, BYTES - 1};
    static const char *const names[] = {"at byte 0", "at byte 5000001", "at byte 12582911"};
    char *text = malloc(BYTES);
    tokens_so_far all;

    (void)state;
    put_tokenizer("tokenizer.json", (tokenizer_parts){NULL});
    for (size_t i = 0; i < TUTTI__COUNT_OF(places); i++) {
        tutti__tokens *bytes = calloc(1, sizeof *bytes);
        tutti_tokenizer *t = open_file("tokenizer.json");
        int fd;

        for (size_t k = 0; k < BYTES; k++)
            text[k] = k % 6 == 5 ? ' ' : 'h';
        put("t.txt", text, BYTES);
        assert_int_equal(tutti__tokens_add_file(bytes, "t.txt", 1, 0, BYTES), TUTTI_OK);
        bytes->used = BYTES;
        fd = open("t.txt", O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, "\xe2", 1, (off_t)places[i]), 1);
        close(fd);
        all = (tokens_so_far){.p = NULL};
        assert_int_equal(tutti__tokenize(t, bytes, &(tutti__token_sink){put_some, &all}, NULL),
                         TUTTI_ERR_FORMAT);
        assert_error_says("t.txt has changed", names[i], NULL);
        free(all.p);
        tutti__tokens_close(bytes);
        tutti_tokenizer_free(t);
    }
    free(text);
}

/* 20 MB, which are read in pieces: words, one of 300,000 characters, an added token now and then. */
static void pieces_give_the_same(void **state)
{
    enum { BYTES = 20 << 20 };
    static const char *const words[] = {"hello", " hello",           "\n\n", "   ",
                                        "hell ", "\xc3\xb6",         " 12",  "<|endoftext|>",
                                        "!?",    "\xf0\x9f\x98\x80", "h"};
    static const tokenizer_parts kinds[] = {
        {NULL},
        {.pre = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}"},
        {.normalizer = "{\"type\": \"NFC\"}"},
    };
    char *text = malloc(BYTES);
    tokens_so_far all;

    (void)state;
    assert_non_null(text);
    for (size_t at = 0, i = 0, length; at < BYTES; at += length, i++) {
        const char *word = words[(i * i + i / 7) % TUTTI__COUNT_OF(words)];

        length = strlen(word);
        if (i == 1000000)
            memset(text + at, 'l', length = 300000);
        else if (length <= BYTES - at)
            memcpy(text + at, word, length);
        else
            memset(text + at, 'x', length = BYTES - at);
    }
    put("t.txt", text, BYTES);
    for (size_t k = 0; k < TUTTI__COUNT_OF(kinds); k++) {
        tutti__tokens *bytes = calloc(1, sizeof *bytes);
        tutti_tokenizer *t;
        int64_t *whole;
        size_t n;

        put_tokenizer("tokenizer.json", kinds[k]);
        t = open_file("tokenizer.json");
        assert_int_equal(tutti__tokens_add_file(bytes, "t.txt", 1, 0, BYTES), TUTTI_OK);
        bytes->used = BYTES;
        all = (tokens_so_far){.p = NULL};
        assert_int_equal(tutti__tokenize(t, bytes, &(tutti__token_sink){put_some, &all}, NULL),
                         TUTTI_OK);
        assert_int_equal(tutti_tokenizer_encode(t, text, BYTES, &whole, &n), TUTTI_OK);
        assert_int_equal(all.n, n);
        for (size_t i = 0; i < n; i++)
            if (whole[i] != all.p[i])
                fail_msg("token %zu is %u, expected %lld", i, all.p[i], (long long)whole[i]);
        free(whole);
        free(all.p);
        tutti_tokenizer_free(t);
        tutti__tokens_close(bytes);
    }
    free(text);
}

/* Each takes time in proportion to the square of a text of one letter, or worse, in its own way. */
static void slow_patterns_end(void **state)
{
    enum { BYTES = 1 << 20 };
    static const struct {
        const char *pre, *named;
    } rows[] = {
        {SPLIT("(*NO_JIT)(?:a|b)*c|."), "pattern \"(*NO_JIT)(?:a|b)*c|.\""},
        {SPLIT("(?:a|b)*c|."), "pattern \"(?:a|b)*c|.\""},
        {SPLIT("(?:a|b)*c"), "pattern \"(?:a|b)*c\""}, /* begins anywhere, in one call */
        {SPLIT("a*+b|."), "pattern \"a*+b|.\""},       /* does not backtrack */
        {SPLIT("(?=a*+b)a|."), "pattern \"(?=a*+b)a|.\""},
        {SPLIT("(?:a+)+b|."), "pattern \"(?:a+)+b|.\""},
        {SPLIT("(*NO_JIT)(?:a+)+b|."), "pattern \"(*NO_JIT)(?:a+)+b|.\""},
    };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        tutti_tokenizer *t;
        int64_t *tokens;
        size_t n;

        put_tokenizer("tokenizer.json", (tokenizer_parts){.pre = rows[i].pre});
        t = open_file("tokenizer.json");
        assert_int_equal(tutti_tokenizer_encode(t, text, BYTES, &tokens, &n), TUTTI_ERR_FORMAT);
        assert_error_says(rows[i].named, "too many steps", "linear time");
        tutti_tokenizer_free(t);
    }
    free(text);
}

/* Long words and lookahead are not refused: time is in proportion to their length. */
static void long_words_are_matched(void **state)
{
    enum { BYTES = 3 << 20 };
    static const char *const patterns[] = {
        SPLIT("\\\\p{L}+|\\\\s+(?!\\\\S)|\\\\s+"),
        SPLIT("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lo}]*[\\\\p{Ll}\\\\p{Lo}]+|[\\\\p{Lu}"
              "\\\\p{Lo}]+|\\\\s+"),
        SPLIT("\\\\p{N}{1,3}|z"),
        SPLIT("(*NO_JIT)A+|b+|\\\\s+"),
    };
    char *text = malloc(BYTES);

    (void)state;
    assert_non_null(text);
    memset(text, 'A', BYTES);
    memset(text + BYTES / 3, ' ', BYTES / 3);
    memset(text + BYTES / 3 * 2, 'b', 12345);
    for (size_t i = 0; i < TUTTI__COUNT_OF(patterns); i++) {
        tutti_tokenizer *t;
        int64_t *tokens;
        size_t n;

        put_tokenizer("tokenizer.json", (tokenizer_parts){.pre = patterns[i]});
        t = open_file("tokenizer.json");
        if (tutti_tokenizer_encode(t, text, BYTES, &tokens, &n) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        assert_int_equal(n, BYTES);
        free(tokens);
        tutti_tokenizer_free(t);
    }
    free(text);
}

static bool stop_at_once(void *user, size_t done, size_t total)
{
    (void)total;
    *(size_t *)user = done;
    return false;
}

/* A text whose pattern looks behind is one piece: work on it stops within it, and leaves no file. */
static void tokenizing_stops_within_a_piece(void **state)
{
    enum { BYTES = 1 << 20 };
    static char text[BYTES];
    static const char *const source = "t.txt";
    size_t done = 1;
    tutti__bin_job job = {.sources = &source,
                          .n = 1,
                          .tokenizer = "tokenizer.json",
                          .out = "out/train.bin",
                          .tick = &(tutti__tick){stop_at_once, &done}};

    (void)state;
    memset(text, 'a', BYTES);
    put(source, text, BYTES);
    put_tokenizer("tokenizer.json", (tokenizer_parts){.pre = SPLIT("(?<=a)a|a")});
    assert_int_equal(tutti__make_dirs("out"), TUTTI_OK);
    assert_int_equal(tutti__bin_write(&job, &(tutti__bin_report){.tokens = 0}), TUTTI_ERR_STATE);
    assert_int_equal(done, 0);
    assert_int_equal(rmdir("out"), 0); /* empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(json_encodes_and_decodes),
        IN_FOLDER(literal_patterns_divide),
        IN_FOLDER(form_c_is_composed),
        cmocka_unit_test(broken_characters_are_replaced),
        cmocka_unit_test(characters_are_tokens),
        IN_FOLDER(parts_are_refused_by_name),
        IN_FOLDER(tiktoken_ranks_are_merges),
        IN_FOLDER(tiktoken_kinds),
        IN_FOLDER(pairs_of_files),
        IN_FOLDER(tokenizers_are_found_again),
        IN_FOLDER(text_that_changes_is_refused),
        IN_FOLDER(pieces_give_the_same),
        IN_FOLDER(slow_patterns_end),
        IN_FOLDER(long_words_are_matched),
        IN_FOLDER(tokenizing_stops_within_a_piece),
        IN_FOLDER(tokens_beside_a_tokenizer),
        IN_FOLDER(large_vocabularies_have_32_bits),
    };

    return has_patterns() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
