/* hierarchical_reduce_scatter.c -- for each rank of another host, one rank of this host sums the host's contributions and
 * sends the sum; the receiver reduces the sums of all hosts.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"
#include "comm/algorithm/rounds_act.h"

/* In scratch: this host's sum for each rank, then the sums received from each host. */
typedef struct sums {
    const tutti__hierarchy_op *o;
    char *base;
} sums;

static char *sum_at(const sums *s, int i)
{
    return s->base + (size_t)i * s->o->most * s->o->element;
}

/* This host's sum for rank q. */
static char *sum_for(const sums *s, int q)
{
    char *sum = sum_at(s, q);

    tutti__hierarchy_sum(s->o, (size_t)q, (tutti__piece){0, s->o->n}, sum);
    return sum;
}

static char *sum_from(const sums *s, int host)
{
    return sum_at(s, s->o->h->comm->size + host);
}

/* Reduces the hosts' sums, in the order of an all_reduce: of many hosts the common one. */
static void reduce_sums(const sums *s, const char *own)
{
    const tutti__hierarchy_op *o = s->o;
    const tutti__hierarchy *h = o->h;
    const void **src = h->tcp->src;
    void *dst = (char *)o->op->dst + o->first * o->element;
    tutti_redop redop = tutti__hierarchy_redop(o);

    for (int i = 0; i < h->n_hosts; i++)
        src[i] = i == h->host_of[h->comm->rank] ? own : sum_from(s, i);
    if (h->n_hosts > TUTTI__TUNER_DIRECT) {
        tutti__coll call = tutti__coll_of(&o->op->signature, h->n_hosts);

        call.redop = redop;
        tutti__tuner_place(&h->tuner, &call);
        tutti__coll_sum(&call, (size_t)h->comm->size, dst, src, o->n);
    } else if (redop == TUTTI_AVG)
        tutti__average(o->dtype, (size_t)h->comm->size, dst, src, (size_t)h->n_hosts, o->n);
    else
        tutti__reduce(o->dtype, redop, &dst, 1, src, (size_t)h->n_hosts, o->n);
}

static tutti_status move_block(const sums *s)
{
    const tutti__hierarchy_op *o = s->o;
    const tutti__hierarchy *h = o->h;
    const char *own;

    TUTTI_TRY(tutti__tcp_start(
        h->tcp, &(tutti__schedule){.op = o->op,
                                   .first = o->first == 0,
                                   .bytes = o->n_pieces * tutti__signature_bytes(&o->op->signature),
                                   .ranks = h->partners,
                                   .n_ranks = h->n_partners,
                                   .n_messages = 1}));
    for (int i = 0; i < h->n_partners; i++)
        if (h->served_by[i])
            tutti__tcp_recv(h->tcp, h->partners[i], sum_from(s, h->host_of[h->partners[i]]),
                            o->n * o->element);
    for (int i = 0; i < h->n_partners; i++)
        if (h->serves[i]) {
            tutti__tcp_send(h->tcp, h->partners[i], sum_for(s, h->partners[i]), o->n * o->element);
            TUTTI_TRY(tutti__tcp_push(h->tcp));
        }
    own = sum_for(s, h->comm->rank);
    TUTTI_TRY(tutti__tcp_finish(h->tcp));
    reduce_sums(s, own);
    return TUTTI_OK;
}

tutti_status tutti__hierarchical_reduce_scatter(tutti__hierarchy_op *o)
{
    tutti__hierarchy *h = o->h;
    sums s = {.o = o};

    o->buffer = (char *)(uintptr_t)o->op->src;
    o->n_pieces = (size_t)h->comm->size;
    o->in = true;
    TUTTI_TRY(tutti__hierarchy_begin(o));
    s.base = tutti__tcp_scratch(h->tcp, (o->n_pieces + (size_t)h->n_hosts) * o->most * o->element);
    if (!s.base)
        return tutti__comm_status(h->comm);
    while (o->first < o->count) {
        TUTTI_TRY(tutti__hierarchy_enter_block(o));
        TUTTI_TRY(move_block(&s));
        TUTTI_TRY(tutti__hierarchy_leave_block(o));
    }
    return TUTTI_OK;
}
