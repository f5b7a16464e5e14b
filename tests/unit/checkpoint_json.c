/* checkpoint_json.c -- JSON for files where memory is missing: whole, or none.   SPDX-License-Identifier: MIT
 *
 * jansson's own functions go on without some allocations, and leave out a key, a value or a part of the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/json_text.h"
#include "checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

#define FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(17))

static long n_calls, fail_at; /* 0: none fails */

static void *limited_malloc(size_t bytes)
{
    return ++n_calls == fail_at ? NULL : malloc(bytes);
}

static json_t *state_new(void)
{
    json_t *state = json_object(), *config = json_object();
    char name[32];

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "key number %d", i);
        json_object_set_new(config, name, json_real(i / 3.0));
        json_object_set_new(state, name, json_string("a text"));
    }
    json_object_set_new(state, "config", config);
    json_object_set_new(state, "digest", json_string("0"));
    return state;
}

static void text_is_whole_or_none(void **unused)
{
    json_t *state = state_new();
    char *whole = tutti__json_text(state, FLAGS), *text, *usual = json_dumps(state, FLAGS);
    long n_missing = 0;

    (void)unused;
    assert_non_null(whole);
    assert_string_equal(whole, usual);
    for (fail_at = 1;; fail_at++, n_missing += !text, free(text)) {
        n_calls = 0;
        text = tutti__json_text(state, FLAGS);
        if (text)
            assert_string_equal(text, whole);
        if (n_calls < fail_at)
            break;
    }
    assert_true(n_missing > 0);
    free(text);
    free(usual);
    free(whole);
    fail_at = 0;
    json_decref(state);
}

static void digest_is_right_or_none(void **unused)
{
    json_t *state = state_new();
    char whole[33], digest[33];
    long n_missing = 0;

    (void)unused;
    assert_int_equal(tutti__state_digest(state, whole), TUTTI_OK);
    for (fail_at = 1;; fail_at++) {
        tutti_status status;

        n_calls = 0;
        status = tutti__state_digest(state, digest);
        if (status == TUTTI_OK)
            assert_string_equal(digest, whole);
        else
            assert_int_equal(status, TUTTI_ERR_MEMORY);
        n_missing += status != TUTTI_OK;
        if (n_calls < fail_at)
            break;
    }
    assert_true(n_missing > 0);
    fail_at = 0;
    json_decref(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_whole_or_none),
        cmocka_unit_test(digest_is_right_or_none),
    };

    json_set_alloc_funcs(limited_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
