/* hierarchical_engine.c -- several hosts: shared memory within each, messages between them.   SPDX-License-Identifier: MIT
 *
 * The algorithms are in algorithm/hierarchical_*.c. reduce, and operations that only move pieces between pairs of ranks,
 * go directly to their destination, by messages. */
#include "comm/algorithm/hierarchy.h"
#include "comm/algorithm/tcp_algorithms.h"
#include "comm/engine/engine.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 4 << 20 };

typedef struct hierarchical_engine {
    tutti__engine base;
    tutti__hierarchy h;
} hierarchical_engine;

static tutti_status alloc(tutti__hierarchy_op *o)
{
    tutti_status status = tutti__shm_alloc(o->h->shm, o->op);

    if (tutti__comm_failed(o->h->comm))
        return status;
    /* also on a host that has no room: ranks agree afterwards */
    TUTTI_TRY(tutti__hierarchy_compare_leaders(o));
    tutti__hierarchy_next_stage(o);
    TUTTI_TRY(tutti__shm_barrier(o->h->shm, o->op));
    return status;
}

static tutti_status by_tcp_alone(tutti__hierarchy_op *o)
{
    TUTTI_TRY(tutti__hierarchy_enter(o)); /* ranks that call something else wait at most there */
    return tutti__tcp_run(o->h->tcp, &o->h->tuner, o->op);
}

static tutti_status run_op(tutti__hierarchy *h, tutti__operation *op)
{
    tutti__hierarchy_op o = {.h = h,
                             .op = op,
                             .dtype = (tutti_dtype)op->signature.dtype,
                             .element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
                             .count = (size_t)op->signature.count,
                             .local_rank = h->local_rank_of[h->comm->rank]};

    if (tutti__op_allocates(op))
        return alloc(&o);
    if (tutti__op_is_empty(op))
        return tutti__hierarchical_barrier(&o);
    if (op->signature.op == TUTTI__OP_ALL_REDUCE) {
        tutti__op_in_place(op);
        return tutti__hierarchical_all_reduce(&o);
    }
    if (op->signature.op == TUTTI__OP_BROADCAST)
        return tutti__hierarchical_broadcast(&o);
    if (h->block_bytes / o.element < (size_t)h->comm->size)
        return by_tcp_alone(&o);
    if (op->signature.op == TUTTI__OP_ALL_GATHER)
        return tutti__hierarchical_all_gather(&o);
    if (op->signature.op == TUTTI__OP_REDUCE_SCATTER)
        return tutti__hierarchical_reduce_scatter(&o);
    return by_tcp_alone(&o);
}

static tutti_status run(tutti__engine *engine, tutti__operation *op)
{
    tutti__hierarchy *h = &((hierarchical_engine *)engine)->h;
    tutti_status status = run_op(h, op);

    if (status != TUTTI_OK)
        tutti__shm_leave(h->shm);
    return status;
}

/* ---- Init, teardown ----------------------------------------------------------------------------------------------- */

static void wake(tutti__engine *engine, int rank)
{
    const tutti__hierarchy *h = &((const hierarchical_engine *)engine)->h;

    tutti__tcp_wake(h->tcp);
    if (rank < 0 || h->host_of[rank] == h->host_of[engine->comm->rank])
        tutti__shm_wake_all(h->shm);
}

static void see(tutti__engine *engine)
{
    const tutti__hierarchy *h = &((const hierarchical_engine *)engine)->h;

    tutti__shm_see(h->shm);
    for (int r = 0; r < h->host->size; r++) {
        uint64_t seen = atomic_load(&h->host->peers[r].seen);
        _Atomic uint64_t *known = &engine->comm->peers[h->host->outer_ranks[r]].seen;

        if (atomic_load(known) < seen)
            atomic_store(known, seen);
    }
}

static void release(tutti__engine *engine, void *p)
{
    tutti__shm_release(((hierarchical_engine *)engine)->h.shm, p);
}

