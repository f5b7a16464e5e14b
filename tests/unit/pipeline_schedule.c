/* pipeline: tables of actions: every action once, no deadlock, the order of gradients, memory and bubbles.   SPDX-License-Identifier: MIT */
#include "pipeline/pipeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const tutti_pipeline_kind KINDS[] = {TUTTI_PIPELINE_1F1B, TUTTI_PIPELINE_GPIPE,
                                            TUTTI_PIPELINE_INTERLEAVED, TUTTI_PIPELINE_ZERO_BUBBLE};

static tutti_pipeline_facts facts_of(tutti_pipeline_kind kind, int ranks, int chunks, int m)
{
    tutti_pipeline_table *s;
    tutti_pipeline_facts facts;

    assert_int_equal(tutti_pipeline_table_new(&s, kind, ranks, chunks, m), TUTTI_OK);
    if (tutti_pipeline_table_check(s, NULL, &facts) != TUTTI_OK)
        fail_msg("kind %d, %d ranks, %d chunks, %d micro-batches: %s", (int)kind, ranks, chunks, m,
                 tutti_last_error());
    tutti_pipeline_table_free(s);
    return facts;
}

static void all_can_be_run(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI__COUNT_OF(KINDS); k++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= (KINDS[k] == TUTTI_PIPELINE_INTERLEAVED ? 4 : 1);
                 chunks++)
                for (int m = 1; m <= 16; m++)
                    facts_of(KINDS[k], ranks, chunks, m);
}

/* (P-1)/(M+P-1), the textbook's; with v chunks of a v-th each, (P-1)/(vM+P-1). */
static void bubbles_are_those_of_the_papers(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 16; m++) {
            const double textbook = (p - 1.0) / (m + p - 1.0);
            const tutti_pipeline_facts zero = facts_of(TUTTI_PIPELINE_ZERO_BUBBLE, p, 1, m);

            assert_true(fabs(facts_of(TUTTI_PIPELINE_GPIPE, p, 1, m).bubble - textbook) < 1e-9);
            assert_true(fabs(facts_of(TUTTI_PIPELINE_1F1B, p, 1, m).bubble - textbook) < 1e-9);
            for (int v = 2; v <= 4; v++)
                if (m % p == 0)
                    assert_true(fabs(facts_of(TUTTI_PIPELINE_INTERLEAVED, p, v, m).bubble -
                                     (p - 1.0) / (v * m + p - 1.0)) < 1e-9);
            assert_true(zero.bubble <= textbook + 1e-9);
            if (m >= 2 * p - 1) /* ZB-H1: (P-1)(F + I - W), a third of 1F1B's (P-1)(F + I + W) */
                assert_true(fabs(zero.seconds - (3.0 * m + p - 1)) < 1e-9);
        }
}

static void as_many_micro_batches_are_in_memory_as_the_papers_say(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 16; m++) {
            const int few = m < p ? m : p;

            assert_int_equal(facts_of(TUTTI_PIPELINE_GPIPE, p, 1, m).peak, m);
            assert_int_equal(facts_of(TUTTI_PIPELINE_1F1B, p, 1, m).peak, few);
            assert_true(facts_of(TUTTI_PIPELINE_ZERO_BUBBLE, p, 1, m).peak <= few);
        }
}

static void times_of_unequal_stages(void **state)
{
    static const double forward[] = {1, 3}, input[] = {1, 3}, weight[] = {1, 3};
    tutti_pipeline_table *s;
    tutti_pipeline_facts facts;

    (void)state;
    assert_int_equal(tutti_pipeline_table_new(&s, TUTTI_PIPELINE_1F1B, 2, 1, 4), TUTTI_OK);
    assert_int_equal(
        tutti_pipeline_table_check(
            s, &(tutti_pipeline_times){.forward = forward, .input = input, .weight = weight},
            &facts),
        TUTTI_OK);
    assert_true(fabs(facts.seconds - (1 + 4 * 9 + 2)) < 1e-9); /* the slow one never waits again */
    assert_int_equal(tutti_pipeline_table_check(
                         s,
                         &(tutti_pipeline_times){
                             .forward = forward, .input = input, .weight = weight, .message = 0.5},
                         &facts),
                     TUTTI_OK);
    assert_true(fabs(facts.seconds - (1 + 4 * 9 + 2 + 2 * 0.5)) < 1e-9); /* but for both ends */
    assert_int_equal(tutti_pipeline_table_check(s, &(tutti_pipeline_times){.message = 100}, &facts),
                     TUTTI_OK);
    /* a forward waits for the gradient of the one before the last, of which each message takes 100: four times there, once back at the end */
    assert_true(fabs(facts.seconds - 512) < 1e-9);
    tutti_pipeline_table_free(s);
}

