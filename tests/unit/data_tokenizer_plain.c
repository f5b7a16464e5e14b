/* Tokenizers that need no file and no PCRE2: by name; words that are longer than a block.   SPDX-License-Identifier: MIT */
#include "data_tokens.h"

/* A model of the 256 bytes and of merges of a few letters, with ranks in any order. */
static void make_merges(tutti__bpe *bpe, unsigned *seed)
{
    enum { MERGES = 60, LONGEST = 24 };
    uint8_t texts[256 + MERGES][LONGEST];
    const uint8_t *tokens[256 + MERGES];
    uint32_t lengths[256 + MERGES], pairs[MERGES][2], n = 256;

    *bpe = (tutti__bpe){.unknown = TUTTI__NO_TOKEN};
    for (uint32_t i = 0; i < 256; i++) {
        texts[i][0] = (uint8_t)i;
        lengths[i] = 1;
        bpe->of_byte[i] = i;
    }
    while (n < 256 + MERGES) {
        uint32_t pair[2];

        for (int i = 0; i < 2; i++) { /* one of the letters a, b, c, or a token made of them */
            const uint32_t k = (uint32_t)rand_r(seed) % (n - 256 + 3);

            pair[i] = k < 3 ? 'a' + k : 256 + k - 3;
        }
        if (lengths[pair[0]] + lengths[pair[1]] > LONGEST)
            continue;
        memcpy(texts[n], texts[pair[0]], lengths[pair[0]]);
        memcpy(texts[n] + lengths[pair[0]], texts[pair[1]], lengths[pair[1]]);
        lengths[n] = lengths[pair[0]] + lengths[pair[1]];
        memcpy(pairs[n - 256], pair, sizeof pair);
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = texts[i];
    assert_int_equal(tutti__bpe_set_tokens(bpe, tokens, lengths, n), TUTTI_OK);
    assert_int_equal(tutti__bpe_reserve_merges(bpe, MERGES), TUTTI_OK);
    for (uint32_t i = 0; i < MERGES; i++)
        tutti__bpe_add_merge(bpe, pairs[i][0], pairs[i][1], i * 37 % 61, 256 + i);
}

/* A word that is longer than a block has the tokens that it has as a whole, without the memory for it. */
static void blocks_give_the_same(void **state)
{
    enum { BYTES = 100000, TIMES = 40 };
    uint8_t *word = malloc(BYTES);
    unsigned seed = 1;

    (void)state;
    assert_non_null(word);
    for (int k = 0; k < TIMES; k++) {
        tutti__token_list blocks = {.n = 0}, whole = {.n = 0};
        const int letters = 1 + k % 3;
        tutti__bpe bpe;

        make_merges(&bpe, &seed);
        for (size_t i = 0; i < BYTES; i++)
            word[i] = k % 7 == 6 && i > 100 ? word[i - 96 - i % 5]
                                            : (uint8_t)('a' + rand_r(&seed) % letters);
        assert_int_equal(tutti__bpe_encode(&bpe, word, BYTES, &blocks), TUTTI_OK);
        assert_true(bpe.symbol_room <= BYTES / 5 && bpe.heap_room < BYTES);
        bpe.exact = -1;
        assert_int_equal(tutti__bpe_encode(&bpe, word, BYTES, &whole), TUTTI_OK);
        assert_int_equal(bpe.symbol_room, BYTES);
        assert_int_equal(blocks.n, whole.n);
        assert_memory_equal(blocks.p, whole.p, whole.n * sizeof *whole.p);
        free(blocks.p);
        free(whole.p);
        tutti__bpe_free(&bpe);
    }
    free(word);
}

/* By name, without a file, in any place: the tokens, and what a checkpoint keeps of it. */
static void some_have_names(void **state)
{
    static const char text[] = "To be, or not to be\n";
    tutti_tokenizer *bytes, *characters, *again;
    char *fit, all[256];
    int64_t *tokens;
    size_t n;

    (void)state;
    bytes = open_file("bytes");
    characters = open_file("shakespeare");
    assert_int_equal(tutti_tokenizer_vocab(bytes), 256);
    assert_int_equal(tutti_tokenizer_end_of_text(bytes), 0);
    assert_string_equal(encode(bytes, "caf\xc3\xa9"), "99 97 102 195 169");
    assert_back(bytes, "caf\xc3\xa9, longer than a word of the cache");
    assert_int_equal(tutti_tokenizer_vocab(characters), 65);
    assert_string_equal(encode(characters, "\n !az"), "0 1 2 39 64");
    assert_back(characters, text);
    assert_int_equal(tutti_tokenizer_encode(characters, "\xc3\xa9", 2, &tokens, &n),
                     TUTTI_ERR_FORMAT);
    fit = tutti__tokenizer_json(characters);
    snprintf(all, sizeof all, "{\"tokenizer\":%s}", fit);
    free(fit);
    assert_int_equal(tutti__tokenizer_of_fit(&again, all, NULL, NULL, 0), TUTTI_OK);
    assert_string_equal(encode(again, "\n !az"), "0 1 2 39 64");
    tutti_tokenizer_free(again);
    assert_int_equal(tutti__tokenizer_copy("bytes", "."), TUTTI_OK);
    assert_int_equal(access("tokenizer.json", F_OK), -1);
    put_text("bytes", "no tokenizer");
    assert_int_equal(tutti_tokenizer_open(&again, "./bytes"), TUTTI_ERR_FORMAT);
    tutti_tokenizer_free(bytes);
    tutti_tokenizer_free(characters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_give_the_same),
        IN_FOLDER(some_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