static void free_host(tutti__comm *host, tutti__shm *shm)
{
    tutti__shm_close(shm);
    tutti__comm_destroy(host);
    free(host);
}

static void close_engine(tutti__engine *engine)
{
    hierarchical_engine *e = (hierarchical_engine *)engine;
    tutti__hierarchy *h = &e->h;

    free_host(h->host, h->shm);
    tutti__tuner_close(&h->tuner);
    tutti__tcp_free(h->tcp);
    free(h->host_of);
    free(h->local_rank_of);
    free(h->rail);
    free(h->n_ranks);
    free(h->partners);
    free(h->serves);
    free(h->served_by);
    free(h->arrived);
    free(h->buffers);
    free(e);
}

static tutti_status measure(tutti__engine *engine, double deadline)
{
    tutti__hierarchy *h = &((hierarchical_engine *)engine)->h;

    return tutti__tcp_measure(h->tcp, &h->tuner, h->rail, deadline);
}

static tutti__tuner *tuner(tutti__engine *engine)
{
    return &((hierarchical_engine *)engine)->h.tuner;
}

static const tutti__engine_ops HIERARCHICAL = {.measure = measure,
                                               .tuner = tuner,
                                               .run = run,
                                               .wake = wake,
                                               .see = see,
                                               .release = release,
                                               .close = close_engine};

/* Their new numbers, in all that is by host. */
static tutti_status order_hosts(tutti__hierarchy *h, const tutti__places *places, int size)
{
    const size_t n = (size_t)h->n_hosts;
    int *order = tutti__alloc(3 * n * sizeof *order), *number, *n_ranks;
    tutti_status status =
        order ? tutti__order_hosts(places, h->rail, h->n_hosts, order) : TUTTI_ERR_MEMORY;

    number = order ? order + n : NULL;
    n_ranks = order ? number + n : NULL;
    for (int i = 0; i < h->n_hosts && status == TUTTI_OK; i++) {
        number[order[i]] = i;
        n_ranks[i] = h->n_ranks[order[i]];
    }
    if (status == TUTTI_OK)
        memcpy(h->n_ranks, n_ranks, n * sizeof *n_ranks);
    for (int r = 0; r < size && status == TUTTI_OK; r++)
        h->host_of[r] = number[h->host_of[r]];
    free(order);
    return status;
}

/* Numbers the hosts in the order of their first ranks, and the ranks of each; then the hosts switch by switch. */
static tutti_status number_hosts(tutti__hierarchy *h, const tutti__places *places, int size)
{
    const uint64_t *host_ids = places->hosts;

    for (int r = 0; r < size; r++) {
        int host = 0;

        while (host < h->n_hosts && host_ids[h->rail[host]] != host_ids[r])
            host++;
        if (host == h->n_hosts)
            h->rail[h->n_hosts++] = r; /* its first, for now */
        h->host_of[r] = host;
        h->local_rank_of[r] = h->n_ranks[host]++;
    }
    TUTTI_TRY(order_hosts(h, places, size));
    h->n_shards = size;
    for (int host = 0; host < h->n_hosts; host++)
        h->n_shards = h->n_ranks[host] < h->n_shards ? h->n_ranks[host] : h->n_shards;
    return TUTTI_OK;
}

/* On each other host one rank serves this one; if the hosts' sizes differ, round robin. */
static void find_partners(tutti__hierarchy *h)
{
    const tutti__comm *comm = h->comm;
    int me = h->local_rank_of[comm->rank], here = h->host->size;

    for (int r = 0; r < comm->size; r++) {
        bool served_by = me % h->n_ranks[h->host_of[r]] == h->local_rank_of[r],
             serves = h->local_rank_of[r] % here == me;

        if (h->host_of[r] == h->host_of[comm->rank] || (!served_by && !serves))
            continue;
        h->partners[h->n_partners] = r;
        h->served_by[h->n_partners] = served_by;
        h->serves[h->n_partners++] = serves;
    }
}

