/* comm: once a call has returned, with any status, its buffer is no longer accessed: the program may unmap it while
 * slow peers are in the middle of the operation.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TRIES = 8, COUNT = 2 << 20 };
#else
enum { TRIES = 24, COUNT = 6 << 20 }; /* elements: a few milliseconds */
#endif
enum { SIZE = 3 };

typedef struct board {
    int op, try;
    _Atomic int done; /* ranks that have returned from the call */
    _Atomic int ready;
} board;

static board *board_new(void)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(b != MAP_FAILED);
    return b;
}

static float *map_floats(size_t n)
{
    void *p =
        mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void busy_ms(double ms)
{
    double end = tutti__now_ms() + ms;

    while (tutti__now_ms() < end)
        sched_yield();
}

static tutti_status start(tutti_group *group, int op, float *p, float *more, tutti_work **work_p)
{
    tutti_buf buf = {p, COUNT, TUTTI_F32, NULL}, piece = {p, COUNT / SIZE, TUTTI_F32, NULL},
              whole = {more, COUNT / SIZE * SIZE, TUTTI_F32, NULL};

    switch (op) {
    case TUTTI__OP_ALL_REDUCE:
        return tutti_all_reduce(group, buf, TUTTI_SUM, work_p);
    case TUTTI__OP_REDUCE:
        return tutti_reduce(group, buf, TUTTI_SUM, 0, work_p);
    case TUTTI__OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(group, tutti_buf_const(whole), piece, TUTTI_SUM, work_p);
    case TUTTI__OP_ALL_GATHER:
        return tutti_all_gather(group, tutti_buf_const(piece), whole, work_p);
    case TUTTI__OP_GATHER:
        return tutti_gather(group, tutti_buf_const(piece),
                            tutti_group_rank(group) == 0 ? whole : (tutti_buf){0}, 0, work_p);
    default:
        return tutti_broadcast(group, buf, 0, work_p);
    }
}

static const int OPS[] = {TUTTI__OP_BROADCAST,      TUTTI__OP_ALL_REDUCE, TUTTI__OP_REDUCE,
                          TUTTI__OP_REDUCE_SCATTER, TUTTI__OP_ALL_GATHER, TUTTI__OP_GATHER};

/* ---- Threads --------------------------------------------------------------------------------------------- */

/* Rank 0 leaves the call midway (abort or time limit), later in each try, and unmaps its buffers as soon as it has returned. */
static int one_leaves(tutti_group *group, void *arg)
{
    const board *b = arg;
    int rank = tutti_group_rank(group), op = OPS[b->try % (int)TUTTI__COUNT_OF(OPS)];
    float *p = map_floats(COUNT), *more = map_floats(COUNT);
    double delay = 0.15 * b->try / (int)TUTTI__COUNT_OF(OPS);
    tutti_work *work;
    tutti_status status;

    CHECK(p && more);
    memset(p, 0, COUNT * sizeof *p);
    memset(more, 0, COUNT * sizeof *more);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (rank == 0 && b->op == 1)
        CHECK(tutti_group_set_timeout(group, 1 + b->try / 8) == TUTTI_OK);
    status = start(group, op, p, more, &work);
    if (rank == 0 && b->op == 0) {
        busy_ms(delay);
        tutti_group_abort(group, "enough");
    }
    if (work)
        status = tutti_work_wait(work);
    munmap(p, COUNT * sizeof *p);
    munmap(more, COUNT * sizeof *more);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_TIMEOUT);
    return 0;
}

static void threads_may_unmap(void **state)
{
    board *b = board_new();

    (void)state;
    for (b->op = 0; b->op < 2; b->op++)
        for (b->try = 0; b->try < TRIES; b->try++)
            assert_int_equal(tutti_run_ranks(SIZE, one_leaves, b, &(tutti_ranks_opts){0}), 0);
    munmap(b, sizeof *b);
}

