/* zero_reduce.c -- ZeRO: a bucket's gradients become the mean, of which each rank keeps its share.   SPDX-License-Identifier: MIT
 *
 * Sums are in the order of the ranks, as in all_reduce, whoever has which share: so the bits are those of training without ZeRO.
 *
 *     4 ranks     | sum of rank 0 | of rank 1 | of rank 2 | of rank 3 |      reduce_scatter
 *     2 replicas  | share of ranks 0 and 2    | of ranks 1 and 3      |      then each rank sends its sum to all that keep it
 *
 * A reduce_scatter among the ranks that share, and an all_reduce of the shares between replicas, sends as much, but adds in another order.
 *
 * With opts.reduce_dtype all of that is done to the bucket rounded to 16 bits, as by the hooks for plain DDP (reducer/hooks.c), at its
 * beginning; the share then goes to its place. */
#include "ddp/zero.h"

#include "comm/comm.h"
#include "device/device.h"

#include <assert.h>
#include <stdlib.h>

/* How often its gradient was dropped, by zero_grad of the root or of a submodule. Never 0. */
static uint64_t zero_grads(const tutti__parameter *parameter)
{
    return *parameter->round + parameter->zeroed;
}

/* STATE if backward added to a gradient that was sharded already; else marks the bucket's gradients as sharded. */
static tutti_status check(const tutti_zero *zero, const tutti_bucket *b)
{
    if (b->buf.dtype != TUTTI_F32)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "zero: \"%s\" is %s; only F32 can be sharded",
                           b->gradients[0].name, tutti_dtype_name(b->buf.dtype));
    for (size_t k = 0; k < b->n; k++) {
        const size_t i = b->gradients[k].parameter;
        const tutti__parameter *p = &zero->root->parameters.p[i]->parameter;

        if (!tutti__has_gradient(p))
            continue;
        if (zero->shared[i] == zero_grads(p))
            return tutti__fail(
                TUTTI_ERR_STATE,
                "zero: the gradient of \"%s\" is sharded already, and another backward cannot "
                "add to it; call zero_grad after each step, and accumulate between "
                "tutti_ddp_pause and tutti_ddp_resume",
                b->gradients[k].name);
        zero->shared[i] = zero_grads(p);
    }
    return TUTTI_OK;
}

/* Stage 3 knows its buckets since construction, and the main thread reads them during backward. */
static tutti_status note(tutti_zero *zero, const tutti_bucket *b)
{
    if (zero->stage < 3)
        return tutti__zero_note(zero, b->index, b->buf.p, b->buf.count);
    assert(b->index < zero->n_noted && zero->buckets[b->index].p == b->buf.p &&
           zero->buckets[b->index].count == b->buf.count);
    return TUTTI_OK;
}

/* ---- To all replicas ---- */

static tutti_status make_room(tutti_zero *zero, size_t n)
{
    const tutti_ctx *cx = zero->root->module->cx;

    if (n <= zero->n_sent)
        return TUTTI_OK;
    cx->device_ops->free(cx->device, zero->sent);
    zero->n_sent = 0;
    zero->sent = cx->device_ops->alloc(cx->device, n * sizeof *zero->sent, false);
    if (!zero->sent)
        return TUTTI_ERR_MEMORY;
    zero->n_sent = n;
    return TUTTI_OK;
}

/* How many elements this rank sends to, or gets from, each rank: share s consists of the sums of ranks s * replicas and those after. */
static void count_sums(const tutti_zero *zero, size_t n, size_t *to, size_t *from)
{
    const int sharers = zero->sharding.peers.size, size = sharers * zero->replicas;
    const int rank = tutti_group_rank(zero->ddp->group), share = zero->sharding.peers.rank;

    for (int r = 0; r < size; r++) {
        to[r] = r % sharers == rank / zero->replicas ? n : 0;
        from[r] = r / zero->replicas == share ? n : 0;
    }
}

