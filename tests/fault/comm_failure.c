/* comm: a rank that dies, leaves, hangs, aborts or makes a different call is named at once by all the others.
 * SPDX-License-Identifier: MIT
 * timeout: 120   run: waiting */
#include "comm/p2p/p2p_state.h"
#include "harness/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 4, VICTIM = 2, COUNT = 1 << 16 };

/* What the ranks report to the test, in memory shared between processes. */
typedef struct board {
    _Atomic uint64_t killed_ns; /* when the victim died or left */
    _Atomic uint64_t latest_ns; /* when the last survivor got its error */
    int way;
} board;

enum { IN_A_COLLECTIVE, IDLE, ASYNCHRONOUS };

static board *board_new(int way)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(b != MAP_FAILED);
    b->way = way;
    return b;
}

static void note_time(board *b)
{
    uint64_t now = tutti__now_ns(), old = atomic_load(&b->latest_ns);

    while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
        ;
}

static void die(board *b)
{
    atomic_store(&b->killed_ns, tutti__now_ns());
    raise(SIGKILL);
}

static tutti_status reduce(tutti_group *group, float *p, bool async)
{
    tutti_work *work;

    if (!async)
        return tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_AVG, NULL);
    TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_AVG, &work));
    return tutti_work_wait(work);
}

/* ---- Death ------------------------------------------------------------------------------------------- */

static int one_dies(tutti_group *group, void *arg)
{
    board *b = arg;
    float *p = calloc(COUNT, sizeof *p);
    tutti_status status = TUTTI_OK;

    for (int step = 0; step < 1000000 && status == TUTTI_OK; step++) {
        if (step == 20 && tutti_group_rank(group) == VICTIM)
            die(b);
        if (step == 20 && b->way == IDLE)
            while (!tutti__comm_failed(&group->comm))
                usleep(200);
        status = reduce(group, p, b->way == ASYNCHRONOUS);
    }
    note_time(b);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "rank 2 (") && strstr(tutti_last_error(), "was lost"));
    /* A rank still in the previous call, which the victim had completed, gets the error there. */
    CHECK(strstr(tutti_last_error(), "all_reduce #21 (F32 x 65536, avg)") ||
          strstr(tutti_last_error(), "all_reduce #20 (F32 x 65536, avg)"));
    CHECK(strstr(tutti_last_error(), "\"world\"") != NULL);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER); /* the failure is permanent */
    free(p);
    return 0;
}

static void run_death(int way, tutti_transport transport, const int *hosts)
{
    board *b = board_new(way);
    int results[SIZE];
    const tutti_ranks_opts opts = {
        .processes = true, .transport = transport, .hosts = hosts, .results = results};
    double ms;

    tutti_run_ranks(SIZE, one_dies, b, &opts);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(results[r], r == VICTIM ? -SIGKILL : 0);
    ms = (double)(atomic_load(&b->latest_ns) - atomic_load(&b->killed_ns)) * 1e-6;
    print_message("all know after %.2f ms\n", ms);
    assert_true(ms < TUTTI_LATE_MS); /* the target is 0.2 s */
    munmap(b, sizeof *b);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    for (int way = IN_A_COLLECTIVE; way <= ASYNCHRONOUS; way++) {
        run_death(way, TUTTI_TRANSPORT_AUTO, NULL);
        run_death(way, TUTTI_TRANSPORT_TCP, NULL);
        run_death(way, TUTTI_TRANSPORT_AUTO, tutti_two_hosts);
    }
}

/* ---- Leaving -------------------------------------------------------------------------------------------- */

static int one_leaves(tutti_group *group, void *arg)
{
    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "here") == TUTTI_OK);
    if (tutti_group_rank(group) == VICTIM)
        return 0;
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "rank 2 (") &&
          strstr(tutti_last_error(), "has left the group"));
    return 0;
}

static void run_all_ways(tutti_rank_body *body, void *arg, int timeout_ms)
{
    for (int way = 0; way < 3; way++) /* one host, TCP, two hosts */
        for (int processes = 0; processes < 2; processes++) {
            const tutti_ranks_opts opts = {.processes = processes,
                                           .transport = way == 1 ? TUTTI_TRANSPORT_TCP
                                                                 : TUTTI_TRANSPORT_AUTO,
                                           .hosts = way == 2 ? tutti_two_hosts : NULL,
                                           .timeout_ms = timeout_ms};

            assert_int_equal(tutti_run_ranks(SIZE, body, arg, &opts), 0);
        }
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    run_all_ways(one_leaves, NULL, 0);
}

