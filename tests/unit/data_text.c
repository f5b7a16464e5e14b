/* Text and tokens: windows as samples, splits, vocabularies, files that are refused.   SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"
#include "data/text/tokens.h"

#include <sys/resource.h>

static tutti_dataset *open_text(const char *spec, const tutti_text_opts *text)
{
    tutti_dataset *dataset;

    if (tutti_dataset_open_with(&dataset, spec, &(tutti_dataset_opts){.text = text}) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

static void assert_refused(const char *spec, const tutti_text_opts *text, const char *a,
                           const char *b)
{
    tutti_dataset *dataset;

    assert_int_not_equal(
        tutti_dataset_open_with(&dataset, spec, &(tutti_dataset_opts){.text = text}), TUTTI_OK);
    assert_null(dataset);
    assert_error_says(a, b, NULL);
}

/* Sample i is tokens i T to i T + T, y one later. */
static void assert_windows(const tutti_dataset *dataset, int context, size_t count,
                           const int64_t *tokens)
{
    int64_t x[64], y[64];

    assert_int_equal(tutti_dataset_describe(dataset).count, count);
    assert_true(tutti_shape_equal(dataset->fields[0].shape, TUTTI_SHAPE(context)));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tutti__dataset_read(dataset, i, NULL, (void *const[]){x, y}), TUTTI_OK);
        assert_memory_equal(x, tokens + i * (size_t)context, (size_t)context * sizeof *x);
        assert_memory_equal(y, tokens + i * (size_t)context + 1, (size_t)context * sizeof *y);
    }
}

/* What the data set has learned: a digest, between two texts. Returns the digest. */
static const char *assert_fitted(const tutti_dataset *dataset, const char *before,
                                 const char *behind)
{
    static char digest[33];
    const char *fit = tutti_dataset_fitted(dataset);

    assert_memory_equal(fit, before, strlen(before));
    snprintf(digest, sizeof digest, "%s", fit + strlen(before));
    assert_int_equal(strspn(digest, "0123456789abcdef"), 32);
    assert_string_equal(fit + strlen(before) + 32, behind);
    return digest;
}

static void put_raw(const char *path, const int64_t *tokens, size_t n)
{
    uint16_t raw[4096];

    assert_true(n <= TUTTI__COUNT_OF(raw));
    for (size_t i = 0; i < n; i++)
        raw[i] = (uint16_t)tokens[i];
    put(path, raw, 2 * n);
}

/* llm.c's, with 256 numbers in front. */
static void put_headed(const char *path, const int64_t *tokens, size_t n, int32_t magic,
                       int32_t version, int32_t said, int32_t vocab, size_t cut)
{
    static uint8_t file[1024 + 4 * 4096];
    const int32_t head[] = {magic, version, said, vocab};
    const size_t width = magic == 20240801 ? 4 : 2;

    memset(file, 0, 1024);
    memcpy(file, head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        const uint32_t four = (uint32_t)tokens[i];

        memcpy(file + 1024 + i * width, &four, width); /* little-endian */
    }
    put(path, file, 1024 + n * width - cut);
}

static const int64_t TOKENS[] = {5, 1, 4, 2, 3, 0, 6, 7, 50256, 9, 11, 10};

static void tokens_are_windows(void **state)
{
    const tutti_text_opts four = {.context = 4}, three = {.context = 3, .vocab = 50304};
    tutti_dataset *dataset;

    (void)state;
    put_raw("d/train.bin", TOKENS, 9);
    put_raw("d/val.bin", TOKENS + 2, 4);
    dataset = open_text("tokens:d/train", &four);
    assert_windows(dataset, 4, 2, TOKENS);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 50257);
    assert_fitted(dataset, "{\"format\":\"tokens\",\"vocab\":50257,\"digest\":\"", "\"}");
    tutti_dataset_free(dataset);
    dataset = open_text("tokens:d/test", &three);
    assert_windows(dataset, 3, 1, TOKENS + 2);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 50304);
    tutti_dataset_free(dataset);
    assert_refused("tokens:d/test", &four, "the test split has 4 tokens", "needs 5");
    assert_refused("tokens:d/other", &four, "no split \"other\"", "train, test");
    assert_refused("tokens:none/train", &four, "none", NULL);
}

