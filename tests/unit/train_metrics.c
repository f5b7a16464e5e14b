/* train: records have one type per field; the ledger finds the rank that the others wait for.   SPDX-License-Identifier: MIT */
#include "harness/ranks.h"
#include "train/metrics/ledger.h"
#include "train/metrics/metrics.h"
#include "train/session/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void a_field_has_one_type(void **state)
{
    const tutti__step_metrics m = {.step = 10,
                                   .epoch = 1,
                                   .loss = 2,
                                   .lr = (double)0.05f,
                                   .grad_norm = (double)0.1234567f,
                                   .images_per_s = 1e12,
                                   .tokens_per_s = NAN,
                                   .mfu = NAN,
                                   .time_s = NAN};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    tutti__metrics_print(out, tutti__step_table, &m, ", ");
    fclose(out);
    assert_string_equal(text,
                        "\"step\": 10, \"epoch\": 1, \"loss\": 2.0, \"lr\": 0.05, \"grad_norm\": "
                        "0.1234567, \"images_per_s\": 1e+12, \"time_s\": null, \"compute_ms\": "
                        "0.0, \"communication_ms\": 0.0, \"wait_ms\": 0.0, \"stages_ms\": "
                        "0.0, \"data_ms\": 0.0, \"loss_scale\": 0.0");
    free(text);
}

/* The shortest text of an F32 parses to the same F32. */
static void an_f32_survives(void **state)
{
    static const char before[] = "\"lr\": ";
    unsigned bits = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        tutti__step_metrics m = {0};
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        float value;

        bits = bits * 1664525u + 1013904223u;
        memcpy(&value, &bits, sizeof value);
        m.lr = (double)value;
        assert_non_null(out);
        tutti__metrics_print(out, tutti__step_table, &m, ", ");
        fclose(out);
        if (isfinite(value))
            assert_true(strtof(strstr(text, before) + sizeof before - 1, NULL) == value);
        free(text);
    }
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

/* Steps of 10 s with 1 s of data; the others have waited 2 s for stages, and at the end 3 s for the last rank: all have 1 s of
 * communication. */
static int body(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), last = size - 1;
    const bool slow = tutti_group_rank(group) == last;
    const double waits = 3.0 * last / size, stages = 2.0 * last / size;
    tutti__ledger l, again;
    json_t *json;

    (void)arg;
    CHECK(tutti__ledger_open(&l, size, 1000) == TUTTI_OK);
    for (int i = 0; i < 100; i++)
        tutti__ledger_step(&l, 10, 1, slow ? 0 : 2, slow ? 1 : 4);
    CHECK(tutti__ledger_exchange(&l, group) == TUTTI_OK);
    CHECK(near(l.total[TUTTI__TIME_DATA], 100));
    CHECK(near(l.total[TUTTI__TIME_COMMUNICATION], 100));
    CHECK(near(l.total[TUTTI__TIME_WAIT], 100 * waits));
    CHECK(near(l.total[TUTTI__TIME_STAGES], 100 * stages));
    CHECK(near(l.total[TUTTI__TIME_COMPUTE], 100 * (8 - waits - stages)));
    CHECK(near(l.waited_for[last], 100 * waits));
    CHECK(last == 0 || l.waited_for[0] == 0);
    CHECK(near(tutti__ledger_line_ms(&l, TUTTI__TIME_DATA), 1000));
    CHECK(tutti__ledger_exchange(&l, group) == TUTTI_OK); /* no steps since, so nothing is added */
    CHECK(near(l.total[TUTTI__TIME_DATA], 100));

    /* Resumed by a group with one rank more, and with one rank less. */
    json = tutti__ledger_json(&l);
    for (int n = size + 1; n >= size - 1 && n > 0; n -= 2) {
        CHECK(tutti__ledger_open(&again, n, 1) == TUTTI_OK);
        tutti__ledger_restore(&again, json);
        CHECK(near(again.total[TUTTI__TIME_WAIT], 100 * waits));
        CHECK(n <= size ||
              (near(again.waited_for[last], 100 * waits) && again.waited_for[size] == 0));
        tutti__ledger_close(&again);
    }
    json_decref(json);
    tutti__ledger_close(&l);
    return 0;
}

static void the_ledger_finds_the_slowest(void **state)
{
    static const int sizes[] = {1, 2, 3, 4};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(tutti_run_ranks_as_threads(sizes[i], body, NULL), 0);
}

/* GPT-2 of two blocks on 8 tokens: of everything trained, with the first block frozen, and with adapters of c_attn. */
static void frozen_parameters_take_fewer_flops(void **state)
{
    enum { W = 16, T = 8, V = 11, R = 2, BLOCK = 12 * W * W + 13 * W, REST = 2 * W + V * W };
    static const tutti__task_kind kind = {.is_language_modeling = true};
    const tutti__train_task task = {.kind = &kind, .classes = V, .positions = T};
    const tutti_model_opts opts = {.layers = 2,
                                   .heads = 2,
                                   .hidden = W,
                                   .context = T,
                                   .channels = T,
                                   .height = 1,
                                   .width = 1,
                                   .classes = V};
    const double expected[] = {
        6 * (2 * BLOCK + REST) + 6 * 2 * W * T,
        2 * BLOCK + 6 * BLOCK - 2 * W + 6 * 2 * W + 4 * V * W + (2 + 6) * W * T,
        2 * (2 * W + 3 * W * W) + 4 * (2 * BLOCK - 2 * W - 3 * W * W + REST) +
            6 * 2 * R * (W + 3 * W) + 6 * 2 * W * T};

    (void)state;
    for (int i = 0; i < 3; i++) {
        tutti__text_figures f;
        tutti_model *model;
        tutti_module *m;
        tutti_ctx *cx;

        assert_int_equal(
            tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = 1}),
            TUTTI_OK);
        if (tutti_model_new(&model, cx, "gpt2", &opts) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        m = tutti_model_module(model);
        if (i == 1)
            assert_int_equal(
                tutti_module_freeze(m, "transformer.wte,transformer.wpe,transformer.h.0"),
                TUTTI_OK);
        if (i == 2)
            assert_int_equal(
                tutti_lora_apply(m, &(tutti_lora_opts){.rank = R, .targets = "c_attn"}), TUTTI_OK);
        tutti__text_figures_set(&f, &task, m, false);
        if (f.token_flops != expected[i])
            fail_msg("%d: %.0f FLOPs, expected %.0f", i, f.token_flops, expected[i]);
        tutti_model_free(model);
        tutti_ctx_free(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_field_has_one_type),
                                       cmocka_unit_test(an_f32_survives),
                                       cmocka_unit_test(the_ledger_finds_the_slowest),
                                       cmocka_unit_test(frozen_parameters_take_fewer_flops)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
