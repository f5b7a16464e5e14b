/* tree.c -- many ranks arrive at a barrier by a tree of counters.   SPDX-License-Identifier: MIT
 *
 *     passed            the last rank of all marks the barrier as passed, and wakes those that sleep
 *       ▲
 *     node              the last of its nodes continues to the next level
 *      ▲   ▲
 *     node  node        each counts its ranks; the last of them continues, the others wait for `passed`
 *     ▲▲▲▲  ▲▲▲▲
 *
 * So no rank looks at all others, and arriving wakes nobody: each rank sleeps at most once in a barrier, and the last one
 * wakes all, however the ranks come. Calls are compared on the way: the last of a node compares its call with those of the
 * node's members, whose own members have the same.
 *
 * Counters only grow. A rank is in at most OPEN - 1 barriers that others have yet to reach (they lag by 2 at most), so OPEN
 * counters a node suffice. A rank publishes its own number only when it has done its part, so one that is stopped on the
 * way is named as missing. Nothing is locked: if a rank is killed on the way, the barrier is never passed, and its death
 * ends all calls. */
#include "comm/core/failure.h"
#include "comm/transport/shared_memory/shm.h"

#include "base/thread.h"

enum {
    FAN = 16,
    MOST_DIRECT = 16, /* ranks that look at each other's counters, if each has a core */
    MOST_CROWDED = 8,
};

int tutti__shm_fan(const tutti__comm *comm)
{
    int most = comm->size <= tutti__cores() ? MOST_DIRECT : MOST_CROWDED;

    if (comm->tuning.fan != 0)
        return comm->tuning.fan > 1 ? comm->tuning.fan : 0;
    return comm->size > most ? FAN : 0;
}

size_t tutti__shm_n_nodes(int n)
{
    return 2 * (size_t)n; /* of two members each, with one more for each level's rest */
}

static size_t nodes_for(size_t members, size_t fan)
{
    return (members + fan - 1) / fan;
}

/* ---- Do ranks share cores? --------------------------------------------------------------------------------- */

/* Each may be bound to a core of its own: only all of them together know. */
static void publish_cores(tutti__shm_block *block)
{
    uint64_t quota = (uint64_t)(1000 * tutti__cpu_quota()), least = 0;
    cpu_set_t set;

    if (tutti__openmp_binds(&set) || sched_getaffinity(0, sizeof set, &set) == 0)
        for (size_t cpu = 0; cpu < TUTTI__SHM_CORES && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                atomic_fetch_or(&block->cores[cpu / 64], UINT64_C(1) << cpu % 64);
    while (quota > 0 && (least == 0 || quota < least) &&
           !atomic_compare_exchange_weak(&block->least_quota, &least, quota))
        ;
}

void tutti__shm_count_cores(tutti__shm *shm)
{
    uint64_t quota = atomic_load(&shm->block->least_quota), cores = 0;

    for (size_t w = 0; w < TUTTI__COUNT_OF(shm->block->cores); w++)
        cores += (uint64_t)__builtin_popcountll(atomic_load(&shm->block->cores[w]));
    if (quota > 0 && quota < 1000 * cores)
        cores = (quota + 999) / 1000;
    shm->knows_cores = true;
    shm->crowded = cores > 0 && (uint64_t)shm->comm->size > cores;
    tutti__shm_set_patience(shm, shm->crowded);
}

/* ---- The tree ---------------------------------------------------------------------------------------------- */

void tutti__shm_tree_open(tutti__shm *shm)
{
    shm->fan = (int)shm->block->fan;
    shm->n_beds = shm->fan ? nodes_for((size_t)shm->comm->size, (size_t)shm->fan) : 1;
    shm->bed = &shm->nodes[shm->fan ? shm->comm->rank / shm->fan : 0];
    shm->barriers = shm->fan ? TUTTI__SHM_OPEN - 1 : 0; /* the first in the tree has number OPEN */
    if (shm->fan)
        publish_cores(shm->block);
}

/* One level of the tree, and where in it this rank's part is. */
typedef struct level {
    size_t n;     /* members: ranks, or the nodes of the level below */
    size_t at;    /* the member to which this rank belongs */
    size_t below; /* the index of the first of those nodes */
    size_t first; /* the index of this level's first node */
} level;

/* Compares this rank's call with that of each member of its node. */
static tutti_status compare(tutti__shm *shm, const tutti__operation *op, const level *l,
                            size_t number)
{
    size_t fan = (size_t)shm->fan, begin = l->at / fan * fan, end = begin + fan;

    for (size_t i = begin; i < end && i < l->n; i++) {
        int rank = (int)i;

        if (l->first > 0)
            rank = (int)atomic_load_explicit(
                &shm->nodes[l->below + i].last[number % TUTTI__SHM_OPEN], memory_order_relaxed);
        if (i != l->at)
            TUTTI_TRY(tutti__comm_check_signature(shm->comm, &op->signature, rank,
                                                  &tutti__shm_call_of(shm, rank)->signature));
    }
    return TUTTI_OK;
}

/* True if this rank is the last of its node. */
static bool count(tutti__shm *shm, const level *l, uint64_t number)
{
    size_t fan = (size_t)shm->fan, i = l->at / fan, here = l->n - i * fan;
    tutti__shm_node *node = &shm->nodes[l->first + i];
    uint64_t all = (here < fan ? here : fan) * (number / TUTTI__SHM_OPEN);

    if (atomic_fetch_add_explicit(&node->arrived[number % TUTTI__SHM_OPEN], 1,
                                  memory_order_acq_rel) +
            1 <
        all)
        return false;
    atomic_store_explicit(&node->last[number % TUTTI__SHM_OPEN], (uint32_t)shm->comm->rank,
                          memory_order_relaxed);
    return true;
}

static void pass(tutti__shm *shm, uint64_t number)
{
    atomic_store_explicit(&shm->block->passed, number, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* between that and the sleepers */
    tutti__shm_wake_all(shm);
}

static tutti_status climb(tutti__shm *shm, uint64_t number, const tutti__operation *op, bool enters,
                          tutti__shm_last last)
{
    level l = {.n = (size_t)shm->comm->size, .at = (size_t)shm->comm->rank};

    while (count(shm, &l, number)) {
        size_t nodes = nodes_for(l.n, (size_t)shm->fan);

        if (enters)
            TUTTI_TRY(compare(shm, op, &l, number));
        if (nodes == 1) {
            if (last.act)
                TUTTI_TRY(last.act(last.self));
            pass(shm, number);
            return TUTTI_OK;
        }
        l = (level){
            .n = nodes, .at = l.at / (size_t)shm->fan, .below = l.first, .first = l.first + nodes};
    }
    return TUTTI_OK;
}

tutti_status tutti__shm_tree_arrive(tutti__shm *shm, uint64_t number, const tutti__operation *op,
                                    bool enters, tutti__shm_last last)
{
    TUTTI_TRY(climb(shm, number, op, enters, last));
    atomic_store_explicit(&shm->block->slots[shm->comm->rank].arrived, number,
                          memory_order_release);
    return TUTTI_OK;
}
