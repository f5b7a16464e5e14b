/* copy_method.c -- chooses how data that peers cannot read directly are moved: by what was fastest so far.
 * SPDX-License-Identifier: MIT
 *
 * A rank publishes in its slot how long it copied in before a call was entered, and how long the call then took. When the
 * next timed call is entered, all of these are there and none is overwritten yet. What counts is the slowest rank's copy
 * plus the slowest rank's call, because no rank takes data before all have copied in. */
#include "comm/transport/shared_memory/copy_method.h"

#include "comm/core/copy.h"

enum {
    LEAST_BYTES = 8 << 10, /* of all that a rank gives: below, timing costs more than it gains */
    OF_CHUNK = 8,          /* of a chunk, usually 32 KiB: below, a system call does not pay */
    /* of each method, before the fastest is used; so many that the last do not touch staging buffers for the first time */
    TRIES = 7,
    AGAIN = 61, /* calls between further trials */
    /* of the other calls one in so many is timed, because clock reads slow down small ones */
    TIMED = 4,
};

static size_t bytes_of(const tutti__shm *shm, const tutti__operation *op)
{
    return (size_t)op->signature.count * tutti__element(op->signature.dtype) *
           (tutti__op_traits_of(op)->scatters ? (size_t)shm->comm->size : 1);
}

/* The record of calls like this one, of sizes within a factor of two; NULL: they are not timed. */
static tutti__shm_pace *pace_of(tutti__shm *shm, const tutti__operation *op)
{
    size_t step = 0;

    if (bytes_of(shm, op) < LEAST_BYTES)
        return NULL;
    while (step + 1 < TUTTI__SHM_PACES && bytes_of(shm, op) >> step >= 2 * LEAST_BYTES)
        step++;
    return &shm->paces[op->signature.op][step];
}

size_t tutti__copy_method_least_read(const tutti__shm *shm)
{
    return shm->block->chunk_bytes / OF_CHUNK;
}

/* Small calls share a record with some that are large enough for cross-memory attach. */
static bool can(const tutti__shm *shm, const tutti__operation *op, tutti__copy_method method)
{
    if (method == TUTTI__COPY_BY_KERNEL)
        return shm->cma == TUTTI__CMA_ALWAYS &&
               (tutti__op_traits_of(op)->uneven ||
                bytes_of(shm, op) >= tutti__copy_method_least_read(shm));
    return true;
}

static tutti__copy_method quickest(const tutti__shm *shm, const tutti__operation *op,
                                   const tutti__shm_pace *pace)
{
    tutti__copy_method best = TUTTI__COPY_BY_STORES;

    for (int method = 0; method < TUTTI__COPY_METHODS; method++)
        if (can(shm, op, (tutti__copy_method)method) && pace->ns[method] > 0 &&
            (pace->ns[best] <= 0 || pace->ns[method] < pace->ns[best]))
            best = (tutti__copy_method)method;
    return best;
}

void tutti__copy_method_choose(tutti__shm *shm, const tutti__operation *op)
{
    const tutti__shm_pace *pace = pace_of(shm, op);
    uint32_t n;

    shm->is_timed = false;
    shm->staged_ns = 0;
    shm->copy_method = TUTTI__COPY_BY_STORES;
    shm->by_strings = false;
    if (tutti__op_traits_of(op)->uneven && can(shm, op, TUTTI__COPY_BY_KERNEL))
        shm->copy_method = TUTTI__COPY_BY_KERNEL;
    if (!pace)
        return;
    n = pace->calls;
    shm->is_timed = n < TRIES * TUTTI__COPY_METHODS || n % AGAIN == 0 || n % TIMED == 0;
    shm->copy_method =
        (tutti__copy_method)(n < TRIES * TUTTI__COPY_METHODS ? n % TUTTI__COPY_METHODS
                                                             : n / AGAIN % TUTTI__COPY_METHODS);
    if ((n >= TRIES * TUTTI__COPY_METHODS && n % AGAIN != 0) || !can(shm, op, shm->copy_method))
        shm->copy_method = quickest(shm, op, pace);
    shm->by_strings = shm->copy_method == TUTTI__COPY_BY_STRINGS ||
                      (shm->copy_method == TUTTI__COPY_BY_KERNEL &&
                       pace->ns[TUTTI__COPY_BY_STRINGS] < pace->ns[TUTTI__COPY_BY_STORES]);
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

void tutti__copy_method_stage_begin(tutti__shm *shm)
{
    if (shm->is_timed)
        shm->began_ns = tutti__now_ns();
}

void tutti__copy_method_stage_end(tutti__shm *shm)
{
    if (shm->is_timed)
        shm->staged_ns = tutti__now_ns() - shm->began_ns;
}

void tutti__copy_method_begin(tutti__shm *shm)
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

void tutti__copy_method_end(tutti__shm *shm, const tutti__operation *op)
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
    shm->timed = &pace->ns[shm->copy_method];
}

void tutti__copy_by_method(const tutti__shm *shm, void *restrict to, const void *restrict from,
                           size_t bytes)
{
    if (shm->by_strings)
        tutti__copy_string(to, from, bytes);
    else
        tutti__copy(to, from, bytes);
}
