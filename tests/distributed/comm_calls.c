/* comm: sequence numbers and time limits of calls; sub-groups' ranks, parts, and separate traffic;
 * PyTorch's elementary cases. SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static void run_everywhere(int n, tutti_rank_body *body, void *arg)
{
    assert_int_equal(tutti_run_ranks_everywhere(n, body, arg), 0);
}

static bool says(const char *text)
{
    bool found = strstr(tutti_last_error(), text) != NULL;

    if (!found)
        fprintf(stderr, "expected \"%s\" in: %s\n", text, tutti_last_error());
    return found;
}

/* ---- PyTorch's elementary cases ----------------------------------------------------------------------------- */

static tutti_status reduce_int(tutti_group *group, int32_t *x, tutti_redop op)
{
    return tutti_all_reduce(group, TUTTI_BUF(x, 1, TUTTI_I32), op, NULL);
}

static int closed_forms(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group), factorial = 1, all = 0;
    int32_t x;

    (void)arg;
    for (int r = 1; r <= size; r++)
        factorial *= r;
    x = rank + 1;
    CHECK(reduce_int(group, &x, TUTTI_SUM) == TUTTI_OK && x == size * (size + 1) / 2);
    x = rank + 1;
    CHECK(reduce_int(group, &x, TUTTI_PRODUCT) == TUTTI_OK && x == factorial);
    x = rank + 1;
    CHECK(reduce_int(group, &x, TUTTI_MIN) == TUTTI_OK && x == 1);
    x = rank + 1;
    CHECK(reduce_int(group, &x, TUTTI_MAX) == TUTTI_OK && x == size);
    for (int i = 0; i < 4; i++) { /* all ranks share one bit */
        x = rank << 4 | 1 << i;
        CHECK(reduce_int(group, &x, TUTTI_BAND) == TUTTI_OK && x == 1 << i);
        x = 1 << (rank + i);
        CHECK(reduce_int(group, &x, TUTTI_BOR) == TUTTI_OK && x == ((1 << size) - 1) << i);
    }
    for (int r = 0; r < 3 * size; r++)
        all ^= r;
    x = (3 * rank) ^ (3 * rank + 1) ^ (3 * rank + 2);
    CHECK(reduce_int(group, &x, TUTTI_BXOR) == TUTTI_OK && x == all);
    return 0;
}

/* PyTorch coalesces these into one call; here two are in flight. */
static int two_at_once(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group), rank = tutti_group_rank(group);
    int32_t x = rank + 1, y = (rank + 1) * (rank + 1);
    tutti_work *first, *second;

    (void)arg;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_I32), TUTTI_SUM, &first) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&y, 1, TUTTI_I32), TUTTI_SUM, &second) == TUTTI_OK);
    CHECK(tutti_work_wait(second) == TUTTI_OK && tutti_work_wait(first) == TUTTI_OK);
    CHECK(x == n * (n + 1) / 2 && y == n * (n + 1) * (2 * n + 1) / 6);
    return 0;
}

static void reductions_have_their_closed_forms(void **state)
{
    (void)state;
    run_everywhere(4, closed_forms, NULL);
    run_everywhere(1, closed_forms, NULL);
    run_everywhere(4, two_at_once, NULL);
}

/* ---- Sequence numbers ------------------------------------------------------------------------------------------------- */

static int numbers(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    uint64_t first = tutti_group_sequence(group);
    tutti_work *work = NULL;
    float x = 1;

    (void)arg;
    for (int i = 0; i < 10; i++)
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_MAX, NULL) == TUTTI_OK);
    CHECK(tutti_group_sequence(group) == first + 10);
    /* Ranks 0 and 2 wait, and are exactly one call behind. */
    if (rank == 1) {
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_MAX, &work) == TUTTI_OK);
        while (tutti_group_sequence(group) == first + 10)
            usleep(100);
    }
    CHECK(tutti_group_sequence(group) == first + 10 + (rank == 1));
    if (rank == 1)
        return tutti_work_wait(work) == TUTTI_OK ? 0 : 1;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_MAX, NULL) == TUTTI_OK);
    CHECK(tutti_group_sequence(group) == first + 11);
    return 0;
}

static void ranks_in_step_have_the_same_number(void **state)
{
    (void)state;
    run_everywhere(3, numbers, NULL);
}

/* ---- Time limits ------------------------------------------------------------------------------------------------ */

