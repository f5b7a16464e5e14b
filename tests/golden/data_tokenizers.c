/* Tokens of 150 odd strings, and back, as Hugging Face's tokenizers makes them (tests/harness/tokenizers_parity.py --record).
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>
#include <tutti/tokenizer.h>
#include <unistd.h>
#include <zlib.h>

static json_t *read_golden(void)
{
    char path[4096], *text = NULL;
    size_t n = 0, room = 0;
    json_t *rows;
    gzFile file;
    int got;

    snprintf(path, sizeof path, "%s/tests/golden/tokenizers.json.gz", getenv("SOURCE_DIR"));
    file = gzopen(path, "rb");
    assert_non_null(file);
    do {
        room += 1 << 16;
        assert_non_null(text = realloc(text, room));
        got = gzread(file, text + n, (unsigned)(room - n));
        assert_true(got >= 0);
        n += (size_t)got;
    } while (got > 0);
    gzclose(file);
    rows = json_loadb(text, n, 0, NULL);
    assert_non_null(rows);
    free(text);
    return rows;
}

static tutti_tokenizer *open_row(const json_t *row)
{
    char path[] = "/tmp/tutti-tokenizer-XXXXXX";
    const int fd = mkstemp(path);
    tutti_tokenizer *t;
    tutti_status status;

    assert_true(fd >= 0);
    assert_int_equal(json_dumpfd(json_object_get(row, "tokenizer"), fd, JSON_COMPACT), 0);
    close(fd);
    status = tutti_tokenizer_open(&t, path);
    unlink(path);
    if (status == TUTTI_ERR_UNSUPPORTED)
        skip(); /* a build without PCRE2 */
    if (status != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return t;
}

static void check_case(const char *name, tutti_tokenizer *t, const json_t *one)
{
    const json_t *expected = json_array_get(one, 1);
    const char *text = json_string_value(json_array_get(one, 0));
    int64_t *tokens;
    size_t n, bytes;
    char *back;

    assert_int_equal(tutti_tokenizer_encode(t, text, strlen(text), &tokens, &n), TUTTI_OK);
    if (n != json_array_size(expected))
        fail_msg("%s: \"%s\" has %zu tokens, expected %zu", name, text, n,
                 json_array_size(expected));
    for (size_t i = 0; i < n; i++)
        if (tokens[i] != json_integer_value(json_array_get(expected, i)))
            fail_msg("%s: token %zu of \"%s\" is %lld, expected %lld", name, i, text,
                     (long long)tokens[i],
                     (long long)json_integer_value(json_array_get(expected, i)));
    assert_int_equal(tutti_tokenizer_decode(t, tokens, n, &back, &bytes), TUTTI_OK);
    assert_string_equal(back, text);
    free(tokens);
    free(back);
}

static void as_hugging_face(void **state)
{
    json_t *rows = read_golden(), *row, *one;
    size_t i, k;

    (void)state;
    json_array_foreach(rows, i, row)
    {
        tutti_tokenizer *t = open_row(row);

        json_array_foreach(json_object_get(row, "cases"), k, one)
            check_case(json_string_value(json_object_get(row, "name")), t, one);
        tutti_tokenizer_free(t);
    }
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_hugging_face)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
