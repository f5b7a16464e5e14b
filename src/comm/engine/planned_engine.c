/* planned_engine.c -- a group of which only this rank exists: calls are counted, and send nothing.   SPDX-License-Identifier: MIT
 *
 * The others would make the same calls: of what ranks compare or vote on, each gives what this one does. So what is gathered are
 * copies of this rank's, sums of integers are multiples of its own, and other reductions leave its values. Of elements in
 * planned memory nothing moves. */
#include "comm/engine/planned_engine.h"

#include "comm/core/operation.h"
#include "comm/engine/engine.h"
#include "device/planned/planned.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)TUTTI__N_OPS <= TUTTI__PLANNED_CALLS, "a place for each kind of call");

typedef struct planned_engine {
    tutti__engine base;
    tutti__planned_calls calls;
    int asynchronous; /* calls that run for which the caller has a handle */
} planned_engine;

static void note(const planned_engine *e, const tutti__operation *op, size_t bytes)
{
    tutti__planned_log *log = e->calls.log;

    if (!log)
        return;
    if (log->n == log->room) {
        const size_t room = log->room ? 2 * log->room : 64;
        tutti__planned_entry *p = realloc(log->p, room * sizeof *p);

        log->incomplete |= !p;
        if (!p)
            return;
        log->p = p;
        log->room = room;
    }
    log->p[log->n++] =
        (tutti__planned_entry){.name = tutti__op_name((tutti__op_kind)op->signature.op),
                               .dtype = (tutti_dtype)op->signature.dtype,
                               .group = e->calls.log_group,
                               .bytes = bytes,
                               .asynchronous = e->asynchronous > 0,
                               .at = log->clock(log->of)};
}

/* Of the whole message: all that one rank has before, or after. */
static void count(planned_engine *e, const tutti__operation *op)
{
    const tutti__comm *comm = e->base.comm;
    const size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
                 given = tutti__op_given(comm->rank, comm->size, op),
                 taken = tutti__op_taken(comm->rank, comm->size, op);

    if (op->only_compared)
        return;
    tutti__engine_planned_message(&e->base, op->signature.op,
                                  (given > taken ? given : taken) * element);
    note(e, op, (given > taken ? given : taken) * element);
}

static bool moves(const void *p, size_t bytes)
{
    return p && bytes > 0 && !tutti__planned_owns(p);
}

/* The sum of integers that are the same on all ranks: counts, and what is compared by sums. */
static void add_up(int size, const tutti__operation *op)
{
    int64_t *p = op->dst;

    if (op->signature.op != TUTTI__OP_ALL_REDUCE || op->signature.redop != TUTTI_SUM ||
        op->signature.dtype != TUTTI_I64 || !moves(op->dst, 1))
        return;
    for (uint64_t i = 0; i < op->signature.count; i++)
        p[i] = (int64_t)((uint64_t)p[i] * (uint64_t)size);
}

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    planned_engine *e = (planned_engine *)engine;
    const tutti__comm *comm = engine->comm;
    const size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    const tutti__piece mine = tutti__piece_out(op, comm->rank, comm->rank);
    const char *from = (const char *)op->src + mine.at * element;

    if (tutti__op_allocates(op)) {
        *(void **)op->dst = tutti__planned_plain((size_t)op->signature.count);
        if (!*(void **)op->dst)
            return TUTTI_ERR_MEMORY;
        e->calls.memory += (size_t)op->signature.count;
        return TUTTI_OK;
    }
    count(e, op);
    for (int r = 0; r < comm->size && !op->only_compared && mine.count > 0; r++) {
        const tutti__piece in = tutti__piece_in(comm->rank, op, r);
        char *to = (char *)op->dst + in.at * element;

        if (in.count >= mine.count && to != from && moves(op->dst, element) &&
            moves(op->src, element))
            memmove(to, from, mine.count * element);
    }
    add_up(comm->size, op);
    return TUTTI_OK;
}

static void at_once(tutti__engine *engine, int more)
{
    ((planned_engine *)engine)->asynchronous += more;
}

static void release(tutti__engine *engine, void *p)
{
    ((planned_engine *)engine)->calls.memory -= tutti__planned_free(p);
}

static void close_engine(tutti__engine *engine)
{
    free(engine);
}

static const tutti__engine_ops PLANNED = {
    .run = run, .at_once = at_once, .release = release, .close = close_engine};

tutti_status tutti__engine_planned(tutti__engine **engine_p, tutti__comm *comm)
{
    planned_engine *engine = tutti__alloc(sizeof *engine);

    *engine_p = engine ? &engine->base : NULL;
    if (!engine)
        return TUTTI_ERR_MEMORY;
    engine->base = (tutti__engine){&PLANNED, comm, "planned"};
    return TUTTI_OK;
}

void tutti__engine_planned_message(tutti__engine *engine, int kind, size_t bytes)
{
    tutti__planned_call *call = &((planned_engine *)engine)->calls.of[kind];

    call->name = tutti__op_name((tutti__op_kind)kind);
    call->n++;
    call->bytes += bytes;
}

tutti__planned_calls *tutti__engine_planned_calls(tutti__engine *engine)
{
    return &((planned_engine *)engine)->calls;
}