static void headers_are_llm_c_s(void **state)
{
    const tutti_text_opts four = {.context = 4};
    tutti_dataset *dataset;

    (void)state;
    put_headed("a_train_000.bin", TOKENS, 12, 20240520, 1, 12, 0, 0);
    dataset = open_text("tokens:a_train_000.bin/all", &four);
    assert_windows(dataset, 4, 2, TOKENS);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 50257);
    tutti_dataset_free(dataset);
    put_headed("b.bin", TOKENS, 12, 20240801, 7, 12, 128256, 0);
    dataset = open_text("tokens:b.bin/train", &four);
    assert_windows(dataset, 4, 2, TOKENS); /* of 10 */
    assert_int_equal(tutti_dataset_describe(dataset).classes, 128256);
    tutti_dataset_free(dataset);
    put_headed("c.bin", TOKENS, 12, 20240801, 1, 12, 0, 0);
    assert_refused("tokens:c.bin/all", &four, "c.bin", "version 1, expected 7");
    put_headed("c.bin", TOKENS, 12, 20240520, 1, 13, 0, 0);
    assert_refused("tokens:c.bin/all", &four, "13 tokens", "1050 bytes");
    put_headed("c.bin", TOKENS, 12, 20240520, 1, 12, 0, 2);
    assert_refused("tokens:c.bin/all", &four, "12 tokens", "was it cut");
    put_headed("c.bin", TOKENS, 0, 20240520, 1, 0, 0, 20);
    assert_refused("tokens:c.bin/all", &four, "ends within", NULL);
    put_headed("c.bin", TOKENS, 12, 20240522, 1, 12, 0, 0);
    assert_refused("tokens:c.bin/all", &four, "evaluation file", NULL);
    put("c.bin", "abc", 3);
    assert_refused("tokens:c.bin/all", &four, "3 bytes", "multiple of 2");
}

/* Files of a split are one sequence, in the order of their names. */
static void files_are_joined(void **state)
{
    const tutti_text_opts three = {.context = 3};
    tutti_dataset *dataset;
    int64_t x[3], y[3];

    (void)state;
    put_raw("d/x_train_2.bin", TOKENS + 5, 4);
    put_headed("d/x_train_1.bin", TOKENS, 5, 20240520, 1, 5, 0, 0);
    put_raw("d/x_val_1.bin", TOKENS + 7, 5);
    put_raw("d/other.bin", TOKENS, 1);
    dataset = open_text("tokens:d/train", &three);
    assert_windows(dataset, 3, 2, TOKENS);
    tutti_dataset_free(dataset);
    dataset = open_text("tokens:d/val", &three);
    assert_windows(dataset, 3, 1, TOKENS + 7);
    tutti_dataset_free(dataset);
    dataset = open_text("tokens:d/train", &(tutti_text_opts){.context = 3, .vocab = 7});
    assert_int_equal(tutti__dataset_read(dataset, 0, NULL, (void *const[]){x, y}), TUTTI_OK);
    assert_int_equal(tutti__dataset_read(dataset, 1, NULL, (void *const[]){x, y}), TUTTI_OK);
    tutti_dataset_free(dataset);
    dataset = open_text("tokens:d/train", &(tutti_text_opts){.context = 3, .vocab = 6});
    assert_int_equal(tutti__dataset_read(dataset, 1, NULL, (void *const[]){x, y}),
                     TUTTI_ERR_FORMAT);
    assert_error_says("d/x_train_2.bin: token 1 is 6", "vocabulary of 6", NULL);
    tutti_dataset_free(dataset);
    assert_int_equal(unlink("d/x_val_1.bin"), 0); /* then the last tenth is for testing */
    assert_refused("tokens:d/test", &three, "has 1 token,", NULL);
}

