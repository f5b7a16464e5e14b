/* train_generate.c -- a language model's text: sampling, windows, the key-value cache.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"
#include "train/infer/generation.h"

#include "base/real.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after those above */
#include <cmocka.h>

/* ---- Sampling --------------------------------------------------------------------------------------------------- */

enum { N = 8, DRAWS = 20000 };
static const float LOGITS[N] = {0, 2, 1, -1, 2.5f, -3, 0.5f, 1.5f};

static void draw(const tutti__sampling *s, double share[N])
{
    tutti__choice room[N];

    memset(share, 0, N * sizeof *share);
    for (uint64_t i = 0; i < DRAWS; i++)
        share[tutti__sample_token(s, LOGITS, N, 0, i, room)] += 1.0 / DRAWS;
}

/* The shares are softmax(logits / temperature) over the tokens of `kept`, and 0 of others. */
static void expect_shares(tutti__sampling s, unsigned kept)
{
    double share[N], sum = 0;

    for (int i = 0; i < N; i++)
        sum += kept >> i & 1 ? exp((double)LOGITS[i] / s.temperature) : 0;
    draw(&s, share);
    for (int i = 0; i < N; i++) {
        const double p = kept >> i & 1 ? exp((double)LOGITS[i] / s.temperature) / sum : 0;

        if (fabs(share[i] - p) > 5 * sqrt(p * (1 - p) / DRAWS) + 1e-12)
            fail_msg("token %d: share %g, expected %g", i, share[i], p);
    }
}

static void tokens_come_as_often_as_they_should(void **state)
{
    (void)state;
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 1}, 0xff);
    expect_shares((tutti__sampling){.temperature = 0.5, .top_p = 1, .seed = 3}, 0xff);
    expect_shares((tutti__sampling){.temperature = 2, .top_p = 1, .top_k = 3},
                  1 << 4 | 1 << 1 | 1 << 7);
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 1, .top_k = 100}, 0xff);
    /* 0.42 + 0.26 = 0.68, and with 0.16 it is 0.83 */
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 0.6}, 1 << 4 | 1 << 1);
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 0.7}, 1 << 4 | 1 << 1 | 1 << 7);
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 0}, 1 << 4);
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 0.999999}, 0xff);
    expect_shares((tutti__sampling){.temperature = 1, .top_p = 0.6, .top_k = 1}, 1 << 4);
}

static void the_likeliest_and_numbers_that_are_none(void **state)
{
    static const float odd[4] = {NAN, -INFINITY, 3, 3};
    tutti__choice room[N];

    (void)state;
    assert_int_equal(tutti__sample_token(&(tutti__sampling){.top_p = 1}, LOGITS, N, 0, 5, room), 4);
    assert_int_equal(tutti__sample_token(&(tutti__sampling){.top_p = 1}, odd, 4, 0, 5, room), 2);
    for (uint64_t i = 0; i < 50; i++) {
        const size_t token = tutti__sample_token(
            &(tutti__sampling){.temperature = 1, .top_k = 2, .top_p = 0.9}, odd, 4, 0, i, room);

        assert_true(token == 2 || token == 3);
    }
}

/* ---- Windows ---------------------------------------------------------------------------------------------------- */

static void windows_hold_at_least_half_a_context(void **state)
{
    (void)state;
    for (int64_t context = 1; context < 20; context++)
        for (size_t n = 1; n < 100; n++) {
            const size_t begin = tutti__generation_window(n, context), held = n - begin;

            if (n <= (size_t)context)
                assert_int_equal(begin, 0);
            else
                assert_true(held >= ((size_t)context + 1) / 2 && held <= (size_t)context);
            assert_true(begin <= tutti__generation_window(n + 1, context));
        }
}

/* ---- The cache -------------------------------------------------------------------------------------------------- */

enum { VOCAB = 29, CONTEXT = 12, TOKENS = 40 };

