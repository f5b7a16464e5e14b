/* comm: the table of faults: what happens, how soon every other rank has an error, and that the error names rank, host and call.
 * SPDX-License-Identifier: MIT
 * timeout: 180   run: waiting
 *
 * Each row runs over shared memory and TCP with 2 and 4 ranks and prints its measured time: from the fault to the moment
 * at which the last of the others has its error. */
#include "harness/ranks.h"
#include "harness/relay.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { VICTIM = 1, CALLS = 20, COUNT = 1000, HEARTBEAT_MS = 500, LIMIT_MS = 800, SETUP_MS = 3000 };

typedef enum fault {
    KILLED,
    EXITED,
    LEFT,
    STOPPED,
    OTHER_OP,
    OTHER_COUNT,
    OTHER_DTYPE,
    OTHER_ORDER,
    HANGS,
    ABORTS,
    IN_SETUP,
    IN_SPLIT,
    IN_ALLOC,
    N_FAULTS
} fault;

typedef struct row {
    const char *name;
    tutti_status status;
    double limit_ms;
    const char *says; /* of the culprit */
} row;

static const row ROWS[N_FAULTS] = {
    [KILLED] = {"killed (SIGKILL)", TUTTI_ERR_PEER, 200, "was lost"},
    [EXITED] = {"exits without leaving", TUTTI_ERR_PEER, 200, "was lost"},
    [LEFT] = {"leaves without the call", TUTTI_ERR_PEER, 200, "has left the group"},
    [STOPPED] = {"stopped (SIGSTOP), heartbeat 0.5 s", TUTTI_ERR_PEER, 1.5 * HEARTBEAT_MS + 200,
                 "has not been heard from for"},
    [OTHER_OP] = {"calls another operation", TUTTI_ERR_MISMATCH, 200, "called broadcast #"},
    [OTHER_COUNT] = {"calls with another count", TUTTI_ERR_MISMATCH, 200, "(F32 x 999, sum)"},
    [OTHER_DTYPE] = {"calls with another dtype", TUTTI_ERR_MISMATCH, 200, "(I32 x 1000, sum)"},
    [OTHER_ORDER] = {"calls in another order", TUTTI_ERR_MISMATCH, 200, "called barrier #"},
    [HANGS] = {"hangs, time limit 0.8 s", TUTTI_ERR_TIMEOUT, LIMIT_MS + 200,
               "waiting for rank 1 ("},
    [ABORTS] = {"aborts", TUTTI_ERR_ABORTED, 200, "said: the loss is NaN"},
    /* Or before it connects, which only the others' time limit or a launcher can detect. */
    [IN_SETUP] = {"killed while a group is made", TUTTI_ERR_PEER, SETUP_MS + 200, "rank 1"},
    [IN_SPLIT] = {"killed in a split", TUTTI_ERR_PEER, 200, "was lost"},
    [IN_ALLOC] = {"killed in an alloc", TUTTI_ERR_PEER, 200, "was lost"},
};

/* Seen by all processes. */
typedef struct board {
    fault fault;
    _Atomic uint64_t fault_ns, latest_ns;
    _Atomic int told;
    pid_t pids[8];
} board;

static void note_time(board *b)
{
    uint64_t now = tutti__now_ns(), old = atomic_load(&b->latest_ns);

    while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
        ;
    atomic_fetch_add(&b->told, 1);
}

/* ---- The victim --------------------------------------------------------------------------------------- */

/* Sets a kernel timer that kills it in the middle of its next operation. */
static void arm(board *b, unsigned after_us)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    uint64_t when = tutti__now_ns() + (uint64_t)after_us * 1000;
    struct itimerspec at = {.it_value = {(time_t)(when / 1000000000u), (long)(when % 1000000000u)}};
    timer_t timer;

    atomic_store(&b->fault_ns, when);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, TIMER_ABSTIME, &at, NULL) != 0)
        abort();
}

/* Calls that all ranks repeat until one fails. */
static tutti_status keep_making(tutti_group *group, fault what)
{
    int size = tutti_group_size(group), all[8];
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < size; r++)
        all[r] = r;
    while (status == TUTTI_OK) {
        tutti_group *made = NULL;
        void *p;

        if (what == IN_ALLOC) {
            status = tutti_group_alloc(group, 1 << 20, &p);
            if (status == TUTTI_OK)
                tutti_group_release(group, p);
        } else if (what == IN_SPLIT) {
            status = tutti_group_split(group, all, size, "part", &made);
        } else {
            status = tutti_group_init(&made, &(tutti_group_opts){.store = group->boot.store,
                                                                 .rank = group->comm.rank,
                                                                 .world_size = size,
                                                                 .name = "inner",
                                                                 .timeout_ms = SETUP_MS,
                                                                 .transport = group->boot.tcp});
        }
        tutti_group_free(made);
    }
    return status;
}

static tutti_status reduce(tutti_group *group, float *p, size_t count, tutti_dtype dtype)
{
    return tutti_all_reduce(group, TUTTI_BUF(p, count, dtype), TUTTI_SUM, NULL);
}