static int patience(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    double begin = tutti__now_ms();
    tutti_work *work;
    float x = 1, y = 1;

    (void)arg;
    if (rank == 0) { /* the others call only after this one has stopped waiting twice */
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &work) == TUTTI_OK);
        CHECK(tutti_work_wait_for(work, -1) == TUTTI_ERR_ARG);
        CHECK(tutti_work_wait_for(work, 0) == TUTTI_ERR_TIMEOUT);
        CHECK(tutti_work_wait_for(work, 30) == TUTTI_ERR_TIMEOUT);
        CHECK(says("rank 0 of group \"world\": all_reduce is not done after 0.03 s; it is still "
                   "in progress: wait for it again"));
        CHECK(tutti__now_ms() - begin >= 30 && !tutti_work_done(work));
        CHECK(tutti_store_set(group->boot.store, "gave up", "", 0) == TUTTI_OK);
        CHECK(tutti_work_wait_for(work, 20000) == TUTTI_OK);
    } else {
        CHECK(tutti_store_wait(group->boot.store, "gave up", 20000) == TUTTI_OK);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    }
    CHECK(x == (float)tutti_group_size(group));
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&y, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_work_wait_for(NULL, 1) == TUTTI_ERR_ARG);
    return 0;
}

static void waiting_may_end_before_the_work(void **state)
{
    (void)state;
    run_everywhere(3, patience, NULL);
}

static int short_limit(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_work *work = NULL;
    tutti_status status;
    double begin;
    float x = 1;

    (void)arg;
    CHECK(tutti_group_set_timeout(group, -1) == TUTTI_ERR_ARG && says("-1 ms"));
    CHECK(tutti_group_set_timeout(group, 1) == TUTTI_OK);
    CHECK(tutti_group_set_timeout(group, 0) == TUTTI_OK); /* the group's default again */
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (rank == 1) {
        /* Does not call until the other has timed out, of which it is notified. */
        while (!tutti__comm_failed(&group->comm))
            usleep(1000);
        CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_TIMEOUT && says("rank 1 ("));
        return 0;
    }
    begin = tutti__now_ms();
    CHECK(tutti_group_set_timeout(group, 150) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &work) == TUTTI_OK);
    CHECK(tutti_group_set_timeout(group, 0) == TUTTI_OK); /* the one in flight keeps its limit */
    do
        status = tutti_work_wait_for(work, 20000);
    while (status == TUTTI_ERR_TIMEOUT && !tutti_work_done(work));
    CHECK(status == TUTTI_ERR_TIMEOUT && says("timed out after 0.15 s waiting for rank 1 ("));
    CHECK(tutti__now_ms() - begin < 10000);
    CHECK(tutti_work_wait(work) == TUTTI_ERR_TIMEOUT); /* the handle stayed, and frees here */
    CHECK(says("all_reduce #") && says("rank 1 ("));
    return 0;
}

static void a_limit_counts_for_the_calls_after_it(void **state)
{
    (void)state;
    run_everywhere(2, short_limit, NULL); /* of more, another might be late by as much */
}

/* ---- Sub-groups --------------------------------------------------------------------------------------------------- */

static int there_and_back(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_group *sub, *inner;

    (void)arg;
    CHECK(tutti_group_global_rank(group, 3) == 3 && tutti_group_rank_of(group, 3) == 3);
    CHECK(tutti_group_global_rank(group, 4) == -1 && tutti_group_rank_of(group, -1) == -1);
    CHECK(tutti_group_split(group, (int[]){3, 1, 2}, 3, NULL, &sub) == TUTTI_OK);
    if (rank == 0)
        return sub == NULL ? 0 : 1;
    CHECK(tutti_group_global_rank(sub, tutti_group_rank(sub)) == rank);
    CHECK(tutti_group_global_rank(sub, 0) == 3 && tutti_group_global_rank(sub, 2) == 2);
    CHECK(tutti_group_rank_of(sub, 1) == 1 && tutti_group_rank_of(sub, 3) == 0);
    CHECK(tutti_group_rank_of(sub, 0) == -1); /* not in it */
    CHECK(tutti_group_global_rank(sub, 3) == -1);
    /* Of a split of a split, global still means the first group. */
    CHECK(tutti_group_split(sub, (int[]){2, 0}, 2, NULL, &inner) == TUTTI_OK);
    if (inner) {
        CHECK(tutti_group_global_rank(inner, 0) == 2 && tutti_group_global_rank(inner, 1) == 3);
        CHECK(tutti_group_rank_of(inner, 3) == 1 && tutti_group_rank_of(inner, 1) == -1);
    }
    tutti_group_free(inner);
    tutti_group_free(sub);
    return 0;
}

static void ranks_of_sub_groups_are_told_there_and_back(void **state)
{
    (void)state;
    run_everywhere(4, there_and_back, NULL);
}

