/* shared_memory_engine.c -- collectives of ranks on one host, by the algorithms of shm_*.c.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_algorithms.h"
#include "comm/engine/engine.h"
#include "comm/transport/shared_memory/cma.h"
#include "comm/transport/shared_memory/copy_method.h"

#include <stdlib.h>

typedef struct shm_engine {
    tutti__engine base;
    tutti__shm *shm;
    const tutti__operation *published; /* the next operation, if it is already published */
    bool small, by_tree;               /* whether it is small, or one rank reduces for all */
} shm_engine;

static tutti__shm *shm_of(tutti__engine *engine)
{
    return ((shm_engine *)engine)->shm;
}

/* Publishes the address of what this rank gives or, if it gives nothing and copies too, of what it takes. A direct
 * reduction is made in place: peers write the result over the contribution. */
static bool declare(tutti__shm *shm, tutti__operation *op, size_t bytes)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    bool is_root = op->signature.root == (uint32_t)shm->comm->rank, direct;

    if (!traits->reduces && !traits->scatters &&
        ((traits->to_root && is_root) || (traits->from_root && !is_root)))
        return tutti__shm_declare(shm, op, op->dst,
                                  tutti__op_taken(shm->comm->rank, shm->comm->size, op) *
                                      tutti__element(op->signature.dtype));
    if (op->src == op->dst || !traits->reduces || traits->scatters)
        return tutti__shm_declare(shm, op, op->src, bytes);
    direct = tutti__shm_declare(shm, op, op->dst, bytes);
    if (direct)
        tutti__op_in_place(op);
    return direct;
}

static void publish(tutti__engine *engine, tutti__operation *op)
{
    shm_engine *e = (shm_engine *)engine;

    tutti__cma_agree(e->shm);
    e->by_tree = e->shm->fan > 0 && tutti__shm_reduces_by_tree(e->shm, op);
    e->small = !e->by_tree && !tutti__op_allocates(op) && tutti__shm_is_small(e->shm, op);
    if (e->small)
        tutti__shm_small_publish(e->shm, op);
    e->published = op;
}

static tutti_status run_large(tutti__shm *shm, tutti__operation *op)
{
    size_t bytes;
    bool direct;

    if (tutti__op_allocates(op))
        return tutti__shm_alloc(shm, op);
    bytes =
        tutti__op_given(shm->comm->rank, shm->comm->size, op) * tutti__element(op->signature.dtype);
    direct = declare(shm, op, bytes);
    if (tutti__op_traits_of(op)->reduces)
        return tutti__shm_reduce(shm, op);
    tutti__copy_method_choose(shm, op);
    if (!direct)
        tutti__cma_offer(shm, op->src, bytes);
    return tutti__shm_move(shm, op);
}

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    shm_engine *e = (shm_engine *)engine;
    tutti_status status;

    if (e->published != op)
        publish(engine, op);
    e->published = NULL;
    if (e->by_tree)
        status = tutti__shm_reduce_by_tree(e->shm, op);
    else
        status = e->small ? tutti__shm_small(e->shm, op) : run_large(e->shm, op);
    if (status != TUTTI_OK)
        tutti__shm_leave(e->shm);
    return status;
}

static void announce(tutti__engine *engine, tutti__cause *cause)
{
    tutti__shm_announce(shm_of(engine), cause);
}

static void wake(tutti__engine *engine, int rank)
{
    (void)rank;
    tutti__shm_wake_all(shm_of(engine));
}

static void look(tutti__engine *engine)
{
    tutti__shm_look(shm_of(engine));
}

static void see(tutti__engine *engine)
{
    tutti__shm_see(shm_of(engine));
}

static void release(tutti__engine *engine, void *p)
{
    tutti__shm_release(shm_of(engine), p);
}

static void close_engine(tutti__engine *engine)
{
    tutti__shm_close(shm_of(engine));
    free(engine);
}

static const tutti__engine_ops SHARED_MEMORY = {.publish = publish,
                                                .run = run,
                                                .announce = announce,
                                                .wake = wake,
                                                .look = look,
                                                .see = see,
                                                .release = release,
                                                .close = close_engine};

tutti_status tutti__engine_shared_memory(tutti__engine **engine_p, tutti__comm *comm,
                                         tutti__shm *shm)
{
    shm_engine *engine = tutti__alloc(sizeof *engine);

    *engine_p = engine ? &engine->base : NULL;
    if (!engine) {
        tutti__shm_close(shm);
        return TUTTI_ERR_MEMORY;
    }
    *engine = (shm_engine){.base = {&SHARED_MEMORY, comm, "shared memory"}, .shm = shm};
    tutti__cma_open(shm);
    return TUTTI_OK;
}
