/* comm: a rank without a free descriptor, in a group that is there: who cannot have the shared memory because of it says so, no other rank is
 * blamed, and the group lives on.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include "comm/core/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 11, COUNT = 1024 };

static const int everyone[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

/* A rank that receives the memory, and passes it on. */
static int inner_rank(void)
{
    int rank = 1;

    while (tutti__tree_next_child(rank, rank, SIZE) < 0)
        rank++;
    return rank;
}

/* This process has n free descriptors from now on; *before: its limit. */
static int leave_descriptors(int n, struct rlimit *before)
{
    struct rlimit few;
    int fds[4] = {-1, -1, -1, -1};

    CHECK(getrlimit(RLIMIT_NOFILE, before) == 0);
    few = *before;
    for (int i = 0; i <= n; i++)
        CHECK((fds[i] = open("/dev/null", O_RDONLY)) >= 0);
    few.rlim_cur = (rlim_t)fds[n];
    for (int i = 0; i <= n; i++)
        close(fds[i]);
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    return 0;
}

static int names(int culprit)
{
    char rank[2][32];

    snprintf(rank[0], sizeof rank[0], "rank %d (", culprit);
    snprintf(rank[1], sizeof rank[1], "rank %d: ", culprit);
    CHECK(strstr(tutti_last_error(), rank[0]) || strstr(tutti_last_error(), rank[1]));
    CHECK(strstr(tutti_last_error(), "Too many open files") &&
          strstr(tutti_last_error(), "ulimit -n"));
    return 0;
}

static int works(tutti_group *group)
{
    int32_t *p;

    CHECK(tutti_group_alloc(group, COUNT * sizeof *p, (void **)&p) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++)
        p[i] = i;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(p[i] == SIZE * i);
    tutti_group_release(group, p);
    return 0;
}

typedef struct few {
    int rank, left;
} few;

static int cannot_alloc(tutti_group *group, void *arg)
{
    const few *f = arg;
    const bool has_few = tutti_group_rank(group) == f->rank;
    struct rlimit limit;
    void *p;

    CHECK(works(group) == 0);
    if (has_few)
        CHECK(leave_descriptors(f->left, &limit) == 0);
    CHECK(tutti_group_alloc(group, 1 << 16, &p) == TUTTI_ERR_MEMORY && !p);
    CHECK(names(f->rank) == 0);
    if (has_few)
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(works(group) == 0);
    return works(group);
}

static int cannot_split(tutti_group *group, void *arg)
{
    const few *f = arg;
    const bool has_few = tutti_group_rank(group) == f->rank;
    struct rlimit limit;
    tutti_group *sub;

    if (has_few)
        CHECK(leave_descriptors(f->left, &limit) == 0);
    CHECK(tutti_meet(group, "few") == TUTTI_OK); /* else its memory may come before */
    CHECK(tutti_group_split_members(group, everyone, SIZE, "sub", &sub) == TUTTI_ERR_MEMORY);
    CHECK(!sub && names(f->rank) == 0);
    if (has_few)
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(tutti_meet(group, "again") == TUTTI_OK);
    CHECK(tutti_group_split_members(group, everyone, SIZE, "sub", &sub) == TUTTI_OK);
    CHECK(works(sub) == 0);
    tutti_group_free(sub);
    return works(group);
}

static void run(int (*body)(tutti_group *group, void *arg), few f)
{
    assert_int_equal(tutti_run_ranks_as_processes(SIZE, body, &f, TUTTI_TRANSPORT_AUTO), 0);
}

static void memory_that_one_cannot_receive(void **state)
{
    (void)state;
    run(cannot_alloc, (few){inner_rank(), 0});
    run(cannot_alloc, (few){SIZE - 1, 0});
}

static void memory_that_one_cannot_pass_on(void **state)
{
    (void)state;
    run(cannot_alloc, (few){inner_rank(), 1});
    run(cannot_alloc, (few){0, 1});
}

static void memory_that_rank_0_cannot_make(void **state)
{
    (void)state;
    run(cannot_alloc, (few){0, 0});
}

static void a_group_that_one_cannot_make(void **state)
{
    (void)state;
    run(cannot_split, (few){inner_rank(), 0});
    run(cannot_split, (few){inner_rank(), 1});
    run(cannot_split, (few){0, 0});
    run(cannot_split, (few){0, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_one_cannot_receive),
                                       cmocka_unit_test(memory_that_one_cannot_pass_on),
                                       cmocka_unit_test(memory_that_rank_0_cannot_make),
                                       cmocka_unit_test(a_group_that_one_cannot_make)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
