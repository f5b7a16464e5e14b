/* way.c -- chooses how data that peers cannot read directly are moved: by what was fastest so far.
 * SPDX-License-Identifier: MIT
 *
 * A rank publishes in its slot how long it copied in before a call was entered, and how long the call then took. When the
 * next timed call is entered, all of these are there and none is overwritten yet. What counts is the slowest rank's copy
 * plus the slowest rank's call, because no rank takes data before all have copied in. */
#include "comm/transport/shared_memory/way.h"

#include "comm/core/copy.h"

enum {
    LEAST_BYTES = 8 << 10, /* of all that a rank gives: below, timing costs more than it gains */
    OF_CHUNK = 8,          /* of a chunk, usually 32 KiB: below, a system call does not pay */
    /* of each way, before the fastest is used; so many that the last do not touch staging buffers for the first time */
    TRIES = 7,
    AGAIN = 61, /* calls between further trials */
    /* of the other calls one in so many is timed, because clock reads slow down small ones */
    TIMED = 4,
};

static size_t bytes_of(const tutti__shm *shm, const tutti__op *op)
{
    return (size_t)op->signature.count * tutti__element(op->signature.dtype) *
           (tutti__op_traits_of(op)->scatters ? (size_t)shm->comm->size : 1);
}

/* The record of calls like this one, of sizes within a factor of two; NULL: they are not timed. */
static tutti__shm_pace *pace_of(tutti__shm *shm, const tutti__op *op)
{
    size_t step = 0;

    if (bytes_of(shm, op) < LEAST_BYTES)
        return NULL;
    while (step + 1 < TUTTI__SHM_PACES && bytes_of(shm, op) >> step >= 2 * LEAST_BYTES)
        step++;
    return &shm->paces[op->signature.op][step];
}

size_t tutti__way_least_read(const tutti__shm *shm)
{
    return shm->block->chunk_bytes / OF_CHUNK;
}

/* Small calls share a record with some that are large enough for cross-memory attach. */
static bool can(const tutti__shm *shm, const tutti__op *op, tutti__shm_way way)
{
    if (way == TUTTI__BY_KERNEL)
        return shm->cma == TUTTI__CMA_ALWAYS &&
               (tutti__op_traits_of(op)->uneven || bytes_of(shm, op) >= tutti__way_least_read(shm));
    return true;
}

static tutti__shm_way quickest(const tutti__shm *shm, const tutti__op *op,
                               const tutti__shm_pace *pace)
{
    tutti__shm_way best = TUTTI__BY_STORES;

    for (int way = 0; way < TUTTI__SHM_WAYS; way++)
        if (can(shm, op, (tutti__shm_way)way) && pace->ns[way] > 0 &&
            (pace->ns[best] <= 0 || pace->ns[way] < pace->ns[best]))
            best = (tutti__shm_way)way;
    return best;
}

void tutti__way_choose(tutti__shm *shm, const tutti__op *op)
{
    const tutti__shm_pace *pace = pace_of(shm, op);
    uint32_t n;

    shm->is_timed = false;
    shm->staged_ns = 0;
    shm->way = TUTTI__BY_STORES;
    shm->by_strings = false;
    if (tutti__op_traits_of(op)->uneven && can(shm, op, TUTTI__BY_KERNEL))
        shm->way = TUTTI__BY_KERNEL;
    if (!pace)
        return;
    n = pace->calls;
    shm->is_timed = n < TRIES * TUTTI__SHM_WAYS || n % AGAIN == 0 || n % TIMED == 0;
    shm->way = (tutti__shm_way)(n < TRIES * TUTTI__SHM_WAYS ? n % TUTTI__SHM_WAYS
                                                            : n / AGAIN % TUTTI__SHM_WAYS);
    if ((n >= TRIES * TUTTI__SHM_WAYS && n % AGAIN != 0) || !can(shm, op, shm->way))
        shm->way = quickest(shm, op, pace);
    shm->by_strings =
        shm->way == TUTTI__BY_STRINGS ||
        (shm->way == TUTTI__BY_KERNEL && pace->ns[TUTTI__BY_STRINGS] < pace->ns[TUTTI__BY_STORES]);
}

/* Accepts faster times at once; slower calls may have been disturbed. */
static void learn(tutti__shm *shm)
{
    float *mean = shm->timed, took = 0, staged = 0;

    if (!mean)
        return;
    for (int r = 0; r < shm->comm->size; r++) {
        const tutti__shm_slot *slot = &shm->block->slots[r];
        float took_ns =
            (float)atomic_load_explicit(&slot->took_ns[shm->n_timed & 1], memory_order_relaxed);
        float staged_ns =
            (float)atomic_load_explicit(&slot->staged_ns[shm->n_timed & 1], memory_order_relaxed);

        took = took_ns > took ? took_ns : took;
        staged = staged_ns > staged ? staged_ns : staged;
    }
    took += staged;
    if (*mean <= 0 || took < *mean)
        *mean = took;
    else
        *mean += ((took < 2 * *mean ? took : 2 * *mean) - *mean) / 8;
    shm->timed = NULL;
}

void tutti__way_stage_begin(tutti__shm *shm)
{
    if (shm->is_timed)
        shm->began_ns = tutti__now_ns();
}

void tutti__way_stage_end(tutti__shm *shm)
{
    if (shm->is_timed)
        shm->staged_ns = tutti__now_ns() - shm->began_ns;
}

void tutti__way_begin(tutti__shm *shm)
{
    if (!shm->is_timed)
        return;
    learn(shm);
    shm->began_ns = tutti__now_ns();
}

static uint32_t capped(uint64_t ns)
{
    return (uint32_t)(ns < UINT32_MAX ? ns : UINT32_MAX);
}

void tutti__way_end(tutti__shm *shm, const tutti__op *op)
{
    tutti__shm_pace *pace = pace_of(shm, op);
    tutti__shm_slot *slot = &shm->block->slots[shm->comm->rank];
    uint64_t ns;

    if (!pace)
        return;
    pace->calls++;
    if (!shm->is_timed)
        return;
    ns = tutti__now_ns() - shm->began_ns;
    if (tutti__op_traits_of(op)->to_root && op->signature.root != (uint32_t)shm->comm->rank)
        ns = 0; /* it takes nothing */
    shm->n_timed++;
    atomic_store_explicit(&slot->took_ns[shm->n_timed & 1], capped(ns), memory_order_relaxed);
    atomic_store_explicit(&slot->staged_ns[shm->n_timed & 1], capped(shm->staged_ns),
                          memory_order_relaxed);
    shm->timed = &pace->ns[shm->way];
}

void tutti__way_copy(const tutti__shm *shm, void *restrict to, const void *restrict from,
                     size_t bytes)
{
    if (shm->by_strings)
        tutti__copy_string(to, from, bytes);
    else
        tutti__copy(to, from, bytes);
}
