/* comm: a stopped rank is named by all the others within the heartbeat, and reports why it was removed when it resumes; a rank
 * that was itself suspended accuses no other.
 * SPDX-License-Identifier: MIT
 * timeout: 120   run: waiting */
#include "harness/ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 3, VICTIM = 1, HEARTBEAT_MS = 500, COUNT = 1 << 14 };

/* Seen by all processes. */
typedef struct board {
    _Atomic uint64_t stopped_ns, latest_ns;
    _Atomic int pids[SIZE], ready, told;
    _Atomic bool continued;
    bool idle;
} board;

static board *board_new(void)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(b != MAP_FAILED);
    return b;
}

static void note_time(board *b)
{
    uint64_t now = tutti__now_ns(), old = atomic_load(&b->latest_ns);

    while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
        ;
}

static bool wait_for(const _Atomic int *value, int least)
{
    double deadline = tutti__now_ms() + 20000;

    while (atomic_load(value) < least && tutti__now_ms() < deadline)
        usleep(500);
    return atomic_load(value) >= least;
}

/* ---- One stops ------------------------------------------------------------------------------------------ */

/* Every rank's message: which rank, how it failed, and which rank detected it. */
static int check_message(void)
{
    const char *text = tutti_last_error();

    CHECK(strstr(text, "rank 1 (") && strstr(text, "process ") && strstr(text, "SIGSTOP"));
    CHECK(strstr(text, "has not been heard from for ") && strstr(text, " s (heartbeat 0.5 s)"));
    CHECK(strstr(text, "reported by rank ") && strstr(text, "group \"world\""));
    return 0;
}

static int one_stops(tutti_group *group, void *arg)
{
    board *b = arg;
    float *p = calloc(COUNT, sizeof *p);
    tutti_status status = TUTTI_OK;
    int rank = tutti_group_rank(group);

    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    atomic_store(&b->pids[rank], (int)getpid());
    atomic_fetch_add(&b->ready, 1);
    /* A rank that is only computing meanwhile gets it too. */
    if (b->idle && rank != VICTIM)
        while (!tutti__comm_failed(&group->comm))
            usleep(200);
    while (status == TUTTI_OK)
        status = tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_SUM, NULL);
    if (rank != VICTIM) {
        note_time(b);
        atomic_fetch_add(&b->told, 1);
    } else {
        CHECK(atomic_load(&b->continued));
    }
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "all_reduce #") != NULL);
    free(p);
    return check_message();
}

/* Stops the victim, resumes it when the others have their error. */
static pid_t start_stopper(board *b)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (!wait_for(&b->ready, SIZE))
        _exit(1);
    usleep(20000);
    kill(atomic_load(&b->pids[VICTIM]), SIGSTOP);
    atomic_store(&b->stopped_ns, tutti__now_ns());
    if (!wait_for(&b->told, SIZE - 1))
        _exit(2);
    atomic_store(&b->continued, true);
    kill(atomic_load(&b->pids[VICTIM]), SIGCONT);
    _exit(0);
}

static void run_stop(tutti_transport transport, const int *hosts, bool idle)
{
    const tutti_ranks_opts opts = {
        .processes = true, .transport = transport, .hosts = hosts, .heartbeat_ms = HEARTBEAT_MS};
    board *b = board_new();
    int status;
    pid_t stopper;
    double ms;

    b->idle = idle;
    stopper = start_stopper(b);
    assert_int_equal(tutti_run_ranks(SIZE, one_stops, b, &opts), 0);
    assert_int_equal(waitpid(stopper, &status, 0), stopper);
    assert_int_equal(status, 0);
    ms = (double)(atomic_load(&b->latest_ns) - atomic_load(&b->stopped_ns)) * 1e-6;
    print_message("heartbeat %d ms: all know %.0f ms after the stop\n", HEARTBEAT_MS, ms);
    assert_true(ms < HEARTBEAT_MS + TUTTI_LATE_MS); /* the target is one */
    munmap(b, sizeof *b);
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    run_stop(TUTTI_TRANSPORT_AUTO, NULL, false);
    run_stop(TUTTI_TRANSPORT_AUTO, NULL, true);
    run_stop(TUTTI_TRANSPORT_TCP, NULL, false);
    run_stop(TUTTI_TRANSPORT_TCP, NULL, true);
    run_stop(TUTTI_TRANSPORT_AUTO, tutti_two_hosts, false);
}

static _Atomic int start_late_ms; /* how long new threads wait before they first run */

typedef struct late_start {
    void *(*body)(void *);
    void *arg;
} late_start;

static void *start_late(void *arg)
{
    late_start own = *(late_start *)arg;

    free(arg);
    usleep((unsigned)atomic_load(&start_late_ms) * 1000);
    return own.body(own.arg);
}

/* Interposes libc's, or the sanitizer's. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *arg)
{
    typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    late_start *late = atomic_load(&start_late_ms) ? malloc(sizeof *late) : NULL;
    create *next;

    memcpy(&next, &symbol, sizeof next);
    if (!late)
        return next(thread, attributes, body, arg);
    *late = (late_start){body, arg};
    return next(thread, attributes, start_late, late);
}

/* As soon as it has the group, before its threads have run. */
static int one_stops_at_once(tutti_group *group, void *arg)
{
    const tutti_group_opts opts = {.store = group->boot.store,
                                   .rank = tutti_group_rank(group),
                                   .world_size = SIZE,
                                   .name = "brief",
                                   .timeout_ms = 8000,
                                   .heartbeat_ms = HEARTBEAT_MS,
                                   .transport = *(const tutti_transport *)arg};
    tutti_group *brief;

    atomic_store(&start_late_ms, opts.rank == VICTIM ? HEARTBEAT_MS / 2 : 0);
    CHECK(tutti_group_init(&brief, &opts) == TUTTI_OK);
    if (opts.rank == VICTIM)
        raise(SIGSTOP);
    CHECK(tutti_barrier(brief, NULL) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "has not been heard from for") != NULL);
    if (opts.rank == 0)
        kill((pid_t)group->comm.peers[VICTIM].pid, SIGKILL);
    tutti_group_free(brief);
    return 0;
}

