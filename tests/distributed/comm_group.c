/* comm: work in flight, sub-groups, shared memory by segments, groups made anew, what is recorded.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { N_WORK = 1000 };

static void run_everywhere(int n, tutti_rank_body *body, void *arg)
{
    assert_int_equal(tutti_run_ranks_everywhere(n, body, arg), 0);
}

/* ---- 1000 in flight ---------------------------------------------------------------------------------- */

static int thousand_reductions(tutti_group *group, void *arg)
{
    static _Thread_local float values[N_WORK];
    tutti_work *work[N_WORK];
    int size = tutti_group_size(group), rank = tutti_group_rank(group);

    (void)arg;
    for (int i = 0; i < N_WORK; i++) {
        values[i] = (float)(i + rank);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&values[i], 1, TUTTI_F32), TUTTI_SUM, &work[i]) ==
              TUTTI_OK);
    }
    for (int i = 0; i < N_WORK; i++) {
        CHECK(tutti_work_wait(work[i]) == TUTTI_OK);
        CHECK(values[i] == (float)(i * size + size * (size - 1) / 2));
    }
    return 0;
}

static int thousand_broadcasts(tutti_group *group, void *arg)
{
    static _Thread_local int32_t values[N_WORK];
    tutti_work *work[N_WORK];
    int size = tutti_group_size(group), rank = tutti_group_rank(group);

    (void)arg;
    for (int i = 0; i < N_WORK; i++) {
        values[i] = i * size + rank;
        CHECK(tutti_broadcast(group, TUTTI_BUF(&values[i], 1, TUTTI_I32), i % size, &work[i]) ==
              TUTTI_OK);
    }
    for (int i = N_WORK - 1; i >= 0; i--) { /* in any order */
        CHECK(tutti_work_wait(work[i]) == TUTTI_OK);
        CHECK(values[i] == i * size + i % size);
    }
    return 0;
}

static void a_thousand_in_flight(void **state)
{
    (void)state;
    run_everywhere(3, thousand_reductions, NULL);
    run_everywhere(2, thousand_broadcasts, NULL);
}

/* A synchronous call after asynchronous ones sees their results; the group is freed with work still queued. */
static int order_is_kept(tutti_group *group, void *arg)
{
    enum { COUNT = 100000 };
    float *p = malloc(COUNT * sizeof *p), total = (float)tutti_group_size(group);
    tutti_work *work[4];

    (void)arg;
    for (int i = 0; i < COUNT; i++)
        p[i] = 1;
    for (int i = 0; i < 4; i++)
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_SUM, &work[i]) ==
              TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(p, 1, TUTTI_F32), TUTTI_AVG, NULL) == TUTTI_OK);
    CHECK(p[0] == total * total * total * total && p[COUNT - 1] == p[0]);
    for (int i = 0; i < 4; i++) {
        CHECK(tutti_work_done(work[i]));
        CHECK(tutti_work_wait(work[i]) == TUTTI_OK);
    }
    free(p);
    return 0;
}

static void synchronous_calls_keep_their_place(void **state)
{
    (void)state;
    run_everywhere(3, order_is_kept, NULL);
}

/* ---- Functions in the queue ------------------------------------------------------------------------ */

typedef struct errand {
    tutti_group *group;
    int step;
    int32_t sum;
    bool fails;
} errand;

/* Two rounds, of which the second depends on the first, with and without a handle. */
static tutti_status two_rounds(void *arg)
{
    errand *e = arg;
    tutti_work *work;

    if (e->fails)
        return tutti__fail(TUTTI_ERR_ARG, "errand %d", e->step);
    TUTTI_TRY(tutti_all_reduce(e->group, TUTTI_BUF(&e->sum, 1, TUTTI_I32), TUTTI_SUM, NULL));
    TUTTI_TRY(tutti_broadcast(e->group, TUTTI_BUF(&e->step, 1, TUTTI_I32), 0, &work));
    TUTTI_TRY(tutti_work_wait(work));
    return tutti_all_reduce(e->group, TUTTI_BUF(&e->sum, 1, TUTTI_I32), TUTTI_SUM, NULL);
}

