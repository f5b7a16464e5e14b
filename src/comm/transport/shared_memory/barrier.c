/* barrier.c -- barriers in shared memory.   SPDX-License-Identifier: MIT
 *
 * A barrier is a counter a rank: raise your own, wait until none is lower. Among many ranks a tree counts them (tree.c), and
 * ranks wait for the number of the last barrier that was passed. Waiting polls, yielding the core in between,
 * since the missing rank may need this core; then it sleeps: all ranks on one futex, or those of a node of the tree on its own. A rank that sees that all have
 * arrived changes that and wakes the sleepers, if there are any; so each barrier costs a rank at most one sleep, and
 * one rank one wake-up, however many ranks there are. A rank that finds the communicator dead wakes them too. If the
 * scheduler has put two ranks on one core while others idle, they would wait there for each other's time slices; then one
 * moves.
 *
 * Nothing in shared memory is ever locked, so a killed rank blocks none.
 *
 * A barrier may lag: the others need only have reached the previous one, or the one before that. The rank that is furthest
 * behind then never waits.
 *
 * Why no sleeper is missed: a rank that goes to sleep counts itself, then checks once more; a rank that has seen all
 * arrive looks for sleepers after a fence. One of the two fences comes first, and its rank is seen by the other: either
 * the sleeper sees that all have arrived, or it is counted and gets woken. If all go to sleep, the last to be counted sees
 * that all have arrived. If barriers lag, a rank that has arrived may itself sleep, and wakes no other; then it waits for
 * one further behind, and the one furthest behind continues, and wakes all. */
#include "comm/transport/shared_memory/shm.h"

#include "base/thread.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

enum {
    IN_CALL = 4, /* times as many yields within a call, where all ranks are active */
    MOVE_MS = 10,
};

/* Which counter of every slot, and the value that it must reach. */
typedef struct point {
    size_t offset;
    uint64_t number;
} point;

static _Atomic uint64_t *counter_of(const tutti__shm *shm, int rank, point at)
{
    return (_Atomic uint64_t *)(void *)((char *)&shm->block->slots[rank] + at.offset);
}

static bool is_here(const tutti__shm *shm, int rank, point at)
{
    return atomic_load_explicit(counter_of(shm, rank, at), memory_order_acquire) >= at.number;
}

/* The first rank from `rank` on that has not arrived, or the group's size. By the tree it is not known who is missing. */
static int find_missing(const tutti__shm *shm, int rank, point at)
{
    if (shm->fan)
        return tutti__shm_tree_passed(shm, at.number) ? shm->comm->size : rank;
    while (rank < shm->comm->size && is_here(shm, rank, at))
        rank++;
    return rank;
}