static int parts(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_group *part;
    int32_t x = rank;

    (void)arg;
    CHECK(tutti_group_split_parts(group, 2, "pair", &part) == TUTTI_OK);
    CHECK(tutti_group_size(part) == 2 && tutti_group_rank(part) == rank % 2);
    CHECK(tutti_group_global_rank(part, 0) == rank / 2 * 2);
    CHECK(strcmp(tutti_group_name(part), rank < 2 ? "pair-0" : "pair-1") == 0);
    CHECK(reduce_int(part, &x, TUTTI_SUM) == TUTTI_OK && x == (rank < 2 ? 1 : 5));
    tutti_group_free(part);
    CHECK(tutti_group_split_parts(group, 100, NULL, &part) == TUTTI_ERR_ARG && part == NULL);
    CHECK(says("into parts of 100 ranks: its size is 4"));
    CHECK(tutti_group_split_parts(group, 3, NULL, &part) == TUTTI_ERR_ARG);
    CHECK(tutti_group_split_parts(group, 0, NULL, &part) == TUTTI_ERR_ARG);
    return tutti_barrier(group, NULL) == TUTTI_OK ? 0 : 1;
}

static void a_group_splits_into_equal_parts(void **state)
{
    (void)state;
    run_everywhere(4, parts, NULL);
}

/* Two groups of the same members: operations in flight in one do not mix with those in the other. */
static int twins(tutti_group *group, void *arg)
{
    enum { N = 50 };
    static _Thread_local int32_t x[N], y[N];
    const int all[3] = {0, 1, 2};
    int rank = tutti_group_rank(group);
    tutti_work *works[2][N];
    tutti_group *a, *b;

    (void)arg;
    CHECK(tutti_group_split(group, all, 3, "twin", &a) == TUTTI_OK);
    CHECK(tutti_group_split(group, all, 3, "twin", &b) == TUTTI_OK);
    for (int i = 0; i < N; i++) {
        x[i] = i + rank;
        y[i] = 1000 * (i + rank);
    }
    /* Each rank uses the two groups in another order. */
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < N; i++)
            if ((turn + rank) % 2 == 0)
                CHECK(tutti_all_reduce(a, TUTTI_BUF(&x[i], 1, TUTTI_I32), TUTTI_SUM,
                                       &works[0][i]) == TUTTI_OK);
            else
                CHECK(tutti_all_reduce(b, TUTTI_BUF(&y[i], 1, TUTTI_I32), TUTTI_SUM,
                                       &works[1][i]) == TUTTI_OK);
    for (int i = 0; i < N; i++) {
        CHECK(tutti_work_wait(works[0][i]) == TUTTI_OK && tutti_work_wait(works[1][i]) == TUTTI_OK);
        CHECK(x[i] == 3 * i + 3 && y[i] == 1000 * (3 * i + 3));
    }
    tutti_group_free(a);
    tutti_group_free(b);
    return 0;
}

static void groups_of_the_same_members_keep_their_traffic_apart(void **state)
{
    (void)state;
    run_everywhere(3, twins, NULL);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------------ */

/* Sums that round differently in any other order. Every round, run, transport and rank gives the same bits: a run's results are
 * kept in shared memory and compared with the next run's. */
static int same_bits(tutti_group *group, void *arg)
{
    enum { COUNT = 5000, ROUNDS = 10 };
    static _Thread_local float p[COUNT];
    int rank = tutti_group_rank(group);
    _Atomic uint64_t *known = arg;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t digest, none = 0;

        for (int i = 0; i < COUNT; i++)
            p[i] = (i % 3 == rank % 3 ? 1e8f : 1.0f) / (float)(1 + i % 7 + rank);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_AVG, NULL) == TUTTI_OK);
        digest = tutti__hash64(p, sizeof p);
        if (!atomic_compare_exchange_strong(known, &none, digest))
            CHECK(none == digest);
    }
    return 0;
}

static void repeated_runs_give_the_same_bits(void **state)
{
    _Atomic uint64_t *known =
        mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(known != MAP_FAILED);
    for (int run = 0; run < 3; run++)
        run_everywhere(4, same_bits, known);
    assert_true(atomic_load(known) != 0);
    munmap(known, sizeof *known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_have_their_closed_forms),
        cmocka_unit_test(ranks_in_step_have_the_same_number),
        cmocka_unit_test(waiting_may_end_before_the_work),
        cmocka_unit_test(a_limit_counts_for_the_calls_after_it),
        cmocka_unit_test(ranks_of_sub_groups_are_told_there_and_back),
        cmocka_unit_test(a_group_splits_into_equal_parts),
        cmocka_unit_test(groups_of_the_same_members_keep_their_traffic_apart),
        cmocka_unit_test(repeated_runs_give_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