static void write_text(const char *model, bool cached, int threads, float *logits, int64_t *tokens)
{
    static const tutti_llama_opts of_llama = {.kv_heads = 2};
    const tutti_model_opts opts = {.channels = CONTEXT,
                                   .height = 1,
                                   .width = 1,
                                   .classes = VOCAB,
                                   .layers = 2,
                                   .hidden = 32,
                                   .heads = 4,
                                   .llama = strcmp(model, "llama") == 0 ? &of_llama : NULL,
                                   .context = CONTEXT};
    const tutti__sampling s = {.temperature = 1, .top_p = 1, .seed = 11};
    static const int64_t prompt[5] = {3, 1, 4, 1, 5};
    tutti_ctx *cx;
    tutti_model *m;
    tutti__generation g;

    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                                   &(tutti_ctx_opts){.seed = 5, .threads = threads}),
                     TUTTI_OK);
    assert_int_equal(tutti_model_new(&m, cx, model, &opts), TUTTI_OK);
    assert_int_equal(tutti__generation_open(&g, cx, m, cached, CONTEXT, VOCAB, 0), TUTTI_OK);
    assert_int_equal(tutti__generation_begin(&g, prompt, 5), TUTTI_OK);
    for (int i = 0; i < TOKENS; i++) {
        if (tutti__generation_next(&g, &s, 0, &tokens[i]) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        memcpy(logits + (size_t)i * VOCAB, g.logits, VOCAB * sizeof *logits);
    }
    tutti__generation_close(&g);
    tutti_model_free(m);
    tutti_ctx_free(cx);
}

static void the_cache_changes_nothing(void **state)
{
    static float with[TOKENS * VOCAB], without[TOKENS * VOCAB];
    int64_t a[TOKENS], b[TOKENS], c[TOKENS];
    const char *model = *state;

    if (!tutti__model_find(model))
        skip();
    write_text(model, true, 1, with, a);
    write_text(model, false, 1, without, b);
    assert_memory_equal(with, without, sizeof with);
    assert_memory_equal(a, b, sizeof a);
    write_text(model, true, 3, without, c);
    assert_memory_equal(with, without, sizeof with); /* for any number of threads */
    assert_memory_equal(a, c, sizeof a);
}

static void logits_that_are_no_numbers(void **state)
{
    const tutti_model_opts opts = {.channels = CONTEXT,
                                   .height = 1,
                                   .width = 1,
                                   .classes = VOCAB,
                                   .layers = 1,
                                   .hidden = 32,
                                   .heads = 4,
                                   .context = CONTEXT};
    static float bad[VOCAB * 32] = {[3 * 32] = NAN};
    const tutti__sampling s = {.temperature = 1, .top_p = 1};
    const int64_t prompt[1] = {1};
    int64_t token;
    tutti_ctx *cx;
    tutti_model *m;
    tutti__generation g;

    (void)state;
    assert_int_equal(
        tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}),
        TUTTI_OK);
    assert_int_equal(tutti_model_new(&m, cx, "gpt2", &opts), TUTTI_OK);
    assert_int_equal(
        tutti_tensor_write(tutti_module_find(tutti_model_module(m), "transformer.wte.weight"), bad),
        TUTTI_OK);
    assert_int_equal(tutti__generation_open(&g, cx, m, true, CONTEXT, VOCAB, 0), TUTTI_OK);
    assert_int_equal(tutti__generation_begin(&g, prompt, 1), TUTTI_OK);
    assert_int_equal(tutti__generation_next(&g, &s, 0, &token), TUTTI_ERR_FORMAT);
    assert_non_null(
        strstr(tutti_last_error(), "logits after 1 token are NaN (the first of token 3)"));
    tutti__generation_close(&g);
    tutti_model_free(m);
    tutti_ctx_free(cx);
}

static void tokens_that_the_model_does_not_know(void **state)
{
    const int64_t bad[2] = {0, VOCAB};
    tutti__generation g = {.vocab = VOCAB};

    (void)state;
    assert_int_equal(tutti__generation_begin(&g, bad, 2), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "token 29"));
    assert_int_equal(tutti__generation_begin(&g, bad, 0), TUTTI_ERR_ARG);
    tutti__generation_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_as_often_as_they_should),
        cmocka_unit_test(the_likeliest_and_numbers_that_are_none),
        cmocka_unit_test(windows_hold_at_least_half_a_context),
        {"the_cache_changes_nothing: gpt2", the_cache_changes_nothing, NULL, NULL, "gpt2"},
        {"the_cache_changes_nothing: llama", the_cache_changes_nothing, NULL, NULL, "llama"},
        cmocka_unit_test(tokens_that_the_model_does_not_know),
        cmocka_unit_test(logits_that_are_no_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
