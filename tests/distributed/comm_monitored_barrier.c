/* comm: a monitored barrier names missing ranks, the first or all, on all ranks; also in sub-groups.
 * SPDX-License-Identifier: MIT   run: waiting */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { LIMIT_MS = 300 };

/* No rank leaves before all have come; it works beside collectives and messages in flight. */
static int all_come(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    _Atomic int *come = arg;
    float x = 1;
    int32_t y = rank, z = -1;
    tutti_work *reduction, *receive;

    for (int i = 1; i <= 20; i++) {
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &reduction) ==
              TUTTI_OK);
        CHECK(tutti_recv(group, TUTTI_BUF(&z, 1, TUTTI_I32), (rank + 1) % size, 0, &receive) ==
              TUTTI_OK);
        if (come)
            atomic_fetch_add(come, 1);
        CHECK(tutti_monitored_barrier(group, 0, i % 2) == TUTTI_OK);
        CHECK(!come || atomic_load(come) >= i * size);
        CHECK(tutti_monitored_barrier(group, 20000, i % 2) == TUTTI_OK);
        CHECK(tutti_work_wait(reduction) == TUTTI_OK);
        CHECK(tutti_send(group, TUTTI_CONST_BUF(&y, 1, TUTTI_I32), (rank + size - 1) % size, 0,
                         NULL) == TUTTI_OK);
        CHECK(tutti_work_wait(receive) == TUTTI_OK && z == (rank + 1) % size);
    }
    return 0;
}

static void it_is_a_barrier(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 7};
    _Atomic int come = 0;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(ranks); i++)
        assert_int_equal(tutti_run_ranks_everywhere(ranks[i], all_come, NULL), 0);
    assert_int_equal(tutti_run_ranks_as_threads(4, all_come, &come), 0);
}

/* ---- Missing -------------------------------------------------------------------------------------------- */

typedef struct absence {
    unsigned missing; /* bits of ranks */
    bool wait_all, in_sub_group;
    const char *says[3], *never;
} absence;

/* Rank 0, with whose limit the others are counted as missing, goes on when all are here. */
static tutti_status line_up(tutti_group *group)
{
    int64_t here;

    TUTTI_TRY(tutti_store_add(group->boot.store, "here", 1, &here));
    while (tutti_group_rank(group) == 0 && here < tutti_group_size(group)) {
        usleep(500);
        TUTTI_TRY(tutti_store_add(group->boot.store, "here", 0, &here));
    }
    return TUTTI_OK;
}

static int some_miss(tutti_group *world, void *arg)
{
    const absence *a = arg;
    static const int even[] = {0, 2, 4};
    int rank = tutti_group_rank(world);
    tutti_group *group = world, *sub = NULL;
    double begin;
    tutti_status status;

    if (a->in_sub_group) {
        CHECK(tutti_group_split(world, even, 3, "even", &sub) == TUTTI_OK);
        group = sub;
        rank = sub ? tutti_group_rank(sub) : -1;
    }
    if (rank < 0)
        return 0;
    CHECK(line_up(group) == TUTTI_OK);
    begin = tutti__now_ms();
    if (a->missing >> rank & 1u) { /* late: it gets the error too */
        while (!tutti__comm_failed(&group->comm))
            usleep(500);
    }
    status = tutti_monitored_barrier(group, LIMIT_MS, a->wait_all);
    CHECK(status == TUTTI_ERR_TIMEOUT);
    CHECK(rank != 0 || (a->missing & 1u) || tutti__now_ms() - begin >= LIMIT_MS - 1);
    CHECK(tutti__now_ms() - begin < LIMIT_MS + TUTTI_LATE_MS);
    for (int i = 0; i < 3 && a->says[i]; i++)
        CHECK(strstr(tutti_last_error(), a->says[i]) != NULL);
    CHECK(!a->never || !strstr(tutti_last_error(), a->never));
    CHECK(strstr(tutti_last_error(), "failed to come to the monitored barrier within 0.3 s"));
    /* The message does not mention its implementation. */
    CHECK(!strstr(tutti_last_error(), "send #") && !strstr(tutti_last_error(), "recv #"));
    CHECK(!strstr(tutti_last_error(), "tag -"));
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_TIMEOUT); /* as after any TIMEOUT */
    tutti_group_free(sub);
    return 0;
}

static void the_missing_are_named(void **state)
{
    absence cases[] = {
        {.missing = 1u << 1, .says = {"rank 1 (", "wait_all_ranks=True"}, .never = "rank 2 ("},
        {.missing = 1u << 2 | 1u << 3, .says = {"rank 2 ("}, .never = "rank 3 ("},
        {.missing = 1u << 1 | 1u << 2 | 1u << 3,
         .wait_all = true,
         .says = {"rank 1 (", "rank 2 (", "rank 3 ("}},
        {.missing = 1u << 0, .says = {"rank 0 ("}},
    };
    absence in_sub = {.missing = 1u << 2,
                      .wait_all = true,
                      .in_sub_group = true,
                      .says = {"rank 2 (", "group \"even\""}};

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++)
        assert_int_equal(tutti_run_ranks_everywhere(4, some_miss, &cases[i]), 0);
    assert_int_equal(tutti_run_ranks_everywhere(5, some_miss, &in_sub), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_barrier),
        cmocka_unit_test(the_missing_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