static tutti_status fail_late(tutti__shm *shm, const tutti__operation *op, point at)
{
    bool *missing = calloc((size_t)shm->comm->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(shm->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    if (shm->fan) /* which has not looked at all calls */
        tutti__shm_see(shm);
    for (int r = 0; r < shm->comm->size; r++)
        missing[r] = !is_here(shm, r, at);
    status = tutti__comm_fail_late(shm->comm, op, missing);
    free(missing);
    return status;
}

/* OK if it makes sense to go on waiting for `missing`. */
static tutti_status check_hope(tutti__shm *shm, const tutti__operation *op, int missing, point at)
{
    if (tutti__comm_failed(shm->comm))
        return tutti__comm_status(shm->comm);
    for (int r = missing; r < shm->comm->size && tutti__comm_any_left(shm->comm); r++)
        if (tutti__comm_has_left(shm->comm, r) && !is_here(shm, r, at))
            return tutti__comm_fail_lost(shm->comm, r);
    return tutti__now_ms() < op->deadline ? TUTTI_OK : fail_late(shm, op, at);
}

static tutti_status sleep_until(tutti__shm *shm, const tutti__operation *op, int missing, point at)
{
    tutti__shm_node *bed = shm->bed;
    tutti_status status = TUTTI_OK;

    atomic_fetch_add(&bed->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    while (status == TUTTI_OK) {
        uint32_t futex = atomic_load(&bed->futex);

        missing = find_missing(shm, missing, at);
        if (missing == shm->comm->size)
            break;
        status = check_hope(shm, op, missing, at);
        if (status == TUTTI_OK)
            tutti__futex_wait(&bed->futex, futex, tutti__ms_left(op->deadline));
    }
    atomic_fetch_sub(&bed->sleepers, 1);
    return status;
}

/* ---- Polling ------------------------------------------------------------------------------------------ */

/* A CPU that this thread may use and on which no rank waits; -1: none. */
static int vacant(const tutti__shm *shm, const cpu_set_t *allowed)
{
    cpu_set_t free_ones = *allowed;

    for (int r = 0; r < shm->comm->size; r++) {
        uint32_t cpu = atomic_load(&shm->block->slots[r].cpu);

        if (cpu > 0 && cpu <= CPU_SETSIZE)
            CPU_CLR(cpu - 1, &free_ones);
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &free_ones))
            return (int)cpu;
    return -1;
}

/* Before yielding: if the missing `rank` shares this core, the higher of the two ranks moves to another. It is not pinned
 * there: its affinity is restored at once. */
static void part_from(tutti__shm *shm, int rank)
{
    tutti__shm_slot *slots = shm->block->slots;
    uint32_t here = (uint32_t)sched_getcpu() + 1;
    cpu_set_t allowed, one;
    double now;
    int cpu;

    atomic_store(&slots[shm->comm->rank].cpu, here);
    if (shm->comm->rank < rank || here == 0 || atomic_load(&slots[rank].cpu) != here)
        return;
    now = tutti__now_ms();
    if (now - shm->moved_ms < MOVE_MS || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    shm->moved_ms = now;
    cpu = vacant(shm, &allowed);
    if (cpu < 0)
        return;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

/* Raises this rank's counter. */
static void arrive(const tutti__shm *shm, point at)
{
    atomic_store_explicit(counter_of(shm, shm->comm->rank, at), at.number, memory_order_release);
}

/* This rank has arrived at `at`; waits until the others have arrived at `lag` before it. Sleeps after `most` yields.
 * accesses: then begins an access, before the fence at the end (access.c). */
static tutti_status wait_for_all(tutti__shm *shm, const tutti__operation *op, point at,
                                 uint64_t lag, int most, bool accesses)
{
    int missing;

    at.number -= at.number < lag ? at.number : lag;
    missing = find_missing(shm, 0, at);
    for (int yields = 0; missing < shm->comm->size && yields < most; yields++) {
        for (int look = 0; missing < shm->comm->size && look < shm->looks; look++) {
            tutti__relax();
            missing = find_missing(shm, missing, at);
        }
        if (missing == shm->comm->size)
            break;
        if (!shm->fan)
            part_from(shm, missing);
        sched_yield();
        missing = find_missing(shm, missing, at);
    }
    if (missing < shm->comm->size)
        TUTTI_TRY(sleep_until(shm, op, missing, at));
    if (accesses)
        atomic_store_explicit(&shm->block->slots[shm->comm->rank].accessing, 1,
                              memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* between its own counter and the sleepers */
    if (!shm->fan)
        tutti__shm_wake_all(shm);
    return TUTTI_OK;
}

void tutti__shm_barrier_open(tutti__shm *shm)
{
    tutti__shm_set_patience(shm, shm->comm->size > tutti__cores());
}

tutti_status tutti__shm_barrier(tutti__shm *shm, const tutti__operation *op)
{
    return tutti__shm_barrier_behind(shm, op, 0);
}

tutti_status tutti__shm_barrier_behind(tutti__shm *shm, const tutti__operation *op, uint64_t lag)
{
    const point next = {offsetof(tutti__shm_slot, arrived), ++shm->barriers};

    if (shm->fan)
        TUTTI_TRY(tutti__shm_tree_arrive(shm, next.number, op, false, (tutti__shm_last){NULL}));
    else
        arrive(shm, next);
    TUTTI_TRY(wait_for_all(shm, op, next, lag, IN_CALL * shm->yields, false));
    /* A rank that had arrived may have left again: what was read of its memory since may not be what it gave. */
    return tutti__shm_check_abandoned(shm);
}

/* The barrier at the beginning of the running operation. */
static point beginning(const tutti__shm *shm)
{
    return (point){offsetof(tutti__shm_slot, calls) + (shm->calls & 1) * sizeof(tutti__shm_call) +
                       offsetof(tutti__shm_call, arrived),
                   shm->calls};
}

void tutti__shm_arrive(tutti__shm *shm)
{
    if (!shm->fan)
        arrive(shm, beginning(shm));
}

static tutti_status enter_by_tree(tutti__shm *shm, const tutti__operation *op, bool accesses,
                                  tutti__shm_last last)
{
    const point next = {offsetof(tutti__shm_slot, arrived), ++shm->barriers};

    TUTTI_TRY(tutti__shm_tree_arrive(shm, next.number, op, true, last));
    TUTTI_TRY(wait_for_all(shm, op, next, 0, shm->yields, accesses));
    if (!shm->knows_cores)
        tutti__shm_count_cores(shm);
    return TUTTI_OK;
}

static tutti_status enter(tutti__shm *shm, const tutti__operation *op, bool accesses)
{
    const point at = beginning(shm);

    if (shm->fan)
        return enter_by_tree(shm, op, accesses, (tutti__shm_last){NULL});
    if (!is_here(shm, shm->comm->rank, at))
        arrive(shm, at);
    TUTTI_TRY(wait_for_all(shm, op, at, 0, shm->yields, accesses));
    for (int r = 0; r < shm->comm->size; r++)
        TUTTI_TRY(tutti__comm_check_signature(shm->comm, &op->signature, r,
                                              &tutti__shm_call_of(shm, r)->signature));
    return TUTTI_OK;
}

tutti_status tutti__shm_enter(tutti__shm *shm, const tutti__operation *op)
{
    return enter(shm, op, false);
}

tutti_status tutti__shm_enter_last(tutti__shm *shm, const tutti__operation *op,
                                   tutti__shm_last last)
{
    return enter_by_tree(shm, op, false, last);
}

tutti_status tutti__shm_enter_access(tutti__shm *shm, const tutti__operation *op)
{
    TUTTI_TRY(enter(shm, op, true));
    return tutti__shm_check_abandoned(shm);
}
