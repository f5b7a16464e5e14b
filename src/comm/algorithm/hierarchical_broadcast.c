/* hierarchical_broadcast.c -- on root's host each rank sends its shard of root's memory to the other hosts; there each rank
 * copies what it receives into the memory of all ranks of its host.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"

#include <string.h>

enum { CHUNK_BYTES = 256 << 10 };

static tutti__piece chunk_of(tutti__piece shard, size_t chunk, size_t k)
{
    size_t left = shard.count - k * chunk;

    return (tutti__piece){shard.at + k * chunk, left < chunk ? left : chunk};
}

static tutti_status move_shard(const tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;
    int root = (int)o->op->signature.root, source = h->rail[h->host_of[root]];
    bool sends = h->host_of[root] == h->host_of[h->comm->rank];
    tutti__piece shard = tutti__hierarchy_shard(o);
    size_t chunk = CHUNK_BYTES / o->element, n_chunks = (shard.count + chunk - 1) / chunk;
    char *p = tutti__hierarchy_piece(o, sends ? h->local_rank_of[root] : o->local_rank, 0),
         *part_of_p = p + shard.at * o->element;
    const tutti__tcp_rounds run = tutti__hierarchy_rounds(o, part_of_p, shard.count);

    if (!tutti__coll_is_direct(run.algorithm)) {
        TUTTI_TRY(tutti__tcp_run_rounds(&run));
        if (!sends)
            tutti__hierarchy_copy(o, 0, shard, part_of_p);
        return TUTTI_OK;
    }

    TUTTI_TRY(tutti__tcp_start(
        h->tcp, &(tutti__schedule){.op = o->op,
                                   .first = o->first == 0,
                                   .bytes = tutti__signature_bytes(&o->op->signature),
                                   .ranks = h->rail,
                                   .n_ranks = h->n_hosts,
                                   .n_messages = n_chunks}));
    for (size_t k = 0; k < n_chunks; k++) {
        tutti__piece part = chunk_of(shard, chunk, k);

        for (int i = 0; sends && i < h->n_hosts; i++)
            tutti__tcp_send(h->tcp, h->rail[i], p + part.at * o->element, part.count * o->element);
        if (!sends)
            tutti__tcp_recv(h->tcp, source, p + part.at * o->element, part.count * o->element);
    }
    for (size_t k = 0; !sends && k < n_chunks; k++) {
        tutti__piece part = chunk_of(shard, chunk, k);

        while (tutti__tcp_arrived(h->tcp, source) <= k)
            TUTTI_TRY(tutti__tcp_wait(h->tcp));
        tutti__hierarchy_copy(o, 0, part, p + part.at * o->element);
    }
    return tutti__tcp_finish(h->tcp);
}

tutti_status tutti__hierarchical_broadcast(tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;
    int rank = h->comm->rank, root = (int)o->op->signature.root;
    bool reads_root = rank != root && h->host_of[root] == h->host_of[rank];

    o->buffer = o->op->dst;
    o->n_pieces = 1;
    o->in = rank == root;
    o->out = true;
    TUTTI_TRY(tutti__hierarchy_begin(o));
    while (o->first < o->count) {
        TUTTI_TRY(tutti__hierarchy_enter_block(o));
        if (reads_root)
            memcpy(tutti__hierarchy_piece(o, o->local_rank, 0),
                   tutti__hierarchy_piece(o, h->local_rank_of[root], 0), o->n * o->element);
        if (tutti__hierarchy_moves_shard(o))
            TUTTI_TRY(move_shard(o));
        TUTTI_TRY(tutti__hierarchy_leave_block(o));
    }
    return TUTTI_OK;
}
