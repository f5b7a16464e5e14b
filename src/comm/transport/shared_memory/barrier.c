/* meeting.c -- ranks meet in shared memory.   SPDX-License-Identifier: MIT
 *
 * A meeting is a counter a rank: raise your own, wait until nobody's is lower. Waiting looks again and again, giving the
 * core away in between, since the rank that is missing may need this very one; then it sleeps, on one bell for all. Who
 * sees that all have come rings it if somebody sleeps; so each meeting costs a rank at most one sleep and one of them one
 * wake-up, however many there are. Whoever dies rings too. Two ranks that the scheduler has put on one core while others
 * idle would wait there for each other's time slices; then one moves.
 *
 * Nothing in shared memory is ever locked, so a rank that is killed holds nothing up.
 *
 * Why no sleeper is forgotten: who goes to sleep counts itself, then looks once more; who has seen all come looks for
 * sleepers after a fence. Of these two, one is first in the order of fences and is seen by the other: either the sleeper
 * sees that all have come, or it is counted and gets rung for. If all go to sleep, the last to be counted sees that all
 * have come. */
#include "comm/transport/shared_memory/shm.h"

#include "comm/core/thread.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

enum { LOOKS = 64, YIELDS = 32, MOVE_MS = 10 };

/* Which counter of every slot, and what it is to reach. */
typedef struct point {
    size_t offset;
    uint64_t number;
} point;

static _Atomic uint64_t *counter_of(const tutti__shm *local, int rank, point at)
{
    return (_Atomic uint64_t *)(void *)((char *)&local->control->slots[rank] + at.offset);
}

static bool is_here(const tutti__shm *local, int rank, point at)
{
    return atomic_load_explicit(counter_of(local, rank, at), memory_order_acquire) >= at.number;
}

/* The first rank from `rank` on that is not here, or the group's size. */
static int find_missing(const tutti_group *group, int rank, point at)
{
    const tutti__shm *local = group->transport_state;

    while (rank < group->comm.size && is_here(local, rank, at))
        rank++;
    return rank;
}

/* ---- The bell ----------------------------------------------------------------------------------------- */

void tutti__shm_wake_all(tutti__shm_block *control)
{
    if (atomic_load(&control->sleepers) == 0)
        return;
    atomic_fetch_add(&control->wait_word, 1);
    tutti__futex_wake(&control->wait_word);
}

void tutti__shm_wake(tutti_group *group, int rank)
{
    const tutti__shm *local = group->transport_state;

    (void)rank;
    tutti__shm_wake_all(local->control);
}

static tutti_status fail_late(tutti_group *group, const tutti__op *op, point at)
{
    bool *missing = calloc((size_t)group->comm.size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(&group->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int r = 0; r < group->comm.size; r++)
        missing[r] = !is_here(group->transport_state, r, at);
    status = tutti__comm_fail_late(&group->comm, op, missing);
    free(missing);
    return status;
}

/* OK if there is reason to wait on for `missing`. */
static tutti_status check_hope(tutti_group *group, const tutti__op *op, int missing, point at)
{
    if (tutti__comm_failed(&group->comm))
        return tutti__comm_status(&group->comm);
    for (int r = missing; r < group->comm.size; r++)
        if (tutti__comm_has_left(&group->comm, r) && !is_here(group->transport_state, r, at))
            return tutti__comm_fail_lost(&group->comm, r);
    return tutti__now_ms() < op->deadline ? TUTTI_OK : fail_late(group, op, at);
}

static tutti_status sleep_until(tutti_group *group, const tutti__op *op, int missing, point at)
{
    const tutti__shm *local = group->transport_state;
    tutti__shm_block *control = local->control;
    tutti_status status = TUTTI_OK;

    atomic_fetch_add(&control->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    while (status == TUTTI_OK) {
        uint32_t wait_word = atomic_load(&control->wait_word);

        missing = find_missing(group, missing, at);
        if (missing == group->comm.size)
            break;
        status = check_hope(group, op, missing, at);
        if (status == TUTTI_OK)
            tutti__futex_wait(&control->wait_word, wait_word, op->deadline - tutti__now_ms());
    }
    atomic_fetch_sub(&control->sleepers, 1);
    return status;
}

/* ---- Looking ------------------------------------------------------------------------------------------ */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A processor that this thread may use and where no rank waits; -1: none. */
static int vacant(const tutti_group *group, const cpu_set_t *allowed)
{
    const tutti__shm *local = group->transport_state;
    cpu_set_t free_ones = *allowed;

    for (int r = 0; r < group->comm.size; r++) {
        uint32_t cpu = atomic_load(&local->control->slots[r].cpu);

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
static void part_from(tutti_group *group, int rank)
{
    tutti__shm *local = group->transport_state;
    tutti__shm_slot *slots = local->control->slots;
    uint32_t here = (uint32_t)sched_getcpu() + 1;
    cpu_set_t allowed, one;
    double now;
    int cpu;

    atomic_store(&slots[group->comm.rank].cpu, here);
    if (group->comm.rank < rank || here == 0 || atomic_load(&slots[rank].cpu) != here)
        return;
    now = tutti__now_ms();
    if (now - local->moved_ms < MOVE_MS || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    local->moved_ms = now;
    cpu = vacant(group, &allowed);
    if (cpu < 0)
        return;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

static tutti_status meet_at(tutti_group *group, const tutti__op *op, point at)
{
    const tutti__shm *local = group->transport_state;
    int missing;

    atomic_store_explicit(counter_of(local, group->comm.rank, at), at.number, memory_order_release);
    missing = find_missing(group, 0, at);
    for (int yields = 0; missing < group->comm.size && yields < local->yields; yields++) {
        for (int look = 0; missing < group->comm.size && look < local->looks; look++) {
            relax();
            missing = find_missing(group, missing, at);
        }
        if (missing == group->comm.size)
            break;
        part_from(group, missing);
        sched_yield();
        missing = find_missing(group, missing, at);
    }
    if (missing < group->comm.size)
        TUTTI_TRY(sleep_until(group, op, missing, at));
    atomic_thread_fence(memory_order_seq_cst); /* between its own counter and the sleepers */
    tutti__shm_wake_all(local->control);
    return TUTTI_OK;
}

void tutti__shm_barrier_open(tutti_group *group)
{
    tutti__shm *local = group->transport_state;
    int spin = group->comm.tuning.spin;

    local->yields = spin < 0 ? 0 : spin > 0 ? spin : YIELDS;
    local->looks = group->comm.size <= tutti__cores() ? LOOKS : 0;
}

tutti_status tutti__shm_barrier(tutti_group *group, const tutti__op *op)
{
    tutti__shm *local = group->transport_state;

    return meet_at(group, op, (point){offsetof(tutti__shm_slot, arrived), ++local->meetings});
}

tutti_status tutti__shm_enter(tutti_group *group, const tutti__op *op)
{
    const tutti__shm *local = group->transport_state;
    const size_t offset =
        offsetof(tutti__shm_slot, calls) + (local->calls & 1) * sizeof(tutti__shm_call);

    TUTTI_TRY(
        meet_at(group, op, (point){offset + offsetof(tutti__shm_call, arrived), local->calls}));
    for (int r = 0; r < group->comm.size; r++)
        TUTTI_TRY(tutti__comm_check_signature(&group->comm, &op->signature, r,
                                              &tutti__shm_call_of(local, r)->signature));
    return TUTTI_OK;
}
