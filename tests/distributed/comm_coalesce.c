/* comm: many calls as one.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_BUFS = 400 };

static void run_everywhere(int n, tutti_rank_body *body, void *arg)
{
    assert_int_equal(tutti_run_ranks_everywhere(n, body, arg), 0);
}

/* Sums whose bits depend on their order. */
static void fill(tutti_buf buf, int seed, int rank)
{
    for (size_t i = 0; i < buf.count; i++) {
        unsigned x = (unsigned)(seed * 7919 + (int)i * 31 + rank * 104729) % 65521;

        if (buf.dtype == TUTTI_F32)
            ((float *)buf.p)[i] = 1.0f / (float)(x + 1);
        else if (buf.dtype == TUTTI_BF16)
            ((uint16_t *)buf.p)[i] = (uint16_t)(0x3f00 + x % 256);
        else
            ((int64_t *)buf.p)[i] = (int64_t)x - 30000;
    }
}

static size_t bytes_of(tutti_buf buf)
{
    return buf.count * tutti_dtype_size(buf.dtype);
}

/* Small and large, empty ones and three dtypes in turn: together more than fits into one message. */
static int bufs_new(tutti_buf *bufs, tutti_buf *expected, int rank)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_I64, TUTTI_BF16};

    for (int i = 0; i < N_BUFS; i++) {
        size_t count = i % 10 == 3 ? 0 : i == 7 || i == 50 ? 40000 : (size_t)(1 + i % 120 * 17);

        bufs[i] = TUTTI_BUF(NULL, count, dtypes[i % 3]);
        expected[i] = bufs[i];
        bufs[i].p = malloc(bytes_of(bufs[i]) + 1);
        expected[i].p = malloc(bytes_of(bufs[i]) + 1);
        CHECK(bufs[i].p && expected[i].p);
        fill(bufs[i], i, rank);
        fill(expected[i], i, rank);
    }
    return 0;
}

static int check_and_free(tutti_buf *bufs, tutti_buf *expected)
{
    for (int i = 0; i < N_BUFS; i++) {
        CHECK(bytes_of(bufs[i]) == 0 || memcmp(bufs[i].p, expected[i].p, bytes_of(bufs[i])) == 0);
        free(bufs[i].p);
        free(expected[i].p);
    }
    return 0;
}

static int lists_are_reduced(tutti_group *group, void *arg)
{
    tutti_buf bufs[N_BUFS], expected[N_BUFS];
    tutti_work *work;
    uint64_t before, single;

    (void)arg;
    for (int round = 0; round < 3; round++) {
        if (bufs_new(bufs, expected, tutti_group_rank(group)) != 0)
            return 1;
        before = tutti_group_sequence(group);
        for (int i = 0; i < N_BUFS; i++)
            CHECK(tutti_all_reduce(group, expected[i], TUTTI_SUM, NULL) == TUTTI_OK);
        single = tutti_group_sequence(group) - before;
        before = tutti_group_sequence(group);
        CHECK(tutti_all_reduce_list(group, bufs, N_BUFS, TUTTI_SUM, round ? &work : NULL) ==
              TUTTI_OK);
        if (round)
            CHECK(tutti_work_wait(work) == TUTTI_OK);
        /* they are sent together */
        CHECK(tutti_group_size(group) == 1 || tutti_group_sequence(group) - before < single / 4);
        if (check_and_free(bufs, expected) != 0)
            return 1;
    }
    CHECK(tutti_all_reduce_list(group, NULL, 0, TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce_list(group, NULL, 0, TUTTI_SUM, &work) == TUTTI_OK &&
          tutti_work_wait(work) == TUTTI_OK);
    return 0;
}

static void a_list_has_the_bits_of_its_calls(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, lists_are_reduced, NULL), 0);
    run_everywhere(2, lists_are_reduced, NULL);
    run_everywhere(3, lists_are_reduced, NULL);
}