static tutti_status misbehave(tutti_group *group, board *b, float *p)
{
    tutti_status status;

    atomic_store(&b->fault_ns, tutti__now_ns());
    switch (b->fault) {
    case KILLED:
        raise(SIGKILL);
        break;
    case EXITED:
        _exit(0);
    case STOPPED:
        while (atomic_load(&b->told) < tutti_group_size(group) - 1)
            raise(SIGSTOP); /* the test resumes it */
        return reduce(group, p, COUNT, TUTTI_F32);
    case OTHER_OP:
        return tutti_broadcast(group, TUTTI_BUF(p, COUNT, TUTTI_F32), 0, NULL);
    case OTHER_COUNT:
        return reduce(group, p, COUNT - 1, TUTTI_F32);
    case OTHER_DTYPE:
        return reduce(group, p, COUNT, TUTTI_I32);
    case OTHER_ORDER:
        status = tutti_barrier(group, NULL);
        return status == TUTTI_OK ? reduce(group, p, COUNT, TUTTI_F32) : status;
    case HANGS:
        while (!tutti__comm_failed(&group->comm))
            usleep(1000);
        return reduce(group, p, COUNT, TUTTI_F32);
    case ABORTS:
        tutti_group_abort(group, "the loss is NaN");
        return reduce(group, p, COUNT, TUTTI_F32);
    default:
        break;
    }
    arm(b, 3000 + (unsigned)(tutti__now_ns() % 4000));
    return keep_making(group, b->fault);
}

/* ---- Ranks -------------------------------------------------------------------------------------------- */

/* The message must name the rank, its host, the operation, its size and the group. */
static int check_message(const board *b, tutti_status status, int rank)
{
    const row *w = &ROWS[b->fault];
    const char *text = tutti_last_error();
    bool making = b->fault >= IN_SETUP;
    char host[65] = "";

    gethostname(host, sizeof host - 1);
    CHECK(status == w->status);
    /* Also of several ranks: the others may have seen the death in a group that this one had completed. */
    if (b->fault == IN_SETUP && strstr(text, "never came: rank"))
        return 0;
    CHECK(strstr(text, w->says) != NULL);
    CHECK(strstr(text, host) != NULL);
    if (w->status != TUTTI_ERR_MISMATCH)
        CHECK(strstr(text, "rank 1 (") != NULL);
    else
        CHECK(strstr(text, "rank 1 (") && strstr(text, "all_reduce #"));
    if (!making && rank != VICTIM)
        CHECK(strstr(text, "all_reduce #2") && strstr(text, "(F32 x 1000, sum)"));
    CHECK(strstr(text, "group \"") != NULL);
    return 0;
}

static int run_row(tutti_group *group, void *arg)
{
    board *b = arg;
    float *p = calloc(COUNT, sizeof *p);
    int rank = tutti_group_rank(group), result;
    tutti_status status = TUTTI_OK;

    b->pids[rank] = getpid();
    for (int i = 0; i < CALLS && status == TUTTI_OK; i++)
        status = reduce(group, p, COUNT, TUTTI_F32);
    if (status == TUTTI_OK)
        status = tutti_meet(group, "healthy");
    if (status == TUTTI_OK && b->fault == HANGS)
        status = tutti_group_set_timeout(group, LIMIT_MS);
    if (status == TUTTI_OK && rank == VICTIM && b->fault == LEFT) {
        atomic_store(&b->fault_ns, tutti__now_ns());
        free(p);
        return 0;
    }
    if (status == TUTTI_OK && rank == VICTIM)
        status = misbehave(group, b, p);
    else if (status == TUTTI_OK && b->fault >= IN_SETUP)
        status = keep_making(group, b->fault);
    while (status == TUTTI_OK)
        status = reduce(group, p, COUNT, TUTTI_F32);
    if (rank != VICTIM)
        note_time(b);
    result = check_message(b, status, rank);
    free(p);
    return result;
}

/* ---- The table ---------------------------------------------------------------------------------------- */

/* Resumes a stopped rank once the others have their error. */
static pid_t start_nurse(board *b, int size)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    for (int i = 0; i < 20000 && atomic_load(&b->told) < size - 1; i++)
        usleep(1000);
    for (int i = 0; i < 20; i++) { /* it may be just about to stop itself */
        kill(b->pids[VICTIM], SIGCONT);
        usleep(10000);
    }
    _exit(0);
}

static void run_fault(board *b, fault what, bool tcp, int size)
{
    const row *w = &ROWS[what];
    bool dies = what == KILLED || what >= IN_SETUP;
    int results[8];
    pid_t nurse = -1;
    double ms;

    *b = (board){.fault = what};
    if (what == STOPPED)
        nurse = start_nurse(b, size);
    tutti_run_ranks(
        size, run_row, b,
        &(tutti_ranks_opts){.processes = true,
                            .transport = tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                            .timeout_ms = 20000,
                            .heartbeat_ms = what == STOPPED ? HEARTBEAT_MS : 0,
                            .results = results});
    if (nurse > 0)
        waitpid(nurse, NULL, 0);
    ms = ((double)atomic_load(&b->latest_ns) - (double)atomic_load(&b->fault_ns)) * 1e-6;
    print_message("  %-36s %-14s %d   %8.2f ms   (limit %.0f)\n", w->name,
                  tcp ? "TCP" : "shared memory", size, ms, w->limit_ms);
    for (int r = 0; r < size; r++)
        assert_int_equal(results[r], r == VICTIM && dies ? -SIGKILL : 0);
    if (w->limit_ms + TUTTI_LATE_MS < ms)
        fail_msg("%s: the last rank knew after %.1f ms", w->name, ms);
}

static void every_fault_is_named_in_time(void **state)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(b != MAP_FAILED);
    print_message("  %-36s %-14s ranks all know after\n", "rank 1 ...", "over");
    for (int f = 0; f < N_FAULTS; f++)
        for (int way = 0; way < 4; way++)
            run_fault(b, (fault)f, way & 1, way < 2 ? 2 : 4);
    munmap(b, sizeof *b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_named_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