/* Ranks call on from the main thread meanwhile, whoever is faster: each function is whole in its place. */
static int functions_run_in_their_place(tutti_group *group, void *arg)
{
    enum { N = 50 };
    errand errands[N];
    tutti_work *works[N], *others[N];
    int32_t size = tutti_group_size(group), values[N];

    (void)arg;
    for (int i = 0; i < N; i++) {
        errands[i] = (errand){group, i, 1, false};
        values[i] = 1;
        CHECK(tutti_group_submit(group, two_rounds, NULL, &errands[i], &works[i]) == TUTTI_OK);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&values[i], 1, TUTTI_I32), TUTTI_SUM, &others[i]) ==
              TUTTI_OK);
        if (i % 7 == tutti_group_rank(group))
            CHECK(tutti_work_wait(works[i]) == TUTTI_OK && errands[i].sum == size * size);
    }
    for (int i = 0; i < N; i++) {
        CHECK(i % 7 == tutti_group_rank(group) || tutti_work_wait(works[i]) == TUTTI_OK);
        CHECK(tutti_work_wait(others[i]) == TUTTI_OK);
        CHECK(errands[i].sum == size * size && values[i] == size);
    }
    errands[0].fails = true;
    CHECK(tutti_group_submit(group, two_rounds, NULL, &errands[0], &works[0]) == TUTTI_OK);
    CHECK(tutti_work_wait(works[0]) == TUTTI_ERR_ARG);
    CHECK(strstr(tutti_last_error(), "errand 0") != NULL);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK); /* the group lives */
    return 0;
}

static void functions_are_queued_too(void **state)
{
    (void)state;
    run_everywhere(1, functions_run_in_their_place, NULL);
    run_everywhere(3, functions_run_in_their_place, NULL);
}

/* ---- Segments ------------------------------------------------------------------------------------------ */

static int segments_come_and_go(tutti_group *group, void *arg)
{
    void *a, *b, *c;
    float *x;
    int size = tutti_group_size(group);

    (void)arg;
    CHECK(tutti_group_alloc(group, 1 << 20, &a) == TUTTI_OK);
    CHECK(tutti_group_alloc(group, 0, &b) == TUTTI_OK);
    CHECK(((uintptr_t)a & 63) == 0 && a != b && b != NULL);
    x = a;
    for (int i = 0; i < 1 << 18; i++)
        CHECK(x[i] == 0);
    /* A piece in the middle, at another place on each rank. */
    x += 1000 + 16 * tutti_group_rank(group);
    for (int i = 0; i < 5000; i++)
        x[i] = 2;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 5000, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x[-1] == 0 && x[0] == 2.0f * (float)size && x[4999] == 2.0f * (float)size &&
          x[5000] == 0);
    tutti_group_release(group, a);
    CHECK(tutti_group_alloc(group, 100, &c) == TUTTI_OK);
    x = c;
    x[0] = 1;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x[0] == (float)size);
    tutti_group_release(group, b);
    return 0; /* c goes with the group */
}

/* Some ranks' memory can be read by peers, others' cannot: the result is the same. */
static int mixed_memory(tutti_group *group, void *arg)
{
    enum { COUNT = 3000 };
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float own[COUNT], *p = own;
    void *shared;

    (void)arg;
    CHECK(tutti_group_alloc(group, sizeof own, &shared) == TUTTI_OK);
    for (int round = 0; round < 3; round++) {
        p = (rank + round) % 2 ? own : shared;
        for (int i = 0; i < COUNT; i++)
            p[i] = (float)(i + rank);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        for (int i = 0; i < COUNT; i++)
            CHECK(p[i] == (float)(i * size + size * (size - 1) / 2));
        for (int root = 0; root < size; root++) {
            p[0] = (float)rank;
            CHECK(tutti_broadcast(group, TUTTI_BUF(p, COUNT, TUTTI_F32), root, NULL) == TUTTI_OK);
            CHECK(p[0] == (float)root);
        }
    }
    return 0;
}

