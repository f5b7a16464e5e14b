/* comm: more ranks than each is connected with from the beginning: messages to far ones, both ways at once; groups made from the
 * group, whose neighbours are others; a rank that leaves; and how many connections there are.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "bodies.h"

#include "comm/control/control_state.h"
#include "comm/core/tree.h"

#include <unistd.h>

/* PATIENCE_MS: who waits that long for data of a rank, as on a busy machine, connects with it to say so: then there are more connections. */
enum { MANY = 24, LARGE = 100000, PATIENCE_MS = 50, TIMES = 5 };

static const int HOSTS[MANY] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1,
                                1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};

/* Of this thread's rank: the longest step. */
static _Thread_local double longest_ms;

static void note_step(double begin_ms)
{
    const double ms = tutti__now_ms() - begin_ms;

    longest_ms = ms > longest_ms ? ms : longest_ms;
}

/* Whether on some rank a step took so long that one may have waited. */
static int was_slow(tutti_group *group, bool *slow_p)
{
    double longest = longest_ms;

    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&longest, 1, TUTTI_F64), TUTTI_MAX, NULL));
    *slow_p = longest >= PATIENCE_MS;
    return 0;
}

static int adds_up(tutti_group *group)
{
    const int n = tutti_group_size(group);
    float x[3] = {1, 2, (float)tutti_group_rank(group)};

    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(x, 3, TUTTI_F32), TUTTI_SUM, NULL));
    CHECK(x[0] == (float)n && x[1] == 2 * (float)n && x[2] == (float)(n * (n - 1) / 2));
    return 0;
}

/* With the rank opposite, small and large, in both directions at once. */
static int exchange(tutti_group *group, int step, float *out, float *in)
{
    static const size_t COUNTS[] = {1, 1000, LARGE};
    const int n = tutti_group_size(group), rank = tutti_group_rank(group);
    const int to = (rank + step) % n, from = (rank + n - step) % n;

    for (size_t c = 0; c < TUTTI__COUNT_OF(COUNTS); c++) {
        tutti_work *work;

        for (size_t i = 0; i < COUNTS[c]; i++)
            out[i] = (float)(rank + (int)i);
        CHECK_OK(tutti_send(group, TUTTI_CONST_BUF(out, COUNTS[c], TUTTI_F32), to, step, &work));
        CHECK_OK(tutti_recv(group, TUTTI_BUF(in, COUNTS[c], TUTTI_F32), from, step, NULL));
        CHECK_OK(tutti_work_wait(work));
        for (size_t i = 0; i < COUNTS[c]; i++)
            CHECK(in[i] == (float)(from + (int)i));
    }
    return 0;
}

/* A group that is made without waiting has connections between neighbours only. */
static int only_neighbours(tutti_group *world)
{
    const int n = tutti_group_size(world), rank = tutti_group_rank(world);
    const tutti_group_opts opts = {.store = world->boot.store,
                                   .rank = rank,
                                   .world_size = n,
                                   .name = "second",
                                   .transport = world->boot.tcp ? TUTTI_TRANSPORT_TCP
                                                                : TUTTI_TRANSPORT_AUTO};
    int near[TUTTI__NEIGHBOURS];
    bool slow = true;

    for (int i = 0; i < TIMES && slow; i++) {
        const double begin = tutti__now_ms();
        tutti_group *group;
        int connections;

        longest_ms = 0;
        CHECK_OK(tutti__group_init(&group, &opts, &world->comm.tuning));
        connections = tutti__control_n_connections(group->control);
        note_step(begin);
        CHECK_0(was_slow(world, &slow));
        CHECK(slow || connections == tutti__tree_neighbours(rank, n, near));
        tutti_group_free(group);
    }
    return 0;
}

static int far_messages(tutti_group *group, void *arg)
{
    float *out = malloc(LARGE * sizeof *out), *in = malloc(LARGE * sizeof *in);
    const int n = tutti_group_size(group);

    (void)arg;
    CHECK(out && in);
    CHECK_0(only_neighbours(group));
    CHECK_0(adds_up(group));
    CHECK_0(exchange(group, n / 2, out, in));
    CHECK_0(exchange(group, 5, out, in));
    CHECK_0(exchange(group, 1, out, in));
    CHECK_0(adds_up(group));
    free(out);
    free(in);
    return 0;
}

/* Members in another order, of which few are neighbours in the parent; again and again. */
static int parts(tutti_group *group, void *arg)
{
    const int n = tutti_group_size(group), rank = tutti_group_rank(group);
    float *out = malloc(LARGE * sizeof *out), *in = malloc(LARGE * sizeof *in);
    int ranks[MANY], before = 0;
    tutti_group *part, *most;
    bool slow;

    (void)arg;
    CHECK(out && in);
    longest_ms = 0;
    for (int i = 0; i < n; i++)
        ranks[i] = (7 * i + 3) % n;
    for (int round = 0; round < 3; round++) {
        const double begin = tutti__now_ms();

        CHECK_OK(tutti_group_split_by(group, rank % 3, -rank, "part", &part));
        CHECK(tutti_group_size(part) == n / 3);
        CHECK_0(adds_up(part));
        CHECK_OK(tutti_group_split(group, ranks, n - 3, "most", &most));
        if (most) {
            CHECK_0(adds_up(most));
            CHECK_0(exchange(most, 10, out, in));
            CHECK_0(adds_up(most));
        }
        CHECK_0(adds_up(part));
        tutti_group_free(most);
        tutti_group_free(part);
        if (round == 0)
            before = tutti__control_n_connections(group->control);
        CHECK_0(adds_up(group));
        if (round > 0)
            note_step(begin);
    }
    CHECK_0(was_slow(group, &slow));
    CHECK(slow || tutti__control_n_connections(group->control) <= before + 2);
    free(out);
    free(in);
    return 0;
}

