/* comm: a failure during a call that NCCL runs gives an error on all ranks that names rank or cause; nothing of NCCL remains,
 * and a new group works in the same process. NCCL and CUDA are the stand-ins of tests/standin: their kernels wait forever
 * for a rank that does not come.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/nccl.h"
#include "harness/ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 3, VICTIM = 1, COUNT = 20000, WITHIN_MS = TUTTI_LATE_MS, HEARTBEAT_MS = 500 };

/* What is done to rank VICTIM, or by it. */
typedef enum deed { DIES, STOPS, ABORTS, NOTHING } deed;

typedef struct round {
    const char *fault; /* STANDIN_NCCL_FAULT while the first group lives, or NULL */
    deed deed;
    int timeout_ms;           /* of the calls; 0: the group's */
    int most_ms;              /* from the deed, or the call, to the error */
    tutti_status status;      /* 0: any */
    const char *says, *also;  /* in the message of every rank */
    _Atomic uint64_t done_ns; /* when the deed was done */
} round;

typedef struct gpu {
    tutti_stream *stream;
    float *p;
} gpu;

static int gpu_open(gpu *g, tutti_group *group)
{
    const tutti_device device = tutti_group_device(group);

    CHECK(device.kind == TUTTI_CUDA && tutti_stream_new(&g->stream, device) == TUTTI_OK);
    g->p = g->stream->ops->alloc(device, COUNT * sizeof *g->p, true);
    CHECK(g->p);
    return 0;
}

static void gpu_close(gpu *g)
{
    g->stream->ops->free(g->stream->device, g->p);
    tutti_stream_free(g->stream);
}

static tutti_status all_reduce(tutti_group *group, gpu *g, size_t count, tutti_work **work_p)
{
    return tutti_all_reduce(group, (tutti_buf){g->p, count, TUTTI_F32, g->stream}, TUTTI_SUM,
                            work_p);
}

/* ---- One round ---------------------------------------------------------------------------------------------- */

static void act(round *r, tutti_group *group)
{
    atomic_store(&r->done_ns, tutti__now_ns());
    if (r->deed == DIES)
        kill(getpid(), SIGKILL);
    else if (r->deed == STOPS)
        kill(getpid(), SIGSTOP);
    else if (r->deed == ABORTS)
        tutti_group_abort(group, "enough of it");
}

/* The first call works; the victim's second hangs in NCCL, so that all ranks are in it when the deed is done: none can have left
 * it. */
static int fail_once(round *r, tutti_group *group, gpu *g)
{
    const int rank = tutti_group_rank(group);
    tutti_work *work;
    tutti_status status;

    CHECK(all_reduce(group, g, COUNT, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "one is done") == TUTTI_OK);
    CHECK(tutti_group_set_timeout(group, r->timeout_ms) == TUTTI_OK);
    atomic_store(&r->done_ns, tutti__now_ns());
    status = all_reduce(group, g, COUNT, &work);
    if (r->deed != NOTHING) {
        CHECK(status == TUTTI_OK);
        CHECK(tutti_meet(group, "all have begun") == TUTTI_OK);
    }
    if (r->deed != NOTHING && rank == VICTIM) {
        while (tutti_work_wait_for(work, 50) != TUTTI_ERR_TIMEOUT) /* it must hang */
            CHECK(false);
        act(r, group);
    }
    if (status == TUTTI_OK) /* else it failed before this rank called */
        status = tutti_work_wait(work);
    CHECK(r->status ? status == r->status : status != TUTTI_OK);
    if (!strstr(tutti_last_error(), r->says) || (r->also && !strstr(tutti_last_error(), r->also))) {
        fprintf(stderr, "rank %d was told: %s\n", rank, tutti_last_error());
        return 1;
    }
    CHECK((double)(tutti__now_ns() - atomic_load(&r->done_ns)) * 1e-6 < r->most_ms);
    CHECK(all_reduce(group, g, COUNT, NULL) == status); /* and every later call */
    return 0;
}

/* A group of the survivors. */
static int start_again(tutti_store *store, int rank, int size)
{
    const tutti_group_opts opts = {
        .store = store, .rank = rank, .world_size = size, .name = "again", .timeout_ms = 20000};
    tutti_group *group;
    gpu g;
    float got[4], one[4] = {1, 2, 3, 4};

    unsetenv("STANDIN_NCCL_FAULT");
    CHECK(tutti_group_init(&group, &opts) == TUTTI_OK);
    CHECK(gpu_open(&g, group) == 0);
    CHECK(tutti__copy_in(g.stream, g.p, one, sizeof one) == TUTTI_OK);
    CHECK(all_reduce(group, &g, 4, NULL) == TUTTI_OK);
    CHECK(tutti__read(g.stream, got, g.p, sizeof got) == TUTTI_OK);
    for (int i = 0; i < 4; i++)
        CHECK(got[i] == one[i] * (float)size);
    gpu_close(&g);
    tutti_group_free(group);
    return 0;
}