/* Of the first ranks of all hosts, so of all that have one local rank. */
static tutti_status find_shapes(tutti__hierarchy *h, const tutti__places *places)
{
    const tutti__comm *comm = h->comm;
    int *firsts = tutti__alloc((size_t)h->n_hosts * sizeof *firsts);

    if (!firsts)
        return TUTTI_ERR_MEMORY;
    for (int r = comm->size - 1; r >= 0; r--)
        firsts[h->host_of[r]] = r;
    tutti__tuner_set_shape(&h->tuner, 1, comm, places, firsts, h->n_hosts);
    tutti__tuner_set_shape(&h->tuner, 0, comm, places, h->tcp->everyone, comm->size);
    h->tuner.shapes[1].share = h->n_shards;
    free(firsts);
    return TUTTI_OK;
}

/* Shared memory to stage buffers that peers cannot read. */
static tutti_status make_staging(tutti__hierarchy *h)
{
    const tutti__comm *comm = h->comm;
    size_t page = 4096;
    void *own;
    tutti__operation op = {
        .signature = {.op = TUTTI__OP_ALLOC, .group = comm->id, .dtype = TUTTI_U8},
        .dst = &own,
        .deadline = tutti__now_ms() + comm->timeout_ms};

    h->block_bytes = tutti__comm_chunk_bytes(comm, BLOCK_BYTES);
    h->staging_stride = (h->block_bytes + page - 1) / page * page;
    op.signature.count = h->staging_stride;
    TUTTI_TRY(tutti__shm_alloc(h->shm, &op));
    h->staging = (char *)own - (size_t)h->host->rank * h->staging_stride;
    return TUTTI_OK;
}

tutti_status tutti__engine_hierarchical(tutti__engine **engine_p, tutti__comm *comm,
                                        tutti__tcp *tcp, tutti__comm *host, tutti__shm *shm,
                                        const tutti__places *places)
{
    size_t n = (size_t)comm->size;
    hierarchical_engine *engine = tutti__alloc(sizeof *engine);
    tutti__hierarchy *h;

    *engine_p = engine ? &engine->base : NULL;
    if (!engine) {
        tutti__tcp_abandon(tcp);
        free_host(host, shm);
        return TUTTI_ERR_MEMORY;
    }
    engine->base = (tutti__engine){&HIERARCHICAL, comm, tcp->wire->with_shared_memory};
    h = &engine->h;
    *h = (tutti__hierarchy){.comm = comm,
                            .tcp = tcp,
                            .host = host,
                            .shm = shm,
                            .host_of = calloc(n, sizeof *h->host_of),
                            .local_rank_of = calloc(n, sizeof *h->local_rank_of),
                            .rail = calloc(n, sizeof *h->rail),
                            .n_ranks = calloc(n, sizeof *h->n_ranks),
                            .partners = calloc(n, sizeof *h->partners),
                            .serves = calloc(n, sizeof *h->serves),
                            .served_by = calloc(n, sizeof *h->served_by),
                            .arrived = calloc(n, sizeof *h->arrived),
                            .buffers = calloc((size_t)host->size, sizeof *h->buffers)};
    if (!h->host_of || !h->local_rank_of || !h->rail || !h->n_ranks || !h->partners || !h->serves ||
        !h->served_by || !h->arrived || !h->buffers)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", comm->size);
    TUTTI_TRY(
        tutti__tuner_open(&h->tuner, tutti__comm_chunk_bytes(comm, TUTTI__TUNER_CHUNK_BYTES)));
    TUTTI_TRY(number_hosts(h, places, comm->size));
    find_partners(h);
    for (int i = 0; i < h->n_hosts; i++)
        h->rail[i] = -1;
    for (int r = 0; r < comm->size; r++)
        if (h->local_rank_of[r] == h->local_rank_of[comm->rank] &&
            h->local_rank_of[r] < h->n_shards)
            h->rail[h->host_of[r]] = r;
    TUTTI_TRY(find_shapes(h, places));
    return make_staging(h);
}
