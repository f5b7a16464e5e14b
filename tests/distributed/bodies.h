/* bodies.h -- shared by tests with rank bodies: checks, and running them at every size as threads and processes.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_BODIES_H
#define TUTTI_TESTS_BODIES_H

#include "base/base.h"
#include "harness/ranks.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK_OK(expression)   CHECK((expression) == TUTTI_OK)
#define CHECK_TEXT(text, part) CHECK(strstr(text, part) != NULL)
#define CHECK_0(helper)        CHECK((helper) == 0) /* of a helper, which has printed what failed */

/* Rows of a cmocka table: TEST(run_all, body). */
#define TEST(run, body)                                                                            \
    {                                                                                              \
#body, run, NULL, NULL, (void *)body                                                       \
    }

/* Likewise with a run of its own: TEST_ON(run, name, options of the group, which run gets as its state). */
#define TEST_ON(run, name, ...)                                                                    \
    {                                                                                              \
#name, run, NULL, NULL, (&(struct tutti_ranks_opts){__VA_ARGS__})                          \
    }

/* Keeps this rank busy while the others wait. */
static inline void be_slow(unsigned ms)
{
    for (uint64_t end = tutti__now_ns() + ms * 1000000ull; tutti__now_ns() < end;)
        ;
}

/* Whether x is the mean of this many ranks' values of at most 1, as the group computes it: with the bits of `mean`, except that
 * NCCL adds more than two in its own order, and multiplies by a rounded 1 / ranks. */
static inline bool is_mean(double x, double mean, int ranks)
{
    const char *backend = getenv("TUTTI_BACKEND");
    const bool exact = !backend || strcmp(backend, "nccl") != 0 || ranks <= 2;

    return exact ? x == mean : fabs(x - mean) <= 2 * (double)FLT_EPSILON;
}

static inline void run(tutti_rank_body *body, void *arg, int n)
{
    assert_int_equal(tutti_run_ranks_as_threads(n, body, arg), 0);
    assert_int_equal(tutti_run_ranks_as_processes(n, body, arg, TUTTI_TRANSPORT_AUTO), 0);
}

/* Without opening the device, after which processes could not be forked. */
static inline bool test_on(const char *kind)
{
    const char *device = getenv("TUTTI_TEST_DEVICE");

    return device && strncmp(device, kind, strlen(kind)) == 0;
}

/* Ranks from 1 to 4, as threads and as processes; by default not in all of the eight ways, but each number and each way, and of devices
 * 1 and 3. On CUDA's stand-ins, where a step takes much longer, 3; with ALL 2 and 3. */
static inline void run_all(void **state)
{
    const bool all = getenv("ALL"), cuda = test_on("cuda"), device = cuda || test_on("strict");
    tutti_rank_body *body = (tutti_rank_body *)*state;

    for (int n = 1; n <= 4; n++) {
        if ((cuda && n != 3 && !(all && n == 2)) || (device && !all && n % 2 == 0))
            continue;
        if (all || n % 2 == 1)
            assert_int_equal(tutti_run_ranks_as_threads(n, body, NULL), 0);
        if (all || n > 1)
            assert_int_equal(tutti_run_ranks_as_processes(n, body, NULL, TUTTI_TRANSPORT_AUTO), 0);
    }
}

/* Processes only: oneDNN's caches, which threads would share, are locked in ways that ThreadSanitizer cannot see. By default
 * 1 and 3. */
static inline void run_all_as_processes(void **state)
{
    for (int n = 1; n <= 4; n += getenv("ALL") ? 1 : 2)
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
    const bool all = getenv("ALL");

    for (int n = all ? 2 : 3; n <= (all ? 4 : 3); n++)
        for (int other = 1; other < n; other += 2)
            run((tutti_rank_body *)*state, &other, n);
}

static inline void run_over_tcp(void **state)
{
    assert_int_equal(
        tutti_run_ranks_as_processes(3, (tutti_rank_body *)*state, NULL, TUTTI_TRANSPORT_TCP), 0);
}

#endif
