/* train: clocks with offset and drift are read within the claimed error, for any latencies.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "harness/ranks.h"
#include "train/machine/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void one_question(void **state)
{
    const tutti__clock_reading r = tutti__clock_estimate(1000, 51100, 1400);

    (void)state;
    assert_true(r.at_ns == 1200 && r.offset_ns == 49900 && r.error_ns == 201);
}

/* Any latencies, different in both directions: the true offset is within the error. */
static void the_truth_is_within_the_error(void **state)
{
    uint64_t bits = 1;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        const int64_t offset = (int64_t)(bits >> 20) - ((int64_t)1 << 43);
        int64_t there, back, asked = (int64_t)(bits >> 24);
        tutti__clock_reading r;

        bits = bits * 6364136223846793005u + 1442695040888963407u;
        there = (int64_t)(bits >> 33) % 1000000;
        back = i % 3 == 0 ? 0 : (int64_t)(bits >> 13) % 1000000;
        r = tutti__clock_estimate(asked, asked + there + offset, asked + there + back);
        assert_true(llabs(r.offset_ns - offset) <= r.error_ns);
        assert_true(r.error_ns <= (there + back) / 2 + 1);
    }
}

/* 100 us of drift over 10 s: interpolated between the readings, and extrapolated outside. */
static void drift(void **state)
{
    const int64_t s = 1000000000;
    tutti__clock c = {.n = 2, .first = {5 * s, 7000, 10}, .last = {15 * s, 107000, 10}};

    (void)state;
    assert_true(tutti__clock_of_rank0(&c, (uint64_t)(5 * s)) == 5 * s + 7000);
    assert_true(tutti__clock_of_rank0(&c, (uint64_t)(10 * s)) == 10 * s + 57000);
    assert_true(tutti__clock_of_rank0(&c, (uint64_t)(15 * s)) == 15 * s + 107000);
    assert_true(tutti__clock_of_rank0(&c, (uint64_t)(16 * s)) == 16 * s + 117000);
    c.last = c.first; /* one reading */
    assert_true(tutti__clock_of_rank0(&c, (uint64_t)s) == s + 7000);
}

/* On one host all clocks are rank 0's, exactly. */
static int body(tutti_group *group, void *arg)
{
    tutti__clock c = {0};

    (void)arg;
    for (int i = 0; i < 2; i++)
        CHECK(tutti__clock_read(&c, group) == TUTTI_OK);
    CHECK(c.n == 2 && c.first.offset_ns == 0 && c.last.offset_ns == 0 && c.last.error_ns == 0);
    CHECK(tutti__clock_of_rank0(&c, 12345) == 12345);
    return 0;
}

static void one_host(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++)
        assert_int_equal(tutti_run_ranks_everywhere(size, body, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_question),
        cmocka_unit_test(the_truth_is_within_the_error),
        cmocka_unit_test(drift),
        cmocka_unit_test(one_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
