/* single_engine.c -- a group of one: every call works and sends nothing.   SPDX-License-Identifier: MIT */
#include "comm/engine/engine.h"
#include "comm/transport/plain_memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct single_engine {
    tutti__engine base;
    tutti__plain_memory memory;
} single_engine;

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    single_engine *e = (single_engine *)engine;
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           bytes = tutti__op_given(0, 1, op) * element;

    if (tutti__op_allocates(op))
        return tutti__plain_alloc(&e->memory, op);
    if (tutti__op_traits_of(op)->uneven && !op->only_compared)
        TUTTI_TRY(tutti__comm_check_sent(engine->comm, &op->signature, 0, 0,
                                         tutti__piece_out(op, 0, 0).count,
                                         tutti__piece_in(0, op, 0).count));
    if (bytes > 0 && op->dst != op->src)
        memmove(op->dst, op->src, bytes);
    return TUTTI_OK;
}

static void release(tutti__engine *engine, void *p)
{
    tutti__plain_release(&((single_engine *)engine)->memory, engine->comm, p);
}

static void close_engine(tutti__engine *engine)
{
    tutti__plain_destroy(&((single_engine *)engine)->memory, false);
    free(engine);
}

static const tutti__engine_ops SINGLE = {.run = run, .release = release, .close = close_engine};

tutti_status tutti__engine_single(tutti__engine **engine_p, tutti__comm *comm)
{
    single_engine *engine = tutti__alloc(sizeof *engine);

    *engine_p = engine ? &engine->base : NULL;
    if (!engine)
        return TUTTI_ERR_MEMORY;
    engine->base = (tutti__engine){&SINGLE, comm, "single"};
    tutti__plain_init(&engine->memory, false);
    return TUTTI_OK;
}