static void memory_of_the_group(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, segments_come_and_go, NULL), 0);
    run_everywhere(3, segments_come_and_go, NULL);
    run_everywhere(3, mixed_memory, NULL);
    assert_int_equal(
        tutti_run_ranks(3, mixed_memory, NULL,
                        &(tutti_ranks_opts){.processes = true, .tuning = {.chunk_bytes = 256}}),
        0);
}

/* ---- Sub-groups ------------------------------------------------------------------------------------------ */

static int split_and_sum(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group), odd[8], even[8], n_odd = 0,
        n_even = 0;
    tutti_group *sub, *other, *inner;
    float x = (float)rank, sum = 0;

    (void)arg;
    for (int r = size - 1; r >= 0; r--) /* in the order given: backwards */
        if (r % 2)
            odd[n_odd++] = r;
        else
            even[n_even++] = r;
    CHECK(tutti_group_split(group, odd, n_odd, "odd", &sub) == TUTTI_OK);
    CHECK((sub != NULL) == (rank % 2 == 1));
    CHECK(tutti_group_split(group, even, n_even, NULL, &other) == TUTTI_OK);
    CHECK((other != NULL) == (rank % 2 == 0));
    sub = sub ? sub : other;
    CHECK(tutti_group_size(sub) == (rank % 2 ? n_odd : n_even));
    for (int r = rank % 2; r < size; r += 2)
        sum += (float)r;
    CHECK(tutti_all_reduce(sub, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x == sum);
    CHECK((rank % 2 ? odd : even)[tutti_group_rank(sub)] == rank);
    /* Both at once, each its own traffic; then a split of the split. */
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK && tutti_barrier(sub, NULL) == TUTTI_OK);
    CHECK(tutti_group_split(sub, (int[]){0}, 1, "one", &inner) == TUTTI_OK);
    CHECK((inner != NULL) == (tutti_group_rank(sub) == 0));
    CHECK(!inner || strcmp(tutti_group_transport_name(inner), "single") == 0);
    tutti_group_free(inner);
    tutti_group_free(sub);
    CHECK(tutti_group_split(group, (int[]){0, 0}, 2, NULL, &sub) == TUTTI_ERR_ARG);
    CHECK(tutti_group_split(group, (int[]){size}, 1, NULL, &sub) == TUTTI_ERR_ARG);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    return 0;
}

static void sub_groups(void **state)
{
    (void)state;
    run_everywhere(5, split_and_sum, NULL);
}

/* ---- What else a group promises ------------------------------------------------------------------------------ */

static int bad_arguments(tutti_group *group, void *arg)
{
    float x[8] = {0};
    tutti_work *work = (tutti_work *)x;
    int size = tutti_group_size(group);

    (void)arg;
    CHECK(tutti_broadcast(group, TUTTI_BUF(x, 1, TUTTI_F32), -1, &work) == TUTTI_ERR_ARG);
    CHECK(work == NULL && strstr(tutti_last_error(), "root is -1") != NULL);
    CHECK(tutti_broadcast(group, TUTTI_BUF(x, 1, TUTTI_F32), size, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(NULL, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1, (tutti_dtype)77), TUTTI_SUM, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1, TUTTI_F32), (tutti_redop)9, NULL) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1, TUTTI_I32), TUTTI_AVG, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(x, 1, TUTTI_F32),
                           TUTTI_BUF(x + 1, (size_t)size + 1, TUTTI_F32), NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(x, 1, TUTTI_I32),
                           TUTTI_BUF(x, (size_t)size, TUTTI_F32), NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_work_wait(NULL) == TUTTI_ERR_ARG);
    /* Nothing was sent and the order is whole. */
    x[0] = 1;
    CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK &&
          x[0] == (float)size);
    return 0;
}

