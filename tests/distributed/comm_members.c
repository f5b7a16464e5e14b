/* comm: groups made from a group share its connections and thread, are made by their members alone, and end in any order.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"
#include "harness/resources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static const int everyone[] = {0, 1, 2, 3};

typedef struct counts {
    int threads, descriptors, mappings;
} counts;

static counts count(void)
{
    return (counts){count_threads(), count_descriptors(), count_mappings()};
}

/* All ranks add their number. */
static int adds_up(tutti_group *group)
{
    int32_t sum = tutti_group_rank(group), n = tutti_group_size(group);

    CHECK(tutti_all_reduce(group, TUTTI_BUF(&sum, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(sum == n * (n - 1) / 2);
    return 0;
}

/* ---- What a group takes ----------------------------------------------------------------------------------- */

enum { GROUPS = 20 };

static int many_at_once(tutti_group *group, void *arg)
{
    tutti_group *subs[2 * GROUPS];
    int n = tutti_group_size(group);
    counts before, made;

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    before = count();
    CHECK(tutti_barrier(group, NULL) ==
          TUTTI_OK); /* a rank ahead would send its memory meanwhile */
    for (int i = 0; i < GROUPS; i++) {
        CHECK(tutti_group_split(group, everyone, n, "sub", &subs[2 * i]) == TUTTI_OK);
        CHECK(tutti_group_split_members(group, everyone, n, "sub", &subs[2 * i + 1]) == TUTTI_OK);
    }
    made = count();
    CHECK(made.threads == before.threads && made.descriptors == before.descriptors);
    for (int i = 0; i < 2 * GROUPS; i++)
        CHECK(adds_up(subs[i]) == 0);
    made = count();
    CHECK(made.threads == before.threads && made.descriptors == before.descriptors);
    for (int i = 0; i < 2 * GROUPS; i++) {
        tutti_work *work;

        CHECK(tutti_barrier(subs[i], &work) == TUTTI_OK); /* starts its communication thread */
        CHECK(tutti_work_wait(work) == TUTTI_OK);
    }
    CHECK(count().threads == before.threads + 2 * GROUPS);
    for (int i = 0; i < 2 * GROUPS; i++)
        tutti_group_free(subs[i]);
    CHECK(count().threads == before.threads && count().descriptors == before.descriptors);
    return adds_up(group);
}

static void groups_of_a_host_add_no_thread_and_no_descriptor(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(2, many_at_once, NULL, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(4, many_at_once, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* Over TCP each group has connections of its own for data, and one descriptor to wake who waits for them. */
static int over_tcp(tutti_group *group, void *arg)
{
    tutti_group *sub;
    int n = tutti_group_size(group), descriptors, threads;

    (void)arg;
    CHECK(tutti_group_split(group, everyone, n, "first", &sub) == TUTTI_OK);
    tutti_group_free(sub);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    descriptors = count_descriptors();
    threads = count_threads();
    CHECK(tutti_group_split(group, everyone, n, "sub", &sub) == TUTTI_OK);
    CHECK(count_threads() == threads);
    CHECK(count_descriptors() == descriptors + n - 1 + 1);
    CHECK(adds_up(sub) == 0);
    tutti_group_free(sub);
    return 0;
}

static void groups_between_hosts_add_their_data_connections(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(4, over_tcp, NULL, TUTTI_TRANSPORT_TCP), 0);
}

static int hundreds(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group), many = *(const int *)arg;
    counts before = {0}, after;

    for (int i = 0; i < many; i++) {
        tutti_group *sub, *inner;

        CHECK(tutti_group_split_members(group, everyone, n, "one of many", &sub) == TUTTI_OK);
        CHECK(tutti_group_split(sub, everyone, n, NULL, &inner) == TUTTI_OK);
        CHECK(adds_up(inner) == 0);
        tutti_group_free(i % 2 ? sub : inner);
        tutti_group_free(i % 2 ? inner : sub);
        if (i != 9)
            continue;
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        before = count();
        CHECK(tutti_barrier(group, NULL) ==
              TUTTI_OK); /* a rank ahead would send its memory meanwhile */
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    after = count();
    CHECK(after.threads == before.threads && after.descriptors == before.descriptors);
    CHECK(after.mappings < before.mappings + 20); /* the allocator's */
    return adds_up(group);
}

static void hundreds_of_groups_come_and_go(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(2, hundreds, &(int){400}, TUTTI_TRANSPORT_AUTO),
                     0);
    assert_int_equal(tutti_run_ranks_as_processes(2, hundreds, &(int){40}, TUTTI_TRANSPORT_TCP), 0);
}

/* ---- By the members alone --------------------------------------------------------------------------------- */

/* Several groups with the same ranks and name, two at a time with large messages, which share connections. */
static int messages(tutti_group *a, tutti_group *b)
{
    enum { N = 200000 };
    int rank = tutti_group_rank(a), n = tutti_group_size(a), to = (rank + 1) % n,
        from = (rank + n - 1) % n;
    float *out = malloc(2 * N * sizeof *out), *in = calloc(2 * N, sizeof *in);
    tutti_work *works[4];

    for (int i = 0; i < 2 * N; i++)
        out[i] = (float)(rank * 1000 + i % 997 + i / N);
    CHECK(tutti_recv(a, TUTTI_BUF(in, N, TUTTI_F32), from, 5, &works[0]) == TUTTI_OK);
    CHECK(tutti_recv(b, TUTTI_BUF(in + N, N, TUTTI_F32), from, 5, &works[1]) == TUTTI_OK);
    CHECK(tutti_send(a, TUTTI_CONST_BUF(out, N, TUTTI_F32), to, 5, &works[2]) == TUTTI_OK);
    CHECK(tutti_send(b, TUTTI_CONST_BUF(out + N, N, TUTTI_F32), to, 5, &works[3]) == TUTTI_OK);
    for (int i = 0; i < 4; i++)
        CHECK(tutti_work_wait(works[i]) == TUTTI_OK);
    for (int i = 0; i < 2 * N; i++)
        CHECK(in[i] == (float)(from * 1000 + i % 997 + i / N));
    free(out);
    free(in);
    return 0;
}

static int odd_ranks_only(tutti_group *group, void *arg)
{
    static const int odd[] = {3, 1};
    int rank = tutti_group_rank(group);
    tutti_group *a, *b, *none;
    uint64_t id;

    (void)arg;
    if (rank % 2) {
        CHECK(tutti_group_split_members(group, odd, 2, "odd", &a) == TUTTI_OK);
        CHECK(tutti_group_split_members(group, odd, 2, "odd", &b) == TUTTI_OK);
        CHECK(tutti_group_rank(a) == (rank == 1) && tutti_group_size(a) == 2);
        CHECK(tutti_group_global_rank(a, 0) == 3 && strcmp(tutti_group_name(b), "odd") == 0);
        CHECK(tutti_group_id(a) != tutti_group_id(b) && tutti_group_id(a) != tutti_group_id(group));
        id = tutti_group_id(a);
        CHECK(tutti_all_reduce(a, TUTTI_BUF(&id, 1, TUTTI_U64), TUTTI_MAX, NULL) == TUTTI_OK);
        CHECK(id == tutti_group_id(a));
        CHECK(adds_up(a) == 0 && adds_up(b) == 0);
        CHECK(messages(a, b) == 0);
        tutti_group_free(a);
        CHECK(adds_up(b) == 0);
        tutti_group_free(b);
    } else {
        CHECK(tutti_group_split_members(group, odd, 2, "odd", &none) == TUTTI_ERR_ARG && !none);
        CHECK(strstr(tutti_last_error(), "is not in the list of 2 ranks") != NULL);
        CHECK(tutti_group_split_members(group, &rank, 1, NULL, &a) == TUTTI_OK);
        CHECK(adds_up(a) == 0);
        tutti_group_free(a);
    }
    return adds_up(group);
}

static void members_make_a_group_without_the_others(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(4, odd_ranks_only, NULL), 0);
}

/* Rank 0 fails before rank 1 has begun, which gets the reason when it does. */
static int one_cannot(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    struct rlimit limit, none;
    double begin;
    tutti_group *sub;

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (rank == 0) {
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        none = limit;
        none.rlim_cur = 3;
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK(tutti_group_split_members(group, everyone, 2, "sub", &sub) != TUTTI_OK && !sub);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    CHECK(tutti_meet(group, "failed") == TUTTI_OK);
    begin = tutti__now_ms();
    if (rank == 1) {
        CHECK(tutti_group_split_members(group, everyone, 2, "sub", &sub) != TUTTI_OK && !sub);
        CHECK(strstr(tutti_last_error(), "while group \"sub\" was being made by a split") != NULL);
        CHECK(strstr(tutti_last_error(), "rank 0 (") && strstr(tutti_last_error(), "open files"));
    }
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    CHECK(tutti_group_split_members(group, everyone, 2, "sub", &sub) == TUTTI_OK);
    CHECK(adds_up(sub) == 0);
    tutti_group_free(sub);
    return adds_up(group);
}

static void a_member_that_cannot_tells_those_that_come_later(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(2, one_cannot, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* ---- Ends ------------------------------------------------------------------------------------------------- */

/* The parent is the harness's, so this frees a parent and a child of its own. */
static int in_any_order(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_group *parent, *child, *grandchild;
    float x = (float)rank;

    (void)arg;
    CHECK(tutti_group_init(&parent, &(tutti_group_opts){.store = group->boot.store,
                                                        .rank = rank,
                                                        .world_size = n,
                                                        .name = "parent"}) == TUTTI_OK);
    CHECK(tutti_group_split(parent, everyone, n, "child", &child) == TUTTI_OK);
    tutti_group_free(parent);
    CHECK(adds_up(child) == 0);
    CHECK(tutti_group_split_members(child, everyone, n, "grandchild", &grandchild) == TUTTI_OK);
    CHECK(messages(child, grandchild) == 0);
    tutti_group_free(child);
    CHECK(adds_up(grandchild) == 0);
    CHECK(tutti_broadcast(grandchild, TUTTI_BUF(&x, 1, TUTTI_F32), n - 1, NULL) == TUTTI_OK);
    CHECK(x == (float)(n - 1));
    tutti_group_free(grandchild);
    return 0;
}

/* Rank 0 leaves the parent while the others still use it: they hear so, and the child lives. */
static int one_leaves_the_parent(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_group *parent, *child;

    (void)arg;
    CHECK(tutti_group_init(&parent, &(tutti_group_opts){.store = group->boot.store,
                                                        .rank = rank,
                                                        .world_size = n,
                                                        .name = "parent"}) == TUTTI_OK);
    CHECK(tutti_group_split(parent, everyone, n, "child", &child) == TUTTI_OK);
    if (rank == 0) {
        tutti_group_free(parent);
    } else {
        CHECK(tutti_barrier(parent, NULL) == TUTTI_ERR_PEER);
        CHECK(strstr(tutti_last_error(), "rank 0 (") &&
              strstr(tutti_last_error(), "has left the group"));
    }
    CHECK(adds_up(child) == 0);
    if (rank != 0)
        tutti_group_free(parent);
    CHECK(adds_up(child) == 0);
    tutti_group_free(child);
    return 0;
}

static void parents_and_children_end_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, in_any_order, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, one_leaves_the_parent, NULL), 0);
}

/* An abort is one group's. */
static int one_aborts(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group);
    tutti_group *a, *b;

    (void)arg;
    CHECK(tutti_group_split(group, everyone, n, "a", &a) == TUTTI_OK);
    CHECK(tutti_group_split(group, everyone, n, "b", &b) == TUTTI_OK);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (tutti_group_rank(group) == 1)
        tutti_group_abort(a, "enough of this one");
    CHECK(tutti_barrier(a, NULL) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "group \"a\"") && strstr(tutti_last_error(), "rank 1 (") &&
          strstr(tutti_last_error(), "enough of this one"));
    CHECK(adds_up(b) == 0 && adds_up(group) == 0);
    tutti_group_free(a);
    CHECK(adds_up(b) == 0);
    tutti_group_free(b);
    return 0;
}

static void an_abort_ends_only_its_group(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, one_aborts, NULL), 0);
}

