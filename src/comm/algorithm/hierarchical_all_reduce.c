/* hierarchical_all_reduce.c -- each rank sums its shard over its host's ranks, chunk by chunk, while earlier chunks are
 * reduced between the hosts, and copies each result into the memory of all ranks of its host.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"
#include "comm/algorithm/tcp_direct.h"

/* The position of a part of the shard in the block. */
static tutti__piece inside(tutti__piece shard, tutti__piece part)
{
    return (tutti__piece){shard.at + part.at, part.count};
}

/* This host's sum, into this rank's memory. */
static void sum_part(const tutti__hierarchy_op *o, tutti__piece part)
{
    if (o->h->host->size > 1 || tutti__hierarchy_divides(o))
        tutti__hierarchy_sum(o, 0, part,
                             tutti__hierarchy_piece(o, o->local_rank, 0) + part.at * o->element);
}

static void copy_part(const tutti__hierarchy_op *o, tutti__piece part)
{
    tutti__hierarchy_copy(o, 0, part,
                          tutti__hierarchy_piece(o, o->local_rank, 0) + part.at * o->element);
}

static tutti_status reduce_shard(const tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;
    tutti__piece shard = tutti__hierarchy_shard(o);
    tutti__direct d = {.tcp = h->tcp,
                       .op = o->op,
                       .first = o->first == 0,
                       .ranks = h->rail,
                       .n = h->n_hosts,
                       .me = h->host_of[h->comm->rank],
                       .p = tutti__hierarchy_piece(o, o->local_rank, 0) + shard.at * o->element,
                       .count = shard.count,
                       .redop = tutti__hierarchy_redop(o),
                       .divisor = (size_t)h->comm->size};

    const tutti__tcp_rounds run = tutti__hierarchy_rounds(o, d.p, d.count);

    if (!tutti__coll_is_direct(run.algorithm)) {
        sum_part(o, shard);
        TUTTI_TRY(tutti__tcp_run_rounds(&run));
        copy_part(o, shard);
        return TUTTI_OK;
    }
    if (tutti__tcp_all_reduce_is_small(&d)) {
        sum_part(o, shard);
        TUTTI_TRY(tutti__tcp_all_reduce_small(&d));
        copy_part(o, shard);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti__direct_start(&d));
    while (d.complete < d.n_chunks) {
        if (tutti__direct_may_send(&d)) {
            sum_part(o, inside(shard, tutti__direct_chunk(&d, d.sent)));
            tutti__direct_send(&d);
        } else if (tutti__direct_may_reduce(&d)) {
            tutti__direct_reduce(&d);
        } else if (tutti__direct_is_complete(&d)) {
            copy_part(o, inside(shard, tutti__direct_chunk(&d, d.complete++)));
        } else {
            TUTTI_TRY(tutti__tcp_wait(h->tcp));
        }
    }
    return tutti__tcp_finish(h->tcp);
}

tutti_status tutti__hierarchical_all_reduce(tutti__hierarchy_op *o)
{
    o->buffer = o->op->dst;
    o->n_pieces = 1;
    o->in = o->out = true;
    TUTTI_TRY(tutti__hierarchy_begin(o));
    while (o->first < o->count) {
        TUTTI_TRY(tutti__hierarchy_enter_block(o));
        if (tutti__hierarchy_moves_shard(o))
            TUTTI_TRY(reduce_shard(o));
        TUTTI_TRY(tutti__hierarchy_leave_block(o));
    }
    return TUTTI_OK;
}