static void who_stops_at_once_is_named_too(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        tutti_transport transport = tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO;
        int results[SIZE];
        const tutti_ranks_opts opts = {
            .processes = true, .transport = transport, .heartbeat_ms = -1, .results = results};

        tutti_run_ranks(SIZE, one_stops_at_once, &transport, &opts);
        for (int r = 0; r < SIZE; r++)
            assert_int_equal(results[r], r == VICTIM ? -SIGKILL : 0);
    }
}

/* ---- All stop --------------------------------------------------------------------------------------------- */

static int all_stop(tutti_group *group, void *arg)
{
    board *b = arg;
    float *p = calloc(COUNT, sizeof *p), stop = 0;
    int rank = tutti_group_rank(group);

    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    atomic_store(&b->pids[rank], (int)getpid());
    atomic_fetch_add(&b->ready, 1);
    while (stop == 0) {
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, COUNT, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        stop = rank == 0 && atomic_load(&b->told) ? 1 : 0;
        CHECK(tutti_broadcast(group, TUTTI_BUF(&stop, 1, TUTTI_F32), 0, NULL) == TUTTI_OK);
    }
    free(p);
    return 0;
}

static pid_t start_suspender(board *b)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (!wait_for(&b->ready, SIZE))
        _exit(1);
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < SIZE; r++)
            kill(atomic_load(&b->pids[r]), SIGSTOP);
        usleep(2 * HEARTBEAT_MS * 1000);
        for (int r = 0; r < SIZE; r++)
            kill(atomic_load(&b->pids[(r + round) % SIZE]), SIGCONT);
        usleep(HEARTBEAT_MS * 1000); /* long enough to accuse another rank */
    }
    atomic_store(&b->told, 1);
    _exit(0);
}

static void a_job_that_was_stopped_as_a_whole_goes_on(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        const tutti_ranks_opts opts = {.processes = true,
                                       .transport =
                                           tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                       .heartbeat_ms = HEARTBEAT_MS};
        board *b = board_new();
        pid_t suspender = start_suspender(b);
        int status;

        assert_int_equal(tutti_run_ranks(SIZE, all_stop, b, &opts), 0);
        assert_int_equal(waitpid(suspender, &status, 0), suspender);
        assert_int_equal(status, 0);
        munmap(b, sizeof *b);
    }
}

/* ---- Off ------------------------------------------------------------------------------------------------------ */

/* One rank without a heartbeat, as under a debugger, suffices: no rank is accused. */
static int group_without(tutti_group *group, void *arg)
{
    board *b = arg;
    int rank = tutti_group_rank(group), told = 0;
    const tutti_group_opts opts = {.store = group->boot.store,
                                   .rank = rank,
                                   .world_size = SIZE,
                                   .name = "debugged",
                                   .timeout_ms = 20000,
                                   .heartbeat_ms = rank == VICTIM ? -1 : HEARTBEAT_MS};
    tutti_group *debugged;

    CHECK(tutti_group_init(&debugged, &opts) == TUTTI_OK);
    atomic_store(&b->pids[rank], (int)getpid());
    atomic_fetch_add(&b->ready, 1);
    if (rank == 0) {
        CHECK(wait_for(&b->ready, SIZE));
        kill(atomic_load(&b->pids[VICTIM]), SIGSTOP);
        usleep(2 * HEARTBEAT_MS * 1000);
        told = tutti__comm_failed(&debugged->comm);
        kill(atomic_load(&b->pids[VICTIM]), SIGCONT);
    }
    CHECK(tutti_barrier(debugged, NULL) == TUTTI_OK);
    CHECK(!told);
    tutti_group_free(debugged);
    return 0;
}

static void without_a_heartbeat_nobody_is_accused(void **state)
{
    const tutti_ranks_opts opts = {.processes = true, .heartbeat_ms = -1};
    board *b = board_new();

    (void)state;
    assert_int_equal(tutti_run_ranks(SIZE, group_without, b, &opts), 0);
    munmap(b, sizeof *b);
}

static void a_heartbeat_that_means_nothing_is_refused(void **state)
{
    tutti_group *group;

    (void)state;
    assert_int_equal(tutti_group_init(&group, &(tutti_group_opts){.heartbeat_ms = 3}),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "heartbeat_ms is 3, expected at least"));
    setenv("TUTTI_HEARTBEAT_S", "soon", 1);
    assert_int_equal(tutti_group_init(&group, NULL), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_HEARTBEAT_S is \"soon\""));
    setenv("TUTTI_HEARTBEAT_S", "2.5", 1);
    assert_int_equal(tutti_group_init(&group, NULL), TUTTI_OK);
    assert_int_equal(group->boot.heartbeat_ms, 2500);
    tutti_group_free(group);
    unsetenv("TUTTI_HEARTBEAT_S");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(who_stops_at_once_is_named_too),
        cmocka_unit_test(a_job_that_was_stopped_as_a_whole_goes_on),
        cmocka_unit_test(without_a_heartbeat_nobody_is_accused),
        cmocka_unit_test(a_heartbeat_that_means_nothing_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