static int no_leaks(int rank)
{
    char text[200];

    if (nccl_leaks(text, sizeof text) == 0)
        return 0;
    fprintf(stderr, "rank %d leaves behind: %s\n", rank, text);
    return 1;
}

static int body(tutti_group *outer, void *arg)
{
    round *r = arg;
    const int rank = tutti_group_rank(outer);
    const bool shrinks = r->deed == DIES || r->deed == STOPS;
    tutti_group_opts opts = {.store = outer->boot.store,
                             .rank = rank,
                             .world_size = SIZE,
                             .name = "first",
                             .heartbeat_ms = r->deed == STOPS ? HEARTBEAT_MS : 0,
                             .timeout_ms = 20000};
    const pid_t victim = (pid_t)outer->comm.peers[VICTIM].pid;
    tutti_group *group;
    gpu g;
    int result;

    CHECK(tutti_group_init(&group, &opts) == TUTTI_OK);
    CHECK(gpu_open(&g, group) == 0);
    result = fail_once(r, group, &g);
    gpu_close(&g);
    tutti_group_free(group);
    CHECK(result == 0 && no_leaks(rank) == 0);
    if (r->deed == STOPS && rank == 0)
        kill(victim, SIGKILL);
    CHECK(start_again(opts.store, shrinks && rank > VICTIM ? rank - 1 : rank,
                      shrinks ? SIZE - 1 : SIZE) == 0);
    return no_leaks(rank);
}

static void run(void **state)
{
    const round *what = *state;
    round *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const bool dies = what->deed == DIES || what->deed == STOPS;
    int results[SIZE];

    assert_true(r != MAP_FAILED);
    memcpy(r, what, sizeof *r);
    if (r->fault)
        setenv("STANDIN_NCCL_FAULT", r->fault, 1);
    tutti_run_ranks(SIZE, body, r,
                    &(tutti_ranks_opts){.processes = true, .heartbeat_ms = -1, .results = results});
    unsetenv("STANDIN_NCCL_FAULT");
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(results[i], dies && i == VICTIM ? -SIGKILL : 0);
    munmap(r, sizeof *r);
}

/* ---- At the first call ------------------------------------------------------------------------------------------ */

static bool for_memory; /* the first call asks for memory */

static int no_communicator(tutti_group *group, void *arg)
{
    gpu g;
    void *p;

    CHECK(gpu_open(&g, group) == 0);
    CHECK(tutti_meet(group, "here") == TUTTI_OK); /* the limit is not for setup */
    CHECK(tutti_group_set_timeout(group, 1000) == TUTTI_OK);
    if (for_memory)
        CHECK(tutti_group_alloc_on(group, g.stream, 1000, &p) != TUTTI_OK && !p);
    else
        CHECK(all_reduce(group, &g, COUNT, NULL) != TUTTI_OK);
    CHECK(strstr(tutti_last_error(), "in making its communicator") &&
          strstr(tutti_last_error(), arg));
    gpu_close(&g);
    return 0;
}

static int no_communicator_twice(tutti_group *outer, void *arg)
{
    const tutti_group_opts opts = {.store = outer->boot.store,
                                   .rank = tutti_group_rank(outer),
                                   .world_size = SIZE,
                                   .name = "first",
                                   .timeout_ms = 20000};
    tutti_group *group;
    int result;

    CHECK(tutti_group_init(&group, &opts) == TUTTI_OK);
    result = no_communicator(group, arg);
    tutti_group_free(group);
    return result || no_leaks(opts.rank) || start_again(opts.store, opts.rank, SIZE) ||
           no_leaks(opts.rank);
}

static void test_init(void **state)
{
    char fails[] = "rank 1 (", hangs[] = "timed out after 1 s waiting for NCCL";

    (void)state;
    setenv("STANDIN_NCCL_FAULT", "init:1", 1);
    assert_int_equal(
        tutti_run_ranks_as_processes(SIZE, no_communicator_twice, fails, TUTTI_TRANSPORT_AUTO), 0);
    for_memory = true;
    assert_int_equal(
        tutti_run_ranks_as_processes(SIZE, no_communicator_twice, fails, TUTTI_TRANSPORT_AUTO), 0);
    for_memory = false;
    setenv("STANDIN_NCCL_FAULT", "init_hang:1", 1);
    assert_int_equal(
        tutti_run_ranks_as_processes(SIZE, no_communicator_twice, hangs, TUTTI_TRANSPORT_AUTO), 0);
    unsetenv("STANDIN_NCCL_FAULT");
}