static size_t mapped_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    if (f && fscanf(f, "%zu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static int rank_0_allocates_alone(tutti_group *group, void *arg)
{
    void *p = &p;

    (void)arg;
    if (tutti_group_rank(group) != 0) {
        while (!tutti__comm_failed(&group->comm))
            busy_ms(1);
        CHECK(tutti_group_alloc(group, (size_t)1 << 30, &p) == TUTTI_ERR_TIMEOUT);
    } else {
        CHECK(tutti_group_set_timeout(group, 50) == TUTTI_OK);
        CHECK(tutti_group_alloc(group, (size_t)1 << 30, &p) == TUTTI_ERR_TIMEOUT);
    }
    CHECK(p == NULL);
    return 0;
}

static void half_an_alloc_leaves_nothing(void **state)
{
    size_t before = mapped_bytes();

    (void)state;
    assert_int_equal(tutti_run_ranks(2, rank_0_allocates_alone, NULL, &(tutti_ranks_opts){0}), 0);
    assert_true(mapped_bytes() < before + ((size_t)1 << 30));
}

/* ---- Processes ------------------------------------------------------------------------------------------- */

enum { MANY = 24 << 20, PATTERN = 7 }; /* elements */

static bool await(const _Atomic int *word, int value)
{
    for (double end = tutti__now_ms() + 20e3; atomic_load(word) < value;)
        if (tutti__now_ms() >= end)
            return false;
        else
            busy_ms(0.1);
    return true;
}

/* Rank 0 stops rank 1 while rank 1 stores into rank 0's memory, times out, reuses the memory, and resumes
 * rank 1. Returns 77 if rank 1 was too fast to be stopped, or too slow for the limit. */
static int stop_peer(board *b, tutti_group *group, volatile float *p, pid_t peer)
{
    const size_t share = MANY / 2, early = share + share / 8; /* rank 1 writes from `share` on */
    tutti_work *work;
    bool in_time;

    CHECK(tutti_group_set_timeout(group, 300) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF((void *)(uintptr_t)p, MANY, TUTTI_F32), TUTTI_SUM,
                           &work) == TUTTI_OK);
    while (p[early] == 1 && !tutti_work_done(work))
        ;
    CHECK(kill(peer, SIGSTOP) == 0);
    in_time = p[early] != 1 && p[MANY - 1] == 1;
    if (!in_time) {
        CHECK(kill(peer, SIGCONT) == 0);
        CHECK(tutti_work_wait(work) <= TUTTI_OK);
        CHECK(await(&b->done, 1));
        return 77;
    }
    CHECK(tutti_work_wait(work) == TUTTI_ERR_TIMEOUT);
    CHECK(p[0] != 0 && p[early] == 3 && p[MANY - 1] == 1); /* contents unchanged */
    for (size_t i = 0; i < MANY; i++)
        p[i] = PATTERN;
    CHECK(kill(peer, SIGCONT) == 0);
    CHECK(await(&b->done, 1));
    for (size_t i = 0; i < MANY; i++)
        CHECK(p[i] == PATTERN);
    return 0;
}

static int one_is_stopped(tutti_group *group, void *arg)
{
    board *b = arg;
    int64_t pid = getpid(), pids[2];
    void *memory;
    float *p;
    int result = 0;

    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(&pid, 1, TUTTI_I64),
                           TUTTI_BUF(pids, 2, TUTTI_I64), NULL) == TUTTI_OK);
    CHECK(tutti_group_alloc(group, MANY * sizeof *p, &memory) == TUTTI_OK);
    p = memory;
    for (size_t i = 0; i < MANY; i++)
        p[i] = tutti_group_rank(group) == 0 ? 1 : 2;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (tutti_group_rank(group) == 0) {
        result = stop_peer(b, group, p, (pid_t)pids[1]);
    } else {
        tutti_status status =
            tutti_all_reduce(group, TUTTI_BUF(p, MANY, TUTTI_F32), TUTTI_SUM, NULL);

        atomic_fetch_add(&b->done, 1);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_TIMEOUT);
    }
    tutti_group_release(group, memory);
    return result;
}

static void a_stopped_process_writes_to_nobody(void **state)
{
    int results[2] = {77, 0};

    (void)state;
    for (int try = 0; try < 10 && results[0] == 77; try++) {
        board *b = board_new();

        (void)tutti_run_ranks(2, one_is_stopped, b,
                              &(tutti_ranks_opts){.processes = true, .results = results});
        munmap(b, sizeof *b);
    }
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], 0);
}

/* Root leaves a broadcast that peers read through the kernel, and overwrites its buffer: a rank that returns OK has what
 * was broadcast. */
static int root_reuses(tutti_group *group, void *arg)
{
    const board *b = arg;
    int rank = tutti_group_rank(group);
    float *p = map_floats(MANY);
    tutti_status status;

    CHECK(p);
    for (size_t i = 0; i < MANY; i++)
        p[i] = rank == 0 ? 1 : 0;
    for (int i = 0; i < 3; i++) /* until the ranks know that they can read each other's memory */
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (rank == 0)
        CHECK(tutti_group_set_timeout(group, 1 + b->try) == TUTTI_OK);
    status = tutti_broadcast(group, TUTTI_BUF(p, MANY, TUTTI_F32), 0, NULL);
    if (rank == 0)
        for (size_t i = MANY; i-- > 0;)
            p[i] = 2;
    for (size_t i = 0; i < MANY && status == TUTTI_OK && rank != 0; i++)
        CHECK(p[i] == 1);
    munmap(p, MANY * sizeof *p);
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_TIMEOUT);
    return 0;
}

static void what_a_reader_returns_was_given(void **state)
{
    board *b = board_new();

    (void)state;
    for (b->try = 0; b->try < TRIES / 2; b->try++)
        assert_int_equal(tutti_run_ranks(2, root_reuses, b, &(tutti_ranks_opts){.processes = true}),
                         0);
    munmap(b, sizeof *b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_may_unmap),
        cmocka_unit_test(half_an_alloc_leaves_nothing),
        cmocka_unit_test(a_stopped_process_writes_to_nobody),
        cmocka_unit_test(what_a_reader_returns_was_given),
    };

    return cmocka_run_group_tests_name("comm_end_of_call", tests, NULL, NULL);
}