/* From the second epoch on windows begin elsewhere, the same for all samples, and the text is a ring. */
static void windows_move_by_epoch(void **state)
{
    const tutti_loader_opts opts = {.batch = 2, .shuffle = true, .seed = 7};
    const tutti_text_opts four = {.context = 4};
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch b;
    int64_t moved = 0;

    (void)state;
    put_raw("t.bin", TOKENS, 12);
    dataset = open_text("tokens:t.bin/all", &four);
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &opts), TUTTI_OK);
    for (uint64_t epoch = 0; epoch < 16; epoch++) {
        int64_t offset[2];

        tutti_loader_set_epoch(loader, epoch);
        assert_true(tutti_loader_next(loader, &b));
        for (size_t i = 0; i < 2; i++) {
            const int64_t *x = (const int64_t *)b.x.p + 4 * i, *y = (const int64_t *)b.y.p + 4 * i;
            int64_t at = 0;

            while (TOKENS[at] != x[0])
                at++;
            for (int64_t k = 0; k < 4; k++) {
                assert_int_equal(x[k], TOKENS[(at + k) % 12]);
                assert_int_equal(y[k], TOKENS[(at + k + 1) % 12]);
            }
            offset[i] = at - 4 * (int64_t)b.samples[i];
        }
        assert_int_equal(offset[0], offset[1]);
        assert_in_range(offset[0], 0, epoch ? 3 : 0);
        moved |= 1 << offset[0];
    }
    assert_int_equal(moved, 15);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void widen_text(const char *text, int64_t *tokens)
{
    for (size_t i = 0; text[i]; i++)
        tokens[i] = (uint8_t)text[i];
}

static void text_is_bytes(void **state)
{
    const tutti_text_opts five = {.context = 5};
    tutti_dataset *dataset;
    int64_t bytes[64];

    (void)state;
    put_text("one.txt", "\xef\xbb\xbfHello w\xc3\xb6rld.\n"); /* 13 + a mark */
    widen_text("Hello w\xc3\xb6rld.\n", bytes);
    dataset = open_text("text:one.txt/all", &five);
    assert_windows(dataset, 5, 2, bytes);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 256);
    assert_fitted(dataset, "{\"format\":\"text\",\"vocab\":256,\"digest\":\"",
                  "\",\"tokenizer\":{\"kind\":\"bytes\"}}");
    tutti_dataset_free(dataset);
    put_text("d/train.txt", "0123456789abcdef");
    put_text("d/val.txt", "ghijkl");
    widen_text("0123456789abcdef", bytes);
    dataset = open_text("text:d/train", &five);
    assert_windows(dataset, 5, 3, bytes);
    tutti_dataset_free(dataset);
    widen_text("ghijkl", bytes);
    dataset = open_text("text:d/test", &five);
    assert_windows(dataset, 5, 1, bytes);
    tutti_dataset_free(dataset);
    assert_refused("text:d/test", &(tutti_text_opts){.context = 5, .vocab = 255}, "vocab is 255",
                   "256");
    assert_refused("text:d/test", &(tutti_text_opts){.context = 5, .vocab = 1048577},
                   "vocab is 1048577", "up to 1048576");
}

/* A folder's files are documents, with 0 between them. */
static void documents_are_packed(void **state)
{
    const tutti_text_opts three = {.context = 3};
    tutti_dataset *dataset;
    int64_t bytes[64];

    (void)state;
    put_text("d/2.txt", "abcde");
    put_text("d/1.txt", "123");
    put_text("d/0.txt", "");
    put_text("d/readme.md", "no");
    widen_text("123?abcde", bytes);
    bytes[3] = 0;
    dataset = open_text("text:d/all", &three);
    assert_windows(dataset, 3, 2, bytes);
    tutti_dataset_free(dataset);
    assert_int_equal(tutti__make_dirs("empty"), TUTTI_OK);
    assert_refused("text:empty/all", &three, "has no text", "NAME.txt");
}

