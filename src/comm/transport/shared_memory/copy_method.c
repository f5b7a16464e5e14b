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
};

static size_t bytes_of(const tutti__shm *shm, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);

    if (traits->uneven)
        return shm->uneven_bytes[op->signature.op];
    return (size_t)op->signature.count * tutti__element(op->signature.dtype) *
           (traits->scatters ? (size_t)shm->comm->size : 1);
}

/* The record of calls like this one; NULL: they are not timed. */
static tutti__pace *pace_of(tutti__shm *shm, const tutti__operation *op)
{
    size_t bytes = bytes_of(shm, op);

    return bytes < LEAST_BYTES || shm->comm->size > TUTTI__SHM_MANY
               ? NULL
               : &shm->paces[op->signature.op][tutti__pace_size(bytes, LEAST_BYTES)];
}

size_t tutti__copy_method_least_read(const tutti__shm *shm)
{
    return shm->block->chunk_bytes / OF_CHUNK;
}

/* Small calls share a record with some that are large enough for cross-memory attach. */
static bool can_read(const tutti__shm *shm, const tutti__operation *op)
{
    return shm->cma == TUTTI__CMA_ALWAYS &&
           (tutti__op_traits_of(op)->uneven ||
            bytes_of(shm, op) >= tutti__copy_method_least_read(shm));
}

void tutti__copy_method_choose(tutti__shm *shm, const tutti__operation *op)
{
    const tutti__pace *pace = shm->pace = pace_of(shm, op);
    unsigned usable = 1u << TUTTI__COPY_BY_STRINGS;

    if (can_read(shm, op))
        usable |= 1u << TUTTI__COPY_BY_KERNEL;
    shm->staged_ns = 0;
    shm->is_timed = pace && tutti__pace_is_timed(pace, TUTTI__COPY_METHODS);
    shm->copy_method =
        pace ? (tutti__copy_method)tutti__pace_choose(pace, TUTTI__COPY_METHODS, usable)
             : TUTTI__COPY_BY_STORES;
    if (!pace && tutti__op_traits_of(op)->uneven && can_read(shm, op))
        shm->copy_method = TUTTI__COPY_BY_KERNEL; /* a first call may be large */
    shm->by_strings = shm->copy_method == TUTTI__COPY_BY_STRINGS ||
                      (pace && shm->copy_method == TUTTI__COPY_BY_KERNEL &&
                       pace->ns[TUTTI__COPY_BY_STRINGS] < pace->ns[TUTTI__COPY_BY_STORES]);
}

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
    tutti__pace_learn(mean, took + staged);
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
    tutti__shm_slot *slot = &shm->block->slots[shm->comm->rank];
    uint64_t ns;

    if (!shm->pace)
        return;
    shm->pace->calls++;
    if (!shm->is_timed)
        return;
    ns = tutti__now_ns() - shm->began_ns;
    if (tutti__op_traits_of(op)->to_root && op->signature.root != (uint32_t)shm->comm->rank)
        ns = 0; /* it takes nothing */
    shm->n_timed++;
    atomic_store_explicit(&slot->took_ns[shm->n_timed & 1], capped(ns), memory_order_relaxed);
    atomic_store_explicit(&slot->staged_ns[shm->n_timed & 1], capped(shm->staged_ns),
                          memory_order_relaxed);
    shm->timed = &shm->pace->ns[shm->copy_method];
}

void tutti__copy_by_method(const tutti__shm *shm, void *restrict to, const void *restrict from,
                           size_t bytes)
{
    if (shm->by_strings)
        tutti__copy_string(to, from, bytes);
    else
        tutti__copy(to, from, bytes);
}