/* The first that leaves is told to all; others are found out by whoever waits for them. */
static int two_leave(tutti_group *group, void *arg)
{
    enum { FIRST = 17, SECOND = 21, WAITS = 3 };
    const int rank = tutti_group_rank(group);
    float x = 1;

    (void)arg;
    CHECK_0(adds_up(group));
    CHECK_OK(tutti_meet(group, "added")); /* a later call's failure ends an earlier one, too */
    if (rank == FIRST)
        return 0;
    if (rank == SECOND) {
        usleep(200000);
        return 0;
    }
    if (rank == WAITS) {
        CHECK(tutti_recv(group, TUTTI_BUF(&x, 1, TUTTI_F32), SECOND, 0, NULL) == TUTTI_ERR_PEER);
        CHECK_TEXT(tutti_last_error(), "rank 21 (");
        CHECK_TEXT(tutti_last_error(), "has left the group");
        return 0;
    }
    while (tutti_group_status(group) == TUTTI_OK)
        usleep(1000);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    CHECK_TEXT(tutti_last_error(), "rank 21 (");
    return 0;
}

static int one_leaves(tutti_group *group, void *arg)
{
    (void)arg;
    CHECK_0(adds_up(group));
    CHECK_OK(tutti_meet(group, "added"));
    if (tutti_group_rank(group) == 17)
        return 0;
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    CHECK_TEXT(tutti_last_error(), "rank 17 (");
    CHECK_TEXT(tutti_last_error(), "has left the group");
    return 0;
}

/* One hears of it from another, which has heard of it from another. */
static int one_aborts(tutti_group *group, void *arg)
{
    (void)arg;
    CHECK_0(adds_up(group));
    CHECK_OK(tutti_meet(group, "added"));
    if (tutti_group_rank(group) == MANY - 1)
        tutti_group_abort(group, "enough");
    while (tutti_group_status(group) == TUTTI_OK)
        usleep(100);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_ABORTED);
    CHECK_TEXT(tutti_last_error(), "rank 23 (");
    CHECK_TEXT(tutti_last_error(), "enough");
    return 0;
}

/* Who connects with a rank that has said goodbye to all that were connected hears it, too: it takes the end of the connection for a death
 * otherwise. */
static int one_connects_late(tutti_group *group, void *arg)
{
    enum { LEAVES = 17, LATE = 5 };
    const int rank = tutti_group_rank(group);
    tutti__links *links = group->control->links;
    const double deadline = tutti__now_ms() + 30000;
    bool is_new = false;

    (void)arg;
    CHECK_OK(tutti_meet(group, "all are there"));
    if (rank == LEAVES) {
        pthread_mutex_lock(&links->lock);
        is_new = links->at[LATE].state == TUTTI__LINK_NONE;
        group->control->says_goodbye = is_new;
        pthread_mutex_unlock(&links->lock);
        CHECK_OK(tutti_store_set(group->boot.store, "connect", is_new ? "yes" : "no", 3));
    }
    if (rank == LATE) {
        char answer[4] = "";
        size_t bytes = sizeof answer;

        CHECK_OK(tutti_store_get(group->boot.store, "connect", answer, &bytes, 30000));
        is_new = *answer == 'y'; /* on a busy machine the two may have connected in the set-up */
        tutti__control_watch(group->control, LEAVES);
        while (is_new && !atomic_load(&group->comm.peers[LEAVES].left)) {
            CHECK(tutti__now_ms() < deadline);
            usleep(1000);
        }
    }
    CHECK_OK(tutti_meet(group, "it has heard"));
    return 0;
}

static void everywhere(void **state)
{
    tutti_rank_body *body = *state;
    const tutti_ranks_opts opts[] = {
        {.heartbeat_ms = 3000},
        {.processes = true, .heartbeat_ms = 3000},
        {.processes = true, .transport = TUTTI_TRANSPORT_TCP, .heartbeat_ms = 3000},
        {.processes = true, .hosts = HOSTS, .heartbeat_ms = 3000}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(opts); i++)
        assert_int_equal(tutti_run_ranks(MANY, body, NULL, &opts[i]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everywhere, far_messages), TEST(everywhere, parts),
        TEST(everywhere, one_leaves),   TEST(everywhere, one_connects_late),
        TEST(everywhere, two_leave),    TEST(everywhere, one_aborts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