/* Rank 1 makes a group from one that rank 0 aborts instead; ranks that try later learn the same. */
static int the_parent_dies(tutti_group *group, void *arg)
{
    int n = tutti_group_size(group), rank = tutti_group_rank(group);
    double begin = tutti__now_ms();
    tutti_group *parent, *sub;

    (void)arg;
    CHECK(tutti_group_split(group, everyone, n, "parent", &parent) == TUTTI_OK);
    CHECK(tutti_meet(group, "made") == TUTTI_OK);
    if (rank == 0)
        tutti_group_abort(parent, "no more of it");
    for (int i = 0; i < 2; i++) {
        CHECK(tutti_group_split_members(parent, everyone, n, "sub", &sub) == TUTTI_ERR_ABORTED);
        CHECK(!sub && strstr(tutti_last_error(), "no more of it") != NULL);
        if (rank == 0)
            break;
    }
    CHECK(tutti_meet(group, "told") == TUTTI_OK);
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    tutti_group_free(parent);
    return adds_up(group);
}

static void a_group_cannot_be_made_from_a_dead_one(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(tutti_run_ranks_everywhere(3, the_parent_dies, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_a_host_add_no_thread_and_no_descriptor),
        cmocka_unit_test(groups_between_hosts_add_their_data_connections),
        cmocka_unit_test(hundreds_of_groups_come_and_go),
        cmocka_unit_test(members_make_a_group_without_the_others),
        cmocka_unit_test(a_member_that_cannot_tells_those_that_come_later),
        cmocka_unit_test(parents_and_children_end_in_any_order),
        cmocka_unit_test(an_abort_ends_only_its_group),
        cmocka_unit_test(a_group_cannot_be_made_from_a_dead_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
