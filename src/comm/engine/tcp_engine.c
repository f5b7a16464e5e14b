/* tcp_engine.c -- collectives of ranks that share no memory: messages over TCP, or MPI's.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"
#include "comm/engine/engine.h"
#include "comm/transport/plain_memory.h"

#include <stdlib.h>

typedef struct tcp_engine {
    tutti__engine base;
    tutti__tcp *tcp;
    tutti__tuner tuner;
    tutti__plain_memory memory;
} tcp_engine;

static tutti_status run_op(tcp_engine *e, tutti__operation *op)
{
    const tutti__comm *comm = e->base.comm;

    if (!tutti__op_allocates(op))
        return tutti__tcp_run(e->tcp, &e->tuner, op);
    TUTTI_TRY(tutti__tcp_barrier(e->tcp, &e->tuner, op, e->tcp->everyone, comm->size, comm->rank));
    /* afterwards ranks agree on whether all have their memory */
    return tutti__plain_alloc(&e->memory, op);
}

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    tcp_engine *e = (tcp_engine *)engine;
    const tutti__comm *comm = engine->comm;
    tutti_status status = run_op(e, op);

    if (status != TUTTI_OK && e->memory.twice && !tutti__op_allocates(op))
        tutti__plain_take_back(&e->memory, comm, op->dst,
                               tutti__op_taken(comm->rank, comm->size, op) *
                                   tutti_dtype_size((tutti_dtype)op->signature.dtype));
    return status;
}

static tutti_status measure(tutti__engine *engine, double deadline)
{
    tcp_engine *e = (tcp_engine *)engine;

    return tutti__tcp_measure(e->tcp, &e->tuner, NULL, deadline);
}

static tutti__tuner *tuner(tutti__engine *engine)
{
    return &((tcp_engine *)engine)->tuner;
}

static void wake(tutti__engine *engine, int rank)
{
    (void)rank;
    tutti__tcp_wake(((tcp_engine *)engine)->tcp);
}

static void release(tutti__engine *engine, void *p)
{
    tutti__plain_release(&((tcp_engine *)engine)->memory, engine->comm, p);
}

static void close_engine(tutti__engine *engine)
{
    tcp_engine *e = (tcp_engine *)engine;

    tutti__plain_destroy(&e->memory, tutti__comm_failed(engine->comm));
    tutti__tcp_free(e->tcp);
    tutti__tuner_close(&e->tuner);
    free(e);
}

static const tutti__engine_ops TCP = {.measure = measure,
                                      .tuner = tuner,
                                      .run = run,
                                      .wake = wake,
                                      .release = release,
                                      .close = close_engine};

tutti_status tutti__engine_tcp(tutti__engine **engine_p, tutti__comm *comm, tutti__tcp *tcp,
                               const tutti__places *places)
{
    tcp_engine *engine = tutti__alloc(sizeof *engine);

    *engine_p = engine ? &engine->base : NULL;
    if (!engine) {
        tutti__tcp_abandon(tcp);
        return TUTTI_ERR_MEMORY;
    }
    engine->base = (tutti__engine){&TCP, comm, tcp->wire->name};
    engine->tcp = tcp;
    tutti__plain_init(&engine->memory, tcp->wire->lasting);
    tcp->memory = &engine->memory;
    TUTTI_TRY(
        tutti__tuner_open(&engine->tuner, tutti__comm_chunk_bytes(comm, TUTTI__TUNER_CHUNK_BYTES)));
    tutti__tuner_set_shape(&engine->tuner, 0, comm, places, tcp->everyone, comm->size);
    return TUTTI_OK;
}
