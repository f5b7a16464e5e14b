/* hierarchical_all_gather.c -- each rank's piece goes once to each other host, to one rank there, which copies it into the
 * memory of all ranks of its host.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"

#include <string.h>

/* Copies pieces that have arrived from the ranks that this one serves; returns how many. */
static int copy_arrived(const tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;
    int n = 0;

    for (int i = 0; i < h->n_partners; i++) {
        size_t q = (size_t)h->partners[i];

        if (!h->serves[i] || h->arrived[i] || tutti__tcp_arrived(h->tcp, h->partners[i]) == 0)
            continue;
        tutti__hierarchy_copy(o, q, (tutti__piece){0, o->n},
                              tutti__hierarchy_piece(o, o->local_rank, q));
        h->arrived[i] = true;
        n++;
    }
    return n;
}

static tutti_status move_block(const tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;
    const char *own = (const char *)o->op->src + o->first * o->element;
    int n_left = 0;

    TUTTI_TRY(tutti__tcp_start(
        h->tcp, &(tutti__schedule){.op = o->op,
                                   .first = o->first == 0,
                                   .bytes = o->n_pieces * tutti__signature_bytes(&o->op->signature),
                                   .ranks = h->partners,
                                   .n_ranks = h->n_partners,
                                   .n_messages = 1}));
    for (int i = 0; i < h->n_partners; i++) {
        int q = h->partners[i];

        h->arrived[i] = false;
        n_left += h->serves[i];
        if (h->served_by[i])
            tutti__tcp_send(h->tcp, q, own, o->n * o->element);
        if (h->serves[i])
            tutti__tcp_recv(h->tcp, q, tutti__hierarchy_piece(o, o->local_rank, (size_t)q),
                            o->n * o->element);
    }
    TUTTI_TRY(tutti__tcp_push(h->tcp));
    tutti__hierarchy_copy(o, (size_t)h->comm->rank, (tutti__piece){0, o->n}, own);
    while ((n_left -= copy_arrived(o)) > 0)
        TUTTI_TRY(tutti__tcp_wait(h->tcp));
    return tutti__tcp_finish(h->tcp);
}

tutti_status tutti__hierarchical_all_gather(tutti__hierarchy_op *o)
{
    o->buffer = o->op->dst;
    o->n_pieces = (size_t)o->h->comm->size;
    o->out = true;
    TUTTI_TRY(tutti__hierarchy_begin(o));
    while (o->first < o->count) {
        TUTTI_TRY(tutti__hierarchy_enter_block(o));
        TUTTI_TRY(move_block(o));
        TUTTI_TRY(tutti__hierarchy_leave_block(o));
    }
    return TUTTI_OK;
}