/* Other kinds among small reductions, in place and not, and counts that are freed after the call. */
static int mixed_calls(tutti_group *group, void *arg)
{
    int32_t size = tutti_group_size(group), rank = tutti_group_rank(group), a = rank, b = rank * 10,
            from = 5, into = 0, all[8], pieces[8], root = size - 1, cast = rank;
    size_t ones[8];
    float least = (float)rank - 3, most = (float)rank;
    tutti_work *work;

    (void)arg;
    for (int r = 0; r < 8; r++)
        ones[r] = 1;
    CHECK(tutti_coalesce_begin(group) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&a, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&least, 1, TUTTI_F32), TUTTI_MIN, NULL) == TUTTI_OK);
    CHECK(tutti_broadcast(group, TUTTI_BUF(&cast, 1, TUTTI_I32), root, NULL) == TUTTI_OK);
    CHECK(tutti_all_gather_v(group, TUTTI_CONST_BUF(&rank, 1, TUTTI_I32),
                             TUTTI_BUF(all, (size_t)size, TUTTI_I32), ones, NULL) == TUTTI_OK);
    memset(ones, 0, sizeof ones);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&b, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&most, 1, TUTTI_F32), TUTTI_MAX, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce_from(group, TUTTI_CONST_BUF(&from, 1, TUTTI_I32),
                                TUTTI_BUF(&into, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_gather(group, TUTTI_CONST_BUF(&rank, 1, TUTTI_I32),
                       rank == root ? TUTTI_BUF(pieces, (size_t)size, TUTTI_I32) : (tutti_buf){0},
                       root, NULL) == TUTTI_OK);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(a == rank && cast == rank && into == 0); /* only recorded */
    CHECK(tutti_coalesce_end(group, &work) == TUTTI_OK && tutti_work_wait(work) == TUTTI_OK);
    CHECK(a == size * (size - 1) / 2 && b == 10 * a && least == -3 && most == (float)(size - 1));
    CHECK(cast == root && into == 5 * size && from == 5);
    for (int r = 0; r < size; r++)
        CHECK(all[r] == r && (rank != root || pieces[r] == r));
    return 0;
}

static void calls_of_all_kinds_are_coalesced(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, mixed_calls, NULL), 0);
    run_everywhere(3, mixed_calls, NULL);
}