/* The last tenth, at the beginning of a character. */
static void characters_stay_whole(void **state)
{
    const tutti_text_opts one = {.context = 1};
    tutti_dataset *dataset;
    int64_t bytes[64];

    (void)state;
    put_text("t.txt", "01234567\xc3\xb6"); /* nine tenths are 9 bytes */
    widen_text("01234567\xc3\xb6", bytes);
    dataset = open_text("text:t.txt/train", &one);
    assert_windows(dataset, 1, 7, bytes);
    tutti_dataset_free(dataset);
    dataset = open_text("text:t.txt/val", &one);
    assert_windows(dataset, 1, 1, bytes + 8);
    tutti_dataset_free(dataset);
}

static void what_is_no_text_is_refused(void **state)
{
    const tutti_text_opts one = {.context = 1};
    static char many[70000];

    (void)state;
    put_text("t.txt", "abc\xe4zz zz");
    assert_refused("text:t.txt/all", &one, "t.txt is not UTF-8 at byte 3 (0xe4)", "iconv");
    put_text("t.txt", "abc\xc3");
    assert_refused("text:t.txt/all", &one, "byte 3", "near its end");
    put("t.txt", "ab\0c", 4);
    assert_refused("text:t.txt/all", &one, "byte 2 is 0", "UTF-16");
    memset(many, 'x', sizeof many);
    memcpy(many + 65535, "\xe2\x82\xac", 3); /* across the end of a piece */
    put("t.txt", many, sizeof many);
    tutti_dataset_free(open_text("text:t.txt/all", &one));
    many[65537] = 'x';
    put("t.txt", many, sizeof many);
    assert_refused("text:t.txt/all", &one, "byte 65535", NULL);
}

/* Text is compared whole, however large. */
static void large_text_is_compared(void **state)
{
    enum { N = 6 << 20 };
    const tutti_text_opts one = {.context = 1};
    char *text = malloc(N), *fit;
    tutti_dataset *dataset;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', N);
    put("t.txt", text, N);
    dataset = open_text("text:t.txt/all", &one);
    fit = strdup(tutti_dataset_fitted(dataset));
    tutti_dataset_free(dataset);
    text[20000] = 'b'; /* between the first two of 256 blocks of 16,384 */
    put("t.txt", text, N);
    dataset = open_text("text:t.txt/all", &one);
    assert_string_not_equal(tutti_dataset_fitted(dataset), fit);
    tutti_dataset_free(dataset);
    free(fit);
    free(text);
}

static void numbered(char path[32], const char *dir, int i, const char *extension)
{
    snprintf(path, 32, "%s/train%03d.%s", dir, i, extension);
}