/* ---- Calls that differ --------------------------------------------------------------------------------------- */

/* Reported on all ranks, with both calls, before either is passed to NCCL. */
static int mismatch(tutti_group *group, void *arg)
{
    const bool host = *(bool *)arg, odd = tutti_group_rank(group) == VICTIM;
    float x = 1;
    gpu g;

    CHECK(gpu_open(&g, group) == 0);
    CHECK(all_reduce(group, &g, 100, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "one is done") == TUTTI_OK);
    if (odd && host)
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) ==
              TUTTI_ERR_MISMATCH);
    else
        CHECK(all_reduce(group, &g, host ? 1 : odd ? 200 : 100, NULL) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "rank 1 called all_reduce #2 (") &&
          strstr(strstr(tutti_last_error(), " called all_reduce #2 (") + 1,
                 " called all_reduce #2 ("));
    CHECK(strstr(tutti_last_error(), host ? "of devices" : "F32 x 200"));
    gpu_close(&g);
    return 0;
}

static int uneven_mismatch(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    size_t counts[SIZE] = {100, 200, 300}, all = 600;
    gpu g;

    (void)arg;
    CHECK(gpu_open(&g, group) == 0);
    if (rank == VICTIM) {
        counts[2]++;
        all++;
    }
    CHECK(tutti_all_gather_v(
              group, (tutti_const_buf){g.p + 10000, counts[rank], TUTTI_F32, g.stream},
              (tutti_buf){g.p, all, TUTTI_F32, g.stream}, counts, NULL) == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "rank 2 sends rank 1 300 elements, but rank 1 expects 301"));
    gpu_close(&g);
    return 0;
}

static void test_mismatch(void **state)
{
    bool host = false;

    (void)state;
    assert_int_equal(tutti_run_ranks_as_processes(SIZE, mismatch, &host, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(2, mismatch, &host, TUTTI_TRANSPORT_TCP), 0);
    assert_int_equal(
        tutti_run_ranks_as_processes(SIZE, uneven_mismatch, NULL, TUTTI_TRANSPORT_AUTO), 0);
    host = true;
    assert_int_equal(tutti_run_ranks_as_processes(SIZE, mismatch, &host, TUTTI_TRANSPORT_AUTO), 0);
}

#define ROUND(name, ...)                                                                           \
    {                                                                                              \
#name, run, NULL, NULL, (&(struct round){__VA_ARGS__})                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROUND(test_death, .fault = "hang:1:2", .deed = DIES, .most_ms = WITHIN_MS,
              .status = TUTTI_ERR_PEER, .says = "rank 1 (", .also = "was lost"),
        ROUND(test_stop, .fault = "hang:1:2", .deed = STOPS, .most_ms = HEARTBEAT_MS + WITHIN_MS,
              .status = TUTTI_ERR_PEER, .says = "rank 1 (", .also = "has not been heard from for"),
        ROUND(test_abort, .fault = "hang:1:2", .deed = ABORTS, .most_ms = WITHIN_MS,
              .status = TUTTI_ERR_ABORTED, .says = "enough of it"),
        ROUND(test_time_limit, .fault = "hang:1:2", .deed = NOTHING, .timeout_ms = 1000,
              .most_ms = 1000 + WITHIN_MS, .status = TUTTI_ERR_TIMEOUT,
              .says = "timed out after 1 s waiting for NCCL", .also = "TUTTI_TIMEOUT_S"),
        ROUND(test_failing_call, .fault = "launch:1:2", .deed = NOTHING, .most_ms = 2 * WITHIN_MS,
              .status = TUTTI_ERR_PEER, .says = "rank 1 (",
              .also = "unhandled system error: the stand-in was asked to fail call 2"),
        ROUND(test_asynchronous_error, .fault = "async:1:2", .deed = NOTHING,
              .most_ms = 2 * WITHIN_MS, .status = TUTTI_ERR_PEER, .says = "rank 1 (",
              .also = "in all_reduce: remote process exited or there was a network error: the "
                      "stand-in was asked"),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_mismatch),
    };

    nccl_stand_in(SIZE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