static int refusals(tutti_group *group, void *arg)
{
    float x = 1, y = 1;
    const tutti_buf one = {&x, 1, TUTTI_F32, NULL};
    tutti_work *work = (tutti_work *)&x;
    tutti_group *sub;
    void *p;

    (void)arg;
    CHECK(tutti_coalesce_end(group, &work) == TUTTI_ERR_STATE && work == NULL);
    CHECK(tutti_coalesce_begin(group) == TUTTI_OK);
    CHECK(tutti_coalesce_begin(group) == TUTTI_ERR_STATE);
    CHECK(tutti_group_alloc(group, 1, &p) == TUTTI_ERR_STATE);
    CHECK(strstr(tutti_last_error(), "alloc between tutti_coalesce_begin and") != NULL);
    CHECK(tutti_group_split(group, (int[]){0}, 1, NULL, &sub) == TUTTI_ERR_STATE);
    CHECK(tutti_send(group, tutti_buf_const(one), 0, 0, NULL) == TUTTI_ERR_STATE);
    CHECK(tutti_all_reduce_list(group, &one, 1, TUTTI_SUM, NULL) == TUTTI_ERR_STATE);
    CHECK(tutti_all_reduce(group, one, TUTTI_SUM, &work) == TUTTI_ERR_STATE && work == NULL);
    CHECK(strstr(tutti_last_error(), "has no work handle") != NULL);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&y, 1, (tutti_dtype)99), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce(group, one, TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    CHECK(x == (float)tutti_group_size(group) && y == 1);
    CHECK(tutti_all_reduce_list(group, (tutti_buf[]){one, {NULL, 2, TUTTI_F32, NULL}}, 2, TUTTI_SUM,
                                NULL) == TUTTI_ERR_ARG);
    CHECK(strstr(tutti_last_error(), "buffer 1 of 2: all_reduce: buf is NULL") != NULL);
    CHECK(tutti_all_reduce_list(group, NULL, 2, TUTTI_SUM, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_coalesce_begin(group) == TUTTI_OK); /* freed with the group */
    CHECK(tutti_all_reduce(group, one, TUTTI_SUM, NULL) == TUTTI_OK);
    return 0;
}

static void what_cannot_be_coalesced_is_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, refusals, NULL), 0);
    assert_int_equal(tutti_all_reduce_list(NULL, NULL, 0, TUTTI_SUM, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_coalesce_begin(NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_coalesce_end(NULL, NULL), TUTTI_ERR_ARG);
}

/* The same number of calls and elements, but other buffers. */
static int lists_differ(tutti_group *group, void *arg)
{
    float x[30] = {0};
    int rank = tutti_group_rank(group), odd = *(const int *)arg;
    size_t first = rank == odd ? 12 : 10;
    const tutti_buf bufs[] = {{x, first, TUTTI_F32, NULL},
                              {x + first, 30 - first, TUTTI_F32, NULL}};
    char side[32];

    CHECK(tutti_all_reduce_list(group, bufs, 2, TUTTI_SUM, NULL) == TUTTI_ERR_MISMATCH);
    snprintf(side, sizeof side, ", but rank %d called", odd);
    CHECK(strstr(tutti_last_error(), side) != NULL);
    CHECK(strstr(tutti_last_error(), "2 calls in one, digest ") != NULL);
    return 0;
}

static int list_meets_single_call(tutti_group *group, void *arg)
{
    float x[2] = {0};
    const tutti_buf buf = {x, 2, TUTTI_F32, NULL};
    int rank = tutti_group_rank(group), odd = *(const int *)arg;

    CHECK(tutti_all_reduce_list(group, &buf, 1, TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK((rank == odd
               ? tutti_all_reduce(group, buf, TUTTI_SUM, NULL)
               : tutti_all_reduce_list(group, &buf, 1, TUTTI_SUM, NULL)) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "(F32 x 2, sum)") != NULL);
    CHECK(strstr(tutti_last_error(), "(F32 x 2, sum; 1 calls in one, digest ") != NULL);
    return 0;
}

static void other_lists_are_a_mismatch(void **state)
{
    (void)state;
    run_everywhere(3, lists_differ, &(int){2});
    run_everywhere(2, list_meets_single_call, &(int){1});
}

/* Its memory is freed with the group, even if it never runs. */
static int a_dead_group_takes_no_list(tutti_group *group, void *arg)
{
    float x = 0;
    const tutti_buf buf = {&x, 1, TUTTI_F32, NULL};
    tutti_work *work = NULL;

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    tutti_group_abort(group, "enough");
    CHECK(tutti_all_reduce_list(group, &buf, 1, TUTTI_SUM, &work) == TUTTI_ERR_ABORTED && !work);
    CHECK(tutti_all_reduce_list(group, &buf, 1, TUTTI_SUM, NULL) == TUTTI_ERR_ABORTED);
    CHECK(tutti_coalesce_begin(group) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, buf, TUTTI_SUM, NULL) == TUTTI_OK); /* recorded */
    CHECK(tutti_coalesce_end(group, NULL) == TUTTI_ERR_ABORTED);
    return 0;
}

static void dead_groups_refuse(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, a_dead_group_takes_no_list, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_the_bits_of_its_calls),
        cmocka_unit_test(calls_of_all_kinds_are_coalesced),
        cmocka_unit_test(what_cannot_be_coalesced_is_refused),
        cmocka_unit_test(other_lists_are_a_mismatch),
        cmocka_unit_test(dead_groups_refuse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