static void text_of_the_table(void **state)
{
    static const char *const one = "0F0,0F1,,0B0,0B1,\n,1F0,1B0,1F1,1B1\n";
    tutti_pipeline_table *s, *made;

    (void)state;
    assert_int_equal(tutti_pipeline_table_read(&s, one), TUTTI_OK);
    assert_int_equal(tutti_pipeline_table_check(s, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_pipeline_table_new(&made, TUTTI_PIPELINE_1F1B, 2, 1, 2), TUTTI_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s->n[r], made->n[r]);
        for (size_t i = 0; i < s->n[r]; i++) {
            assert_int_equal(s->actions[r][i].pass, made->actions[r][i].pass);
            assert_int_equal(s->actions[r][i].micro_batch, made->actions[r][i].micro_batch);
        }
    }
    tutti_pipeline_table_free(s);
    tutti_pipeline_table_free(made);
}

static void wrong_tables_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "0 stages in 0 lines"},
        {"0F0,0X0", "line 1 has \"0X0\""},
        {"0F0,0B99999999", "0B99999999"},
        {"0F0,0B0\n2F0,2B0", "3 stages in 2 lines"},
        {"0F0,1B0\n1F0,0B0", "line 1, of rank 0, has stage 1, which is rank 1's"},
        {"0F0,0F0,0B0", "rank 0's action 1, 0F0, is there twice"},
        {"0F1,0F0,0B0,0B1", "0F1, is not in the order of micro-batches, in which stages send"},
        {"0B0,0F0", "0B0, comes before its forward"},
        {"0F0,0F1,0B1,0B0", "0B1, is not in the order of micro-batches"},
        {"0F0,0F1,0B0", "stage 0, of rank 0, has no backward (B, or I and W) of micro-batch 1"},
        {"0F0,0I0", "no gradients of weights (W) of micro-batch 0"},
        {"0F0,0W0,0I0", "0W0, comes before the gradient of its input (I)"},
        {"0F0,0F1,0I0,0W0,0B1", "0B1, divides a backward"},
        {"0F0,0F1,0I0,0I1,0W1,0W0", "0W1, is not in the order of micro-batches"},
        {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "a deadlock: ranks that do their actions in order "
                                             "wait for each other: rank 0 at 0B0, rank "
                                             "1 at 1F1"},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        tutti_pipeline_table *s;
        tutti_status status = tutti_pipeline_table_read(&s, rows[i].text);

        if (status == TUTTI_OK)
            status = tutti_pipeline_table_check(s, NULL, NULL);
        assert_int_equal(status, TUTTI_ERR_FORMAT);
        if (!strstr(tutti_last_error(), rows[i].why))
            fail_msg("\"%s\": %s", rows[i].text, tutti_last_error());
        tutti_pipeline_table_free(s);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    tutti_pipeline_table *s;

    (void)state;
    assert_int_equal(tutti_pipeline_table_new(&s, TUTTI_PIPELINE_1F1B, 0, 1, 1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_table_new(&s, TUTTI_PIPELINE_1F1B, 2, 2, 1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_table_new(&s, TUTTI_PIPELINE_1F1B, 2, 1, 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_table_new(&s, TUTTI_PIPELINE_INTERLEAVED, 512, 3, 1),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_pipeline_table_new(&s, (tutti_pipeline_kind)9, 1, 1, 1), TUTTI_ERR_ARG);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_can_be_run),
        cmocka_unit_test(bubbles_are_those_of_the_papers),
        cmocka_unit_test(as_many_micro_batches_are_in_memory_as_the_papers_say),
        cmocka_unit_test(times_of_unequal_stages),
        cmocka_unit_test(text_of_the_table),
        cmocka_unit_test(wrong_tables_are_refused),
        cmocka_unit_test(wrong_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