/* ---- Mismatch --------------------------------------------------------------------------------------------- */

static int calls_differ(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), way = *(const int *)arg;
    float *p = calloc(COUNT, sizeof *p);
    tutti_status status;

    if (rank != VICTIM)
        status = tutti_all_reduce(group, TUTTI_BUF(p, 1000, TUTTI_F32), TUTTI_SUM, NULL);
    else if (way == 0)
        status = tutti_all_reduce(group, TUTTI_BUF(p, 1001, TUTTI_F32), TUTTI_SUM, NULL);
    else if (way == 1)
        status = tutti_all_reduce(group, TUTTI_BUF(p, 1000, TUTTI_F32), TUTTI_MAX, NULL);
    else if (way == 2)
        status = tutti_all_reduce(group, TUTTI_BUF(p, 1000, TUTTI_I32), TUTTI_SUM, NULL);
    else if (way == 3)
        status = tutti_broadcast(group, TUTTI_BUF(p, 1000, TUTTI_F32), 1, NULL);
    else
        status = tutti_barrier(group, NULL);
    CHECK(status == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "rank 2 called") != NULL);
    CHECK(strstr(tutti_last_error(), "all_reduce #1 (F32 x 1000, sum)") != NULL);
    CHECK(strstr(tutti_last_error(), way == 0   ? "(F32 x 1001, sum)"
                                     : way == 1 ? "(F32 x 1000, max)"
                                     : way == 2 ? "(I32 x 1000, sum)"
                                     : way == 3 ? "broadcast #1 (F32 x 1000, root 1)"
                                                : "barrier #1") != NULL);
    free(p);
    return 0;
}

static void different_calls_are_told_on_all_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < 5; way++)
        run_all_ways(calls_differ, &way, 0);
}

static int lists_differ(tutti_group *group, void *arg)
{
    tutti_group *sub;
    int ranks[2] = {0, tutti_group_rank(group) == VICTIM ? 3 : 1};

    (void)arg;
    CHECK(tutti_group_split(group, ranks, 2, NULL, &sub) == TUTTI_ERR_MISMATCH && sub == NULL);
    CHECK(strstr(tutti_last_error(),
                 "rank 2 called tutti_group_split with 2 ranks (0, 3) and name \"sub\", but rank 0 "
                 "called tutti_group_split with 2 ranks (0, 1) and name \"sub\"") != NULL);
    return 0;
}

static int names_differ(tutti_group *group, void *arg)
{
    const char *name = tutti_group_rank(group) == VICTIM ? "test" : "train";
    tutti_group *sub;

    (void)arg;
    CHECK(tutti_group_split_by(group, 1, 1, name, &sub) == TUTTI_ERR_MISMATCH && sub == NULL);
    CHECK(strstr(tutti_last_error(),
                 "rank 2 called tutti_group_split_by with name \"test\", but rank 0 called "
                 "tutti_group_split_by with name \"train\"") != NULL);
    return 0;
}

static void different_splits_are_told(void **state)
{
    (void)state;
    run_all_ways(lists_differ, NULL, 0);
    run_all_ways(names_differ, NULL, 0);
}

/* ---- Time --------------------------------------------------------------------------------------------------- */

/* Rank 0 has a low time limit, and calls when the others are in the call: only the victim is late. */
static int one_hangs(tutti_group *group, void *arg)
{
    enum { LIMIT_MS = 500 };
    const int rank = tutti_group_rank(group);
    const uint64_t calls = tutti_group_sequence(group);
    tutti_work *work = NULL;
    uint64_t begin;

    (void)arg;
    if (rank != 0 && rank != VICTIM) {
        CHECK(tutti_barrier(group, &work) == TUTTI_OK);
        while (tutti_group_sequence(group) == calls)
            usleep(100);
    }
    CHECK(tutti_meet(group, "here") == TUTTI_OK);
    if (rank == VICTIM) {
        while (!tutti__comm_failed(&group->comm))
            usleep(1000);
        CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_TIMEOUT);
        return 0;
    }
    begin = tutti__now_ns();
    if (rank == 0)
        CHECK(tutti_group_set_timeout(group, LIMIT_MS) == TUTTI_OK);
    CHECK((work ? tutti_work_wait(work) : tutti_barrier(group, NULL)) == TUTTI_ERR_TIMEOUT);
    CHECK(strstr(tutti_last_error(), "barrier #1 timed out after 0.5 s waiting for rank 2 (") !=
          NULL);
    CHECK((double)(tutti__now_ns() - begin) * 1e-6 < LIMIT_MS + TUTTI_LATE_MS);
    return 0;
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    run_all_ways(one_hangs, NULL, 0);
}

