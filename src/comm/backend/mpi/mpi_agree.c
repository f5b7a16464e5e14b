/* mpi_agree.c -- checks, before data move, that all ranks make the same call.   SPDX-License-Identifier: MIT
 *
 * MPI would crash, or mix up bytes, if they did not. A small all_reduce finds out. */
#include "comm/backend/mpi/mpi_engine.h"

tutti__mpi_call tutti__mpi_bytes_call(const tutti__mpi_engine *e, tutti__op_kind kind,
                                      const void *src, void *dst, size_t bytes)
{
    return (tutti__mpi_call){
        .kind = kind, .comm = e->comm, .src = src, .dst = dst, .count = bytes, .dtype = TUTTI_U8};
}

/* Reduces both integers of the verdict. */
static tutti_status reduce_verdict(tutti__mpi_engine *e, tutti_redop redop)
{
    tutti__mpi_call call = {.kind = TUTTI__OP_ALL_REDUCE,
                            .comm = e->comm,
                            .src = e->verdict,
                            .dst = e->verdict,
                            .count = 2,
                            .dtype = TUTTI_I64,
                            .redop = redop};

    return tutti__mpi_run_call(e, &call);
}

/* Names two calls that differ, the same two on all ranks. */
static tutti_status fail_different(tutti__mpi_engine *e)
{
    tutti__comm *comm = e->base.comm;
    tutti__mpi_call gather =
        tutti__mpi_bytes_call(e, TUTTI__OP_ALL_GATHER, &e->mine, e->signatures, sizeof e->mine);
    int r;

    e->mine = e->op->signature;
    TUTTI_TRY(tutti__mpi_run_call(e, &gather));
    for (r = 1; r < comm->size - 1 && tutti__signature_equal(&e->signatures[r], &e->signatures[0]);)
        r++;
    return tutti__comm_fail_different(comm, 0, &e->signatures[0], r, &e->signatures[r]);
}

tutti_status tutti__mpi_agree(tutti__mpi_engine *e)
{
    int64_t hash = (int64_t)tutti__hash64(&e->op->signature, sizeof e->op->signature);

    e->verdict[0] = hash;
    e->verdict[1] = ~hash;
    TUTTI_TRY(reduce_verdict(e, TUTTI_MIN));
    e->moving = true;
    if (e->verdict[0] != ~e->verdict[1]) /* the minimum differs from the maximum */
        return fail_different(e);
    for (int r = 0; r < e->base.comm->size; r++)
        atomic_store_explicit(&e->base.comm->peers[r].seen, e->op->signature.sequence + 1,
                              memory_order_relaxed);
    return TUTTI_OK;
}

/* 1 + from * size + to, if this rank, `to`, expects another number of elements than `from` sends; 0: none. */
static int64_t judge_counts(const tutti__mpi_engine *e)
{
    int64_t size = e->base.comm->size, verdict = 0;

    for (int64_t from = 0; from < size; from++)
        if (e->counts[size + from] != (int64_t)e->op->dst_counts[from])
            verdict = 1 + from * size + e->base.comm->rank;
    return verdict;
}

/* The receiver of the two tells all ranks. */
static tutti_status fail_counts(tutti__mpi_engine *e, int from, int to)
{
    tutti__comm *comm = e->base.comm;
    tutti__mpi_call tell =
        tutti__mpi_bytes_call(e, TUTTI__OP_BROADCAST, e->verdict, e->verdict, sizeof e->verdict);

    e->verdict[0] = e->counts[comm->size + from];
    e->verdict[1] = (int64_t)e->op->dst_counts[from];
    tell.root = to;
    TUTTI_TRY(tutti__mpi_run_call(e, &tell));
    return tutti__comm_check_sent(comm, &e->op->signature, from, to, (size_t)e->verdict[0],
                                  (size_t)e->verdict[1]);
}

tutti_status tutti__mpi_agree_on_counts(tutti__mpi_engine *e, size_t *largest_p)
{
    int size = e->base.comm->size;
    tutti__mpi_call exchange = tutti__mpi_bytes_call(e, TUTTI__OP_ALL_TO_ALL, e->counts,
                                                     e->counts + size, sizeof *e->counts);

    for (int r = 0; r < size; r++)
        e->counts[r] = (int64_t)tutti__piece_out(e->op, e->base.comm->rank, r).count;
    TUTTI_TRY(tutti__mpi_run_call(e, &exchange));
    e->verdict[0] = judge_counts(e);
    e->verdict[1] = 0;
    for (int r = 0; r < size; r++)
        if (e->counts[size + r] > e->verdict[1])
            e->verdict[1] = e->counts[size + r];
    TUTTI_TRY(reduce_verdict(e, TUTTI_MAX));
    *largest_p = (size_t)e->verdict[1];
    if (e->verdict[0] == 0)
        return TUTTI_OK;
    return fail_counts(e, (int)((e->verdict[0] - 1) / size), (int)((e->verdict[0] - 1) % size));
}
