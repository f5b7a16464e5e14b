/* data_tokenizers.h -- small tokenizers for tests: all bytes (256 tokens), he, ll, hell, x, hello, two; and <|endoftext|>.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DATA_TOKENIZERS_H
#define TUTTI_TESTS_DATA_TOKENIZERS_H

#include "data_support.h"

#include "data/text/alphabet.h"
#include "data/text/tokenizer.h"

/* Whether this build has patterns; says so if not. */
static inline bool has_patterns(void)
{
    tutti__pattern *pattern;
    const tutti_status status = tutti__pattern_new(&pattern, "a", false);

    if (status == TUTTI_OK)
        tutti__pattern_free(pattern);
    else
        printf("without tokenizers: %s\n", tutti_last_error());
    return status == TUTTI_OK;
}

/* Parts of a tokenizer.json; NULL: those of a good one. */
typedef struct tokenizer_parts {
    const char *type, *model, *normalizer, *pre, *decoder, *merges, *added, *vocab;
} tokenizer_parts;
#define TOKENIZER_PARTS ((tokenizer_parts){NULL})

/* "\"a\": 97," ... and the words. Text that is longer than `size` is a failure of the test. */
static inline void vocab_text(char *text, size_t size)
{
    size_t n = 0;

    for (int byte = 0; byte < 256; byte++) {
        char character[4];

        tutti__alphabet_character((uint8_t)byte, character);
        n += (size_t)snprintf(text + n, size - n, "\"%s%s\": %d, ",
                              byte == '"' || byte == '\\' ? "\\" : "", character, byte);
    }
    n += (size_t)snprintf(text + n, size - n,
                          "\"he\": 256, \"ll\": 257, \"hell\": 258, "
                          "\"hellohello\": 259, \"hello\": 260, \"xy\": 261");
    assert_true(n < size);
}

static inline const char *part_or(const char *part, const char *other)
{
    return part ? part : other;
}

static inline size_t tokenizer_text(char *text, size_t size, tokenizer_parts parts)
{
    char vocab[8192];
    size_t n;

    vocab_text(vocab, sizeof vocab);
    n = (size_t)snprintf(
        text, size,
        "{\"version\": \"1.0\", \"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": %s, "
        "\"decoder\": %s, \"model\": {\"type\": \"%s\", %s \"merges\": %s, \"vocab\": {%s %s}}}",
        part_or(parts.added, "{\"id\": 262, \"content\": \"<|endoftext|>\", \"special\": true}"),
        part_or(parts.normalizer, "null"),
        part_or(parts.pre, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"),
        part_or(parts.decoder, "{\"type\": \"ByteLevel\"}"), part_or(parts.type, "BPE"),
        part_or(parts.model, ""),
        part_or(parts.merges, "[\"h e\", [\"l\", \"l\"], \"he ll\", \"hell o\", \"hello hello\"]"),
        part_or(parts.vocab, ""), vocab);
    assert_true(n < size);
    return n;
}

static inline void put_tokenizer(const char *path, tokenizer_parts parts)
{
    char text[16384];

    put(path, text, tokenizer_text(text, sizeof text, parts));
}

static inline void put_vocab(const char *path)
{
    char vocab[8192], text[8200];

    vocab_text(vocab, sizeof vocab);
    snprintf(text, sizeof text, "{%s}", vocab);
    put_text(path, text);
}

static inline size_t to_base64(const char *bytes, size_t n, char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t out = 0;

    for (size_t i = 0; i < n; i += 3) {
        const uint32_t a = (uint8_t)bytes[i], b = i + 1 < n ? (uint8_t)bytes[i + 1] : 0;
        const uint32_t c = i + 2 < n ? (uint8_t)bytes[i + 2] : 0, all = a << 16 | b << 8 | c;

        text[out++] = digits[all >> 18];
        text[out++] = digits[all >> 12 & 63];
        text[out++] = i + 1 < n ? digits[all >> 6 & 63] : '=';
        text[out++] = i + 2 < n ? digits[all & 63] : '=';
    }
    text[out] = '\0';
    return out;
}

enum { TIKTOKENS = 50256, TIKTOKEN_ROOM = 12 * TIKTOKENS };

/* Tokens of three bytes, of which the first is below 4, with ranks [from, to). */
static inline size_t tiktoken_filler(char *text, int from, int to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;

    for (int i = from; i < to; i++)
        n += (size_t)sprintf(text + n, "A%c%c%c %d\n", digits[i >> 12 & 63], digits[i >> 6 & 63],
                             digits[i & 63], i);
    return n;
}

/* The same words, by their ranks: the first lines of a file. */
static inline size_t tiktoken_text(char *text, size_t size)
{
    static const char *const words[] = {"he", "ll", "hell", "hellohello", "hello"};
    char word[32];
    size_t n = 0;

    for (int i = 0; i < 261; i++) {
        const char byte = (char)i;

        to_base64(i < 256 ? &byte : words[i - 256], i < 256 ? 1 : strlen(words[i - 256]), word);
        n += (size_t)snprintf(text + n, size - n, "%s %d\n", word, i);
    }
    assert_true(n < size);
    return n;
}

static inline void put_tiktoken(const char *path)
{
    static char text[TIKTOKEN_ROOM];
    const size_t n = tiktoken_text(text, sizeof text);

    put(path, text, n + tiktoken_filler(text + n, 261, TIKTOKENS));
}

#endif