static void a_rank_that_never_joins_is_named(void **state)
{
    const tutti_group_opts opts = {.rank = 1, .world_size = 3, .timeout_ms = 300};
    tutti_group_opts with = opts;
    tutti_group *group;

    (void)state;
    assert_int_equal(tutti_store_memory_new(&with.store), TUTTI_OK);
    assert_int_equal(tutti_group_init(&group, &with), TUTTI_ERR_PEER);
    assert_null(group);
    assert_non_null(strstr(tutti_last_error(), "2 of 3 ranks never came: ranks 0, 2"));
    tutti_store_free(with.store);
}

/* ---- Abort ---------------------------------------------------------------------------------------------------- */

/* Some ranks are still in tutti_group_init, which succeeds: their first call returns it. */
static int one_aborts(tutti_group *group, void *arg)
{
    float *p = calloc(COUNT, sizeof *p);
    tutti_work *work[5];
    board *b = arg;
    bool pending = b->way == ASYNCHRONOUS;

    if (tutti_group_rank(group) == VICTIM) {
        tutti_group_abort(group, "loss is NaN in step %d", 7);
    } else if (pending) {
        for (int i = 0; i < 5; i++)
            if (tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_SUM, &work[i]) !=
                TUTTI_OK)
                work[i] = NULL;
        for (int i = 0; i < 5; i++)
            if (work[i]) {
                CHECK(tutti_work_wait(work[i]) == TUTTI_ERR_ABORTED);
                CHECK(strstr(tutti_last_error(), "said: loss is NaN in step 7") != NULL);
            }
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "rank 2 (") &&
          strstr(tutti_last_error(), "said: loss is NaN in step 7"));
    tutti_group_abort(group, "too late"); /* the first cause is kept */
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "said: loss is NaN in step 7") != NULL);
    free(p);
    return 0;
}

static void an_abort_reaches_everybody(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        board *b = board_new(i % 2 ? ASYNCHRONOUS : IDLE);

        run_all_ways(one_aborts, b, 0);
        munmap(b, sizeof *b);
    }
}

typedef struct starvation {
    tutti_group *group;
    _Atomic bool calls; /* the rank is about to make its call */
} starvation;

/* Keeps the control thread from handling a message, as a lack of CPU does, until the call has waited for a while. */
static void *starve_control(void *arg)
{
    starvation *s = arg;

    tutti__p2p_enter(s->group->p2p);
    (void)tutti_meet(s->group, "starved");
    while (!atomic_load(&s->calls))
        usleep(1000);
    usleep(1500000);
    tutti__p2p_leave(s->group->p2p);
    return NULL;
}

/* Rank 3 sees that the others are gone from the call long before its control thread reads why. */
static int one_is_starved(tutti_group *group, void *arg)
{
    enum { STARVED = 3 };
    static float p[COUNT];
    const int rank = tutti_group_rank(group);
    const uint64_t calls = tutti_group_sequence(group);
    starvation s = {.group = group};
    tutti_work *work = NULL;
    pthread_t thread;

    (void)arg;
    if (rank == STARVED)
        CHECK(pthread_create(&thread, NULL, starve_control, &s) == 0);
    else
        CHECK(tutti_meet(group, "starved") == TUTTI_OK);
    if (rank == 0)
        CHECK(tutti_send(group, TUTTI_CONST_BUF(&rank, 1, TUTTI_I32), STARVED, 0, NULL) ==
              TUTTI_OK);
    CHECK(tutti_meet(group, "sent") == TUTTI_OK);
    if (rank == 1) { /* with several hosts, on that of rank 3 */
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_AVG, &work) ==
              TUTTI_OK);
        while (tutti_group_sequence(group) == calls)
            usleep(100);
    }
    CHECK(tutti_meet(group, "begun") == TUTTI_OK);
    if (rank == VICTIM)
        tutti_group_abort(group, "the disk burns");
    if (work)
        CHECK(tutti_work_wait(work) == TUTTI_ERR_ABORTED);
    CHECK(tutti_meet(group, "failed") == TUTTI_OK);
    atomic_store(&s.calls, true);
    CHECK(reduce(group, p, false) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "said: the disk burns") != NULL);
    if (rank == STARVED)
        pthread_join(thread, NULL);
    return 0;
}