/* A folder may have more files than a process may open. */
static void many_files_are_read(void **state)
{
    enum { N = 300 };
    const tutti_text_opts one = {.context = 1};
    struct rlimit limit, few;
    tutti_dataset *text, *tokens;
    int64_t x, y;
    char path[32];

    (void)state;
    for (int i = 0; i < N; i++) {
        numbered(path, "text", i, "txt");
        put_text(path, "ab");
        numbered(path, "tokens", i, "bin");
        put_raw(path, TOKENS, 2);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = 280;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    text = open_text("text:text/all", &one);
    tokens = open_text("tokens:tokens/all", &one);
    assert_int_equal(tutti_dataset_describe(text).count, 3 * N - 2);
    assert_int_equal(tutti_dataset_describe(tokens).count, 2 * N - 1);
    for (size_t i = 0; i < 3 * N - 2; i++) {
        assert_int_equal(tutti__dataset_read(text, i, NULL, (void *const[]){&x, &y}), TUTTI_OK);
        assert_int_equal(x, "ab"[i % 3]);
        if (i >= 2 * N - 1)
            continue;
        assert_int_equal(tutti__dataset_read(tokens, i, NULL, (void *const[]){&x, &y}), TUTTI_OK);
        assert_int_equal(x, TOKENS[i % 2]);
    }
    numbered(path, "text", N - 1, "txt");
    put_text(path, "changed");
    assert_int_equal(tutti__dataset_read(text, 3 * N - 3, NULL, (void *const[]){&x, &y}),
                     TUTTI_ERR_FORMAT);
    assert_error_says(path, "has 7 bytes, and had 2", NULL);
    tutti_dataset_free(text);
    tutti_dataset_free(tokens);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void shakespeare_is_there(void **state)
{
    static const char alphabet[] =
        "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    tutti_dataset *train = open_text("shakespeare:train", NULL), *test;
    int64_t x[64], y[64];
    char text[65] = "";

    (void)state;
    assert_int_equal(tutti_dataset_describe(train).classes, 65);
    assert_int_equal(tutti_dataset_describe(train).count, 1003853 / 64);
    assert_int_equal(tutti__dataset_read(train, 0, NULL, (void *const[]){x, y}), TUTTI_OK);
    for (int i = 0; i < 64; i++)
        text[i] = alphabet[x[i]];
    assert_string_equal(text,
                        "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAl");
    test = open_text("shakespeare:test", &(tutti_text_opts){.context = 63, .vocab = 128});
    assert_int_equal(tutti_dataset_describe(test).count, 111539 / 63);
    assert_int_equal(tutti_dataset_describe(test).classes, 128);
    assert_int_equal(tutti__dataset_read(test, 0, NULL, (void *const[]){x, y}), TUTTI_OK);
    for (int i = 0; i < 63; i++)
        text[i] = alphabet[x[i]];
    text[63] = '\0';
    assert_string_equal(text,
                        "?\n\nGREMIO:\nGood morrow, neighbour Baptista.\n\nBAPTISTA:\nGood mor");
    tutti_dataset_free(train);
    tutti_dataset_free(test);
}

/* Data of equal size are told apart, by a digest of what a split holds, wherever and in however many files. */
static void fits_tell_texts_apart(void **state)
{
    enum { BYTES = 5 << 20 };
    static const char before[] = "{\"format\":\"text\",\"vocab\":256,\"digest\":\"";
    static const char behind[] = "\",\"tokenizer\":{\"kind\":\"bytes\"}}";
    const size_t sizes[] = {20, 16385, BYTES};
    const tutti_text_opts five = {.context = 5};
    char *text = malloc(BYTES), digest[33];

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    for (size_t i = 0; i < TUTTI__COUNT_OF(sizes); i++) {
        const size_t changed[] = {0, sizes[i] / 2, sizes[i] - 1};
        tutti_dataset *dataset;

        put("a.txt", text, sizes[i]);
        dataset = open_text("text:a.txt/all", &five);
        strcpy(digest, assert_fitted(dataset, before, behind));
        tutti_dataset_free(dataset);
        put("moved/b.txt", text, sizes[i]);
        dataset = open_text("text:moved/b.txt/all", &five);
        assert_string_equal(assert_fitted(dataset, before, behind), digest);
        tutti_dataset_free(dataset);
        for (size_t k = 0; k < TUTTI__COUNT_OF(changed); k += i == 2 ? 2 : 1) {
            text[changed[k]] = 'b';
            put("a.txt", text, sizes[i]);
            dataset = open_text("text:a.txt/all", &five);
            assert_string_not_equal(assert_fitted(dataset, before, behind), digest);
            tutti_dataset_free(dataset);
            text[changed[k]] = 'a';
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tokens_are_windows),    IN_FOLDER(headers_are_llm_c_s),
        IN_FOLDER(files_are_joined),      IN_FOLDER(windows_move_by_epoch),
        IN_FOLDER(text_is_bytes),         IN_FOLDER(documents_are_packed),
        IN_FOLDER(characters_stay_whole), IN_FOLDER(what_is_no_text_is_refused),
        IN_FOLDER(fits_tell_texts_apart), IN_FOLDER(large_text_is_compared),
        IN_FOLDER(many_files_are_read),   cmocka_unit_test(shakespeare_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