/* n means at `mine`, and those of the other ranks of its share, to all that keep it. */
static tutti_status send_sums(tutti_zero *zero, const tutti_buf *mine, tutti_buf share)
{
    const size_t size = (size_t)tutti_group_size(zero->ddp->group), n = mine->count;
    const size_t bytes = n * tutti_dtype_size(mine->dtype);
    size_t *to = tutti__alloc(2 * size * sizeof *to);
    tutti_status status = to ? make_room(zero, share.count) : TUTTI_ERR_MEMORY;

    for (int k = 0; k < zero->replicas && status == TUTTI_OK; k++)
        status = tutti__copy(tutti__stream_or_cpu(mine->stream),
                             (char *)zero->sent + (size_t)k * bytes, mine->p, bytes);
    if (status == TUTTI_OK) {
        count_sums(zero, n, to, to + size);
        status = tutti_all_to_all_v(
            zero->ddp->group, (tutti_const_buf){zero->sent, share.count, mine->dtype, mine->stream},
            to, share, to + size, NULL);
    }
    free(to);
    return status;
}

/* ---- In 16 bits ---- */

/* n elements of a bucket from `at` on, which are at its beginning in 16 bits, become F32 at their place. It overlaps them if `at` is
 * 0, or less than n. */
static tutti_status widen(const tutti_zero *zero, const tutti_bucket *b, size_t at, size_t n)
{
    tutti_stream *stream = tutti__stream_or_cpu(b->buf.stream);
    float *p = b->buf.p;

    if (zero->wire == TUTTI_F32 || n == 0)
        return TUTTI_OK;
    assert(at == 0 || at >= n);
    if (at > 0)
        TUTTI_TRY(tutti__copy(stream, p + at, (uint16_t *)b->buf.p + at, n * sizeof(uint16_t)));
    return stream->ops->flat->widen(stream, p + at, n, zero->wire);
}

/* `n` elements from `at` on, as they are sent. */
static tutti_buf part_of(const tutti_zero *zero, const tutti_bucket *b, size_t at, size_t n)
{
    char *p = b->buf.p;

    return (tutti_buf){p + at * tutti_dtype_size(zero->wire), n, zero->wire, b->buf.stream};
}

tutti_status tutti__zero_reduce(void *self, tutti_group *group, const tutti_bucket *b)
{
    tutti_zero *zero = self;
    tutti_stream *stream = tutti__stream_or_cpu(b->buf.stream);
    size_t share, n, begin, tail, rest;
    tutti_buf mine;

    TUTTI_TRY(check(zero, b));
    TUTTI_TRY(note(zero, b));
    share = tutti__zero_share(zero, &zero->buckets[b->index]);
    begin = share * (size_t)zero->sharding.peers.rank;
    tail = share * (size_t)zero->sharding.peers.size;
    rest = b->buf.count - tail;
    n = share / (size_t)zero->replicas;
    mine = part_of(zero, b, n * (size_t)tutti_group_rank(group), n);
    if (zero->wire != TUTTI_F32)
        TUTTI_TRY(stream->ops->flat->narrow(stream, b->buf.p, b->buf.count, zero->wire));
    TUTTI_TRY(tutti_reduce_scatter(group, tutti_buf_const(part_of(zero, b, 0, tail)), mine,
                                   TUTTI_AVG, NULL));
    /* no peer reads this rank's contribution any more: the call ends with that */
    if (zero->replicas > 1)
        TUTTI_TRY(send_sums(zero, &mine, part_of(zero, b, begin, share)));
    if (rest > 0)
        TUTTI_TRY(tutti_all_reduce(group, part_of(zero, b, tail, rest), TUTTI_AVG, NULL));
    TUTTI_TRY(widen(zero, b, tail, rest));
    TUTTI_TRY(widen(zero, b, begin, share));
    if (zero->stage >= 2)
        tutti__reducer_keep(zero->ddp->reducer, b->index, begin, begin + share, tail);
    return TUTTI_OK;
}
