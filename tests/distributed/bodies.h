/* bodies.h -- what tests with rank bodies share: checks, and running them at every size both ways.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_BODIES_H
#define TUTTI_TESTS_BODIES_H

#include "base/base.h"
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK_OK(expression)   CHECK((expression) == TUTTI_OK)
#define CHECK_TEXT(text, part) CHECK(strstr(text, part) != NULL)
#define CHECK_0(helper)        CHECK((helper) == 0) /* of the same file: has printed what failed */

/* Rows of a cmocka table: TEST(run_all, body). */
#define TEST(run, body)                                                                            \
    {                                                                                              \
#body, run, NULL, NULL, (void *)body                                                       \
    }

/* Keeps this rank busy: the others wait for it. */
static inline void be_slow(unsigned ms)
{
    for (uint64_t end = tutti__now_ns() + ms * 1000000ull; tutti__now_ns() < end;)
        ;
}

static inline void run(tutti_rank_body *body, void *arg, int n)
{
    assert_int_equal(tutti_run_ranks_as_threads(n, body, arg), 0);
    assert_int_equal(tutti_run_ranks_as_processes(n, body, arg, TUTTI_TRANSPORT_AUTO), 0);
}

static inline void run_all(void **state)
{
    for (int n = 1; n <= 4; n++)
        run((tutti_rank_body *)*state, NULL, n);
}

/* Processes only: oneDNN's caches, which threads would share, are locked in ways that ThreadSanitizer cannot see. */
static inline void run_all_as_processes(void **state)
{
    for (int n = 1; n <= 4; n++)
        assert_int_equal(
            tutti_run_ranks_as_processes(n, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_AUTO),
            0);
}

static inline void run_one(void **state)
{
    run((tutti_rank_body *)*state, NULL, 1);
}

static inline void run_two(void **state)
{
    run((tutti_rank_body *)*state, NULL, 2);
}

/* arg: the rank that differs from the others. */
static inline void run_with_a_rank_that_differs(void **state)
{
    for (int n = 2; n <= 4; n++)
        for (int other = 1; other < n; other += 2)
            run((tutti_rank_body *)*state, &other, n);
}

static inline void run_over_tcp(void **state)
{
    assert_int_equal(
        tutti_run_ranks_as_processes(3, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_TCP), 0);
}

#endif
