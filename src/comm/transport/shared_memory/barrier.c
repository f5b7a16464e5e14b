/* barrier.c -- barriers in shared memory.   SPDX-License-Identifier: MIT
 *
 * A barrier is a counter a rank: raise your own, wait until nobody's is lower. Waiting looks again and again, giving the
 * core away in between, since the rank that is missing may need this very one; then it sleeps, all on one wait word. Who
 * sees that all have come changes it and wakes them, if somebody sleeps; so each barrier costs a rank at most one sleep and
 * one of them one wake-up, however many there are. Whoever finds the communicator dead wakes them too. Two ranks that the
 * scheduler has put on one core while others idle would wait there for each other's time slices; then one moves.
 *
 * Nothing in shared memory is ever locked, so a rank that is killed holds nothing up.
 *
 * A barrier may lag: the others need not have come to it, but to the last, or the last but one. Who is furthest behind then
 * never waits.
 *
 * Why no sleeper is forgotten: who goes to sleep counts itself, then looks once more; who has seen all come looks for
 * sleepers after a fence. Of these two, one is first in the order of fences and is seen by the other: either the sleeper
 * sees that all have come, or it is counted and gets woken. If all go to sleep, the last to be counted sees that all
 * have come. Where barriers lag, who has come may itself sleep, and wakes nobody; then it waits for one further behind, and
 * who is furthest behind goes on, and wakes all. */
#include "comm/transport/shared_memory/shm.h"

#include "base/thread.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

enum {
    LOOKS = 64,
    YIELDS = 32,
    IN_CALL = 4, /* times as many yields within a call, where all are at work */
    MOVE_MS = 10,
};

/* Which counter of every slot, and what it is to reach. */
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

/* The first rank from `rank` on that is not here, or the group's size. */
static int find_missing(const tutti__shm *shm, int rank, point at)
{
    while (rank < shm->comm->size && is_here(shm, rank, at))
        rank++;
    return rank;
}

/* ---- The wait word ------------------------------------------------------------------------------------- */

void tutti__shm_wake_all(tutti__shm *shm)
{
    tutti__shm_block *block = shm->block;

    if (atomic_load(&block->sleepers) == 0)
        return;
    atomic_fetch_add(&block->wait_word, 1);
    tutti__futex_wake(&block->wait_word);
}

static tutti_status fail_late(tutti__shm *shm, const tutti__op *op, point at)
{
    bool *missing = calloc((size_t)shm->comm->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(shm->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int r = 0; r < shm->comm->size; r++)
        missing[r] = !is_here(shm, r, at);
    status = tutti__comm_fail_late(shm->comm, op, missing);
    free(missing);
    return status;
}

/* OK if there is reason to wait on for `missing`. */
static tutti_status check_hope(tutti__shm *shm, const tutti__op *op, int missing, point at)
{
    if (tutti__comm_failed(shm->comm))
        return tutti__comm_status(shm->comm);
    for (int r = missing; r < shm->comm->size; r++)
        if (tutti__comm_has_left(shm->comm, r) && !is_here(shm, r, at))
            return tutti__comm_fail_lost(shm->comm, r);
    return tutti__now_ms() < op->deadline ? TUTTI_OK : fail_late(shm, op, at);
}

static tutti_status sleep_until(tutti__shm *shm, const tutti__op *op, int missing, point at)
{
    tutti__shm_block *block = shm->block;
    tutti_status status = TUTTI_OK;

    atomic_fetch_add(&block->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    while (status == TUTTI_OK) {
        uint32_t wait_word = atomic_load(&block->wait_word);

        missing = find_missing(shm, missing, at);
        if (missing == shm->comm->size)
            break;
        status = check_hope(shm, op, missing, at);
        if (status == TUTTI_OK)
            tutti__futex_wait(&block->wait_word, wait_word, tutti__ms_left(op->deadline));
    }
    atomic_fetch_sub(&block->sleepers, 1);
    return status;
}

/* ---- Looking ------------------------------------------------------------------------------------------ */

/* A processor that this thread may use and where no rank waits; -1: none. */
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

/* Before yielding: if `rank`, which is missing, shares this core, the higher of the two moves to another. It is not bound
 * there: its affinity is what it was, a moment later. */
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

/* This rank is here. */
static void arrive(const tutti__shm *shm, point at)
{
    atomic_store_explicit(counter_of(shm, shm->comm->rank, at), at.number, memory_order_release);
}

/* This rank has arrived at `at`; the others need only have arrived at `lag` before it. Sleeps after `most` yields. accesses: it then
 * begins an access, which the fence at the end comes after (access.c). */
static tutti_status wait_for_all(tutti__shm *shm, const tutti__op *op, point at, uint64_t lag,
                                 int most, bool accesses)
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
    tutti__shm_wake_all(shm);
    return TUTTI_OK;
}

void tutti__shm_barrier_open(tutti__shm *shm)
{
    int spin = shm->comm->tuning.spin;

    shm->yields = spin < 0 ? 0 : spin > 0 ? spin : YIELDS;
    shm->looks = shm->comm->size <= tutti__cores() ? LOOKS : 0;
}

tutti_status tutti__shm_barrier(tutti__shm *shm, const tutti__op *op)
{
    return tutti__shm_barrier_behind(shm, op, 0);
}

tutti_status tutti__shm_barrier_behind(tutti__shm *shm, const tutti__op *op, uint64_t lag)
{
    const point next = {offsetof(tutti__shm_slot, arrived), ++shm->barriers};

    arrive(shm, next);
    TUTTI_TRY(wait_for_all(shm, op, next, lag, IN_CALL * shm->yields, false));
    /* A rank that had come may be gone again: what was read of its memory since need not be what it gave. */
    return tutti__shm_check_abandoned(shm);
}

/* Where the running operation begins. */
static point beginning(const tutti__shm *shm)
{
    return (point){offsetof(tutti__shm_slot, calls) + (shm->calls & 1) * sizeof(tutti__shm_call) +
                       offsetof(tutti__shm_call, arrived),
                   shm->calls};
}

void tutti__shm_arrive(tutti__shm *shm)
{
    arrive(shm, beginning(shm));
}

static tutti_status enter(tutti__shm *shm, const tutti__op *op, bool accesses)
{
    const point at = beginning(shm);

    if (!is_here(shm, shm->comm->rank, at))
        arrive(shm, at);
    TUTTI_TRY(wait_for_all(shm, op, at, 0, shm->yields, accesses));
    for (int r = 0; r < shm->comm->size; r++)
        TUTTI_TRY(tutti__comm_check_signature(shm->comm, &op->signature, r,
                                              &tutti__shm_call_of(shm, r)->signature));
    return TUTTI_OK;
}

tutti_status tutti__shm_enter(tutti__shm *shm, const tutti__op *op)
{
    return enter(shm, op, false);
}

tutti_status tutti__shm_enter_access(tutti__shm *shm, const tutti__op *op)
{
    TUTTI_TRY(enter(shm, op, true));
    return tutti__shm_check_abandoned(shm);
}