static void bad_arguments_are_refused_before_anything_is_sent(void **state)
{
    (void)state;
    run_everywhere(2, bad_arguments, NULL);
    assert_int_equal(tutti_run_ranks_as_threads(1, bad_arguments, NULL), 0);
}

static int spans(tutti_group *group, void *arg)
{
    tutti__time_span events[2];
    tutti_work *work;
    uint64_t begin, end;
    float x = 1;

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &work) == TUTTI_OK);
    while (!tutti_work_done(work))
        usleep(100);
    tutti__work_times(work, &begin, &end);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    CHECK(begin > 0 && end >= begin && end <= tutti__now_ns());
    CHECK(tutti__recorder_read(group->flight.recorder, events, 2) == 2);
    CHECK(strcmp(events[0].name, "barrier") == 0 && strcmp(events[1].name, "all_reduce") == 0);
    CHECK(events[1].arg == events[0].arg + 1 && events[1].thread == 1 &&
          events[1].begin_ns >= events[0].end_ns && events[1].end_ns >= events[1].begin_ns);
    CHECK(events[1].detail[0] == 1);
    return 0;
}

static void collectives_are_recorded(void **state)
{
    (void)state;
    run_everywhere(2, spans, NULL);
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int group_again_and_again(tutti_group *group, void *arg)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_store *store = group->boot.store;
    int open = 0;

    for (int i = 0; i < 5; i++) {
        const tutti_group_opts opts = {
            .store = store, .rank = rank, .world_size = size, .name = "again", .timeout_ms = 20000};
        tutti_group *again, *beside;
        float x = 1;

        CHECK(tutti_group_init(&again, &opts) == TUTTI_OK);
        CHECK(tutti_group_init(&beside, &opts) == TUTTI_OK);
        CHECK(tutti_all_reduce(beside, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(tutti_all_reduce(again, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        CHECK(x == (float)(size * size));
        tutti_group_free(again);
        tutti_group_free(beside);
        /* Threads share the table, so only a process can say that nothing stayed open. */
        if (getpid() != *(const pid_t *)arg && i == 0)
            open = open_descriptors();
        else if (getpid() != *(const pid_t *)arg)
            CHECK(open_descriptors() == open);
    }
    return 0;
}

static void groups_are_made_again_in_one_process(void **state)
{
    pid_t self = getpid();

    (void)state;
    run_everywhere(3, group_again_and_again, &self);
}

static int late_rank(tutti_group *group, void *arg)
{
    _Atomic int *come = arg;
    int size = tutti_group_size(group);

    /* Nobody leaves before everybody has come. */
    for (int i = 1; i <= 50; i++) {
        atomic_fetch_add(come, 1);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        CHECK(atomic_load(come) >= i * size);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    }
    return 0;
}

static void barrier_holds_everybody(void **state)
{
    _Atomic int come = 0;

    (void)state;
    /* more than there are cores */
    assert_int_equal(tutti_run_ranks_as_threads(7, late_rank, &come), 0);
    atomic_store(&come, 0);
    assert_int_equal(
        tutti_run_ranks(4, late_rank, &come, &(tutti_ranks_opts){.transport = TUTTI_TRANSPORT_TCP}),
        0);
}

/* ---- What is no group, and whose it is ------------------------------------------------------------------ */

static void no_group_is_refused(void **state)
{
    float x[2] = {0};
    size_t counts[1] = {1};
    tutti_buf buf = {x, 1, TUTTI_F32, NULL};
    tutti_group *sub = (tutti_group *)x;
    tutti_work *work = (tutti_work *)x;
    void *p = x;
    int rank = 0;

    (void)state;
    assert_int_equal(tutti_all_reduce(NULL, buf, TUTTI_SUM, &work), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "all_reduce: no group given"));
    assert_non_null(strstr(tutti_last_error(), "this rank is not in it (tutti_group_split"));
    assert_null(work);
    assert_int_equal(tutti_reduce(NULL, buf, TUTTI_SUM, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_reduce_scatter(NULL, tutti_buf_const(buf), buf, TUTTI_SUM, NULL),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_broadcast(NULL, buf, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_scatter(NULL, tutti_buf_const(buf), buf, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_gather(NULL, tutti_buf_const(buf), buf, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_all_gather(NULL, tutti_buf_const(buf), buf, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_all_gather_v(NULL, tutti_buf_const(buf), buf, counts, NULL),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_all_to_all(NULL, tutti_buf_const(buf), buf, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_all_to_all_v(NULL, tutti_buf_const(buf), counts, buf, counts, NULL),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_barrier(NULL, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_monitored_barrier(NULL, 0, false), TUTTI_ERR_ARG);
    assert_int_equal(tutti_send(NULL, tutti_buf_const(buf), 0, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_recv(NULL, buf, 0, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_group_alloc(NULL, 64, &p), TUTTI_ERR_ARG);
    assert_null(p);
    assert_int_equal(tutti_group_split(NULL, &rank, 1, NULL, &sub), TUTTI_ERR_ARG);
    assert_null(sub);
    assert_int_equal(tutti_group_split_parts(NULL, 1, NULL, &sub), TUTTI_ERR_ARG);
    assert_int_equal(tutti_group_set_timeout(NULL, 1000), TUTTI_ERR_ARG);
}

static void options_that_mean_nothing_are_refused(void **state)
{
    tutti_group_opts opts = {.world_size = 1};
    tutti_group *group, *sub;

    (void)state;
    /* Ranks were counted, but they would have been groups of one each. */
    assert_int_equal(tutti_group_init(&group, &(tutti_group_opts){.rank = 1, .world_size = 2}),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "rank 1 of 2 but no store"));
    assert_int_equal(tutti_store_memory_new(&opts.store), TUTTI_OK);
    opts.transport = (tutti_transport)7;
    assert_int_equal(tutti_group_init(&group, &opts), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "transport 7 is unknown"));
    opts.transport = TUTTI_TRANSPORT_AUTO;
    opts.heartbeat_ms = -9;
    assert_int_equal(tutti_group_init(&group, &opts), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "heartbeat_ms is -9"));
    opts.heartbeat_ms = 0;
    assert_int_equal(tutti_group_init(&group, &opts), TUTTI_OK);
    assert_int_equal(tutti_group_split(group, NULL, 1, NULL, &sub), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "the list of ranks is NULL"));
    tutti_group_free(group);
    tutti_store_free(opts.store);
}

/* A helper process that a rank forks, and that frees what it finds on its way out, is not that rank leaving. */
static int fork_and_free(tutti_group *group, void *arg)
{
    float one = 1;
    int how = -1;
    pid_t child = fork();

    (void)arg;
    CHECK(child >= 0);
    if (child == 0) {
        tutti_group_free(group);
        _exit(0);
    }
    CHECK(waitpid(child, &how, 0) == child && how == 0);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&one, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(one == (float)tutti_group_size(group));
    return 0;
}

static void a_forked_child_frees_nothing_of_its_parent(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(2, fork_and_free, NULL, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(2, fork_and_free, NULL, TUTTI_TRANSPORT_TCP), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_in_flight),
        cmocka_unit_test(synchronous_calls_keep_their_place),
        cmocka_unit_test(functions_are_queued_too),
        cmocka_unit_test(memory_of_the_group),
        cmocka_unit_test(sub_groups),
        cmocka_unit_test(bad_arguments_are_refused_before_anything_is_sent),
        cmocka_unit_test(collectives_are_recorded),
        cmocka_unit_test(groups_are_made_again_in_one_process),
        cmocka_unit_test(barrier_holds_everybody),
        cmocka_unit_test(no_group_is_refused),
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(a_forked_child_frees_nothing_of_its_parent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