static void a_starved_rank_hears_the_cause(void **state)
{
    (void)state;
    for (int hosts = 0; hosts < 2; hosts++)
        assert_int_equal(
            tutti_run_ranks(
                SIZE, one_is_starved, NULL,
                &(tutti_ranks_opts){.processes = true,
                                    .transport = hosts ? TUTTI_TRANSPORT_AUTO : TUTTI_TRANSPORT_TCP,
                                    .hosts = hosts ? tutti_two_hosts : NULL}),
            0);
}

/* ---- Afterwards -------------------------------------------------------------------------------------------------- */

/* The survivors make a smaller group over the same store. */
static int survivors_go_on(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_group_opts opts = {.store = group->boot.store,
                             .rank = rank - (rank > VICTIM),
                             .world_size = SIZE - 1,
                             .timeout_ms = 20000};
    tutti_group *rest;
    float x = 1;

    /* A rank that completes this knows that all have returned from tutti_group_init; the others may see the death in there. */
    if (tutti_barrier(group, NULL) == TUTTI_OK && rank == VICTIM)
        die(arg);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
    CHECK(tutti_group_init(&rest, &opts) == TUTTI_OK);
    CHECK(tutti_all_reduce(rest, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x == SIZE - 1);
    tutti_group_free(rest);
    return 0;
}

static void survivors_make_a_new_group(void **state)
{
    board *b = board_new(0);
    int results[SIZE];

    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        tutti_run_ranks(
            SIZE, survivors_go_on, b,
            &(tutti_ranks_opts){.processes = true,
                                .transport = tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                .results = results});
        for (int r = 0; r < SIZE; r++)
            assert_int_equal(results[r], r == VICTIM ? -SIGKILL : 0);
    }
    munmap(b, sizeof *b);
}

/* Makes and frees sub-groups until the victim dies during one of these calls. */
static int dies_in_setup(tutti_group *group, void *arg)
{
    const struct itimerval fuse = {.it_value = {0, *(const int *)arg}};
    const int all[SIZE] = {0, 1, 2, 3};
    tutti_status status = tutti_barrier(group, NULL);
    double begin = tutti__now_ms();
    tutti_group *sub;

    if (tutti_group_rank(group) == VICTIM)
        setitimer(ITIMER_REAL, &fuse, NULL); /* SIGALRM kills it */
    while (status == TUTTI_OK) {
        status = tutti_group_split(group, all, SIZE, NULL, &sub);
        if (status == TUTTI_OK)
            status = tutti_barrier(sub, NULL);
        tutti_group_free(sub);
    }
    CHECK(tutti_status_scope(status) == TUTTI_SCOPE_GROUP);
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    return 0;
}

static void a_rank_that_dies_while_a_group_is_made_is_told(void **state)
{
    int results[SIZE];

    (void)state;
    for (int microseconds = 3000; microseconds < 30000; microseconds += 1700) {
        const tutti_ranks_opts opts = {
            .processes = true,
            .results = results,
            .transport = microseconds % 2000 < 1000 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO};

        tutti_run_ranks(SIZE, dies_in_setup, &microseconds, &opts);
        for (int r = 0; r < SIZE; r++)
            assert_int_equal(results[r], r == VICTIM ? -SIGALRM : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(different_calls_are_told_on_all_ranks),
        cmocka_unit_test(different_splits_are_told),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_rank_that_never_joins_is_named),
        cmocka_unit_test(an_abort_reaches_everybody),
        cmocka_unit_test(a_starved_rank_hears_the_cause),
        cmocka_unit_test(survivors_make_a_new_group),
        cmocka_unit_test(a_rank_that_dies_while_a_group_is_made_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
