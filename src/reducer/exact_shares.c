/* exact_shares.c -- means over logical shards of which each rank keeps a share (ZeRO-2).   SPDX-License-Identifier: MIT
 *
 *     block   f32   | a bucket of the current shard: until it is added; at the end the means of this rank's share
 *     sums    i64   | a bucket: from its first gradient to its reduction; then this rank's share, until the end of the step
 *
 * A bucket is buffers, of which all ranks need the means, a stretch that is divided, and its rest, of less than an element for each
 * rank. Both memories are addresses, and parts of them come and go (keep.c). */
#include "reducer/exact.h"

#include "reducer/reducer.h"

#include <stdlib.h>

/* ---- Memory ---- */

tutti_status tutti__exact_shares_alloc(tutti_reducer *r)
{
    tutti__exact *s = r->exact;
    const size_t bytes = (r->bytes + 64) * (size_t)(s->bits / 32);

    if (s->late)
        return TUTTI_OK;
    if (!s->sums_here)
        s->sums_here = tutti__alloc(2 * (r->n_buckets + 1));
    if (!s->sums_here)
        return TUTTI_ERR_MEMORY;
    s->late_here = s->sums_here + r->n_buckets + 1;
    if (!s->sums)
        TUTTI_TRY(tutti__keep_alloc(r, bytes, false, &s->sums));
    return tutti__keep_alloc(r, bytes, false, &s->late);
}

void tutti__exact_shares_free(const tutti_reducer *r)
{
    const tutti__exact *s = r->exact;
    const size_t bytes = (r->bytes + 64) * (size_t)(s->bits / 32);

    if (s->sums)
        tutti__keep_free(r, s->sums, bytes);
    if (s->late)
        tutti__keep_free(r, s->late, bytes);
    free(s->sums_here);
}

/* Cannot fail when it gives back. */
static tutti_status change(const tutti_reducer *r, const tutti__bucket *b, bool late, unsigned want)
{
    const tutti__exact *s = r->exact;

    return tutti__parts_change(r, b, tutti__sums_at(s, late ? s->late : s->sums, b->offset),
                               (size_t)(s->bits / 8),
                               (late ? s->late_here : s->sums_here) + (b - r->buckets), want);
}

void tutti__exact_shares_drop(tutti_reducer *r, bool gradients)
{
    if (!r->exact->late)
        return;
    for (tutti__bucket *b = r->buckets; b < r->buckets + r->n_buckets; b++) {
        (void)!change(r, b, false, 0);
        (void)!change(r, b, true, 0);
        if (gradients)
            (void)!tutti__parts_change(r, b, r->block + b->offset, sizeof(float), &b->here, 0);
    }
}

tutti_status tutti__exact_shares_bring(const tutti_reducer *r, const tutti__bucket *b, bool late)
{
    return change(r, b, late, TUTTI__ALL_PARTS);
}

void tutti__exact_shares_taken(const tutti_reducer *r, tutti__bucket *b)
{
    if (++b->taken == b->info.n)
        (void)!tutti__parts_change(r, b, r->block + b->offset, sizeof(float), &b->here, 0);
}

void tutti__reducer_divide(tutti_reducer *r, size_t bucket, const float *p, size_t count,
                           bool copies)
{
    tutti__bucket *b = &r->buckets[bucket];
    const size_t size = (size_t)tutti_group_size(r->group), n = b->view.buf.count;
    const size_t rank = (size_t)tutti_group_rank(r->group), share = p ? count / size : 0;
    const size_t first = p ? (size_t)(p - (const float *)b->view.buf.p) : n;
    size_t begin = first + rank * share, end = begin + share, tail = first + size * share;

    b->first = first;
    b->share = share;
    r->exact->copies = copies && size > 1;
    if (r->exact->copies && rank > 0)
        begin -= share;
    else if (r->exact->copies)
        tail -= share;
    tutti__parts_set(b, first, begin, end, tail);
}

const void *tutti__reducer_sums(const tutti_reducer *r)
{
    return r->exact && r->kept_in_part ? r->exact->sums : NULL;
}

/* ---- On the group's thread ---- */

/* This rank's share goes to the next rank, and that of the previous one comes. */
static tutti_status exchange_copies(const tutti_reducer *r, const tutti__bucket *b,
                                    unsigned char *shares, tutti_buf mine)
{
    const int size = tutti_group_size(r->group), rank = tutti_group_rank(r->group);
    const int previous = (rank + size - 1) % size;
    tutti_buf copy = mine;
    tutti_work *work = NULL;
    tutti_status status, sent;

    copy.p = shares + (size_t)previous * b->share * (size_t)(r->exact->bits / 8);
    TUTTI_TRY(
        tutti_send(r->group, tutti_buf_const(mine), (rank + 1) % size, TUTTI__TAG_COPIES, &work));
    status = tutti_recv(r->group, copy, previous, TUTTI__TAG_COPIES, NULL);
    sent = tutti_work_wait(work);
    return status == TUTTI_OK ? sent : status;
}

tutti_status tutti__exact_shares_sum(const tutti_reducer *r, const tutti__bucket *b, bool late)
{
    const tutti__exact *s = r->exact;
    const size_t each = (size_t)(s->bits / 8), n = b->view.buf.count;
    const size_t divided = b->share * (size_t)tutti_group_size(r->group);
    const tutti_dtype dtype = s->bits == 64 ? TUTTI_I64 : TUTTI_I32;
    unsigned char *p = tutti__sums_at(s, late ? s->late : s->sums, b->offset);
    unsigned char *shares = p + b->first * each;
    tutti_buf mine = {shares + (size_t)tutti_group_rank(r->group) * b->share * each, b->share,
                      dtype, NULL};

    if (b->share > 0)
        TUTTI_TRY(tutti_reduce_scatter(r->group, (tutti_const_buf){shares, divided, dtype, NULL},
                                       mine, TUTTI_SUM, NULL));
    if (b->share > 0 && s->copies && !r->planned)
        TUTTI_TRY(exchange_copies(r, b, shares, mine));
    (void)!change(r, b, late, TUTTI__KEPT_PARTS);
    if (b->first > 0)
        TUTTI_TRY(
            tutti_all_reduce(r->group, (tutti_buf){p, b->first, dtype, NULL}, TUTTI_SUM, NULL));
    if (b->first + divided == n)
        return TUTTI_OK;
    return tutti_all_reduce(
        r->group, (tutti_buf){shares + divided * each, n - b->first - divided, dtype, NULL},
        TUTTI_SUM, NULL);
}

tutti_status tutti__exact_shares_join(const tutti_reducer *r, const tutti__bucket *b)
{
    const tutti__exact *s = r->exact;
    const size_t each = (size_t)(s->bits / 8);
    unsigned char *sums = tutti__sums_at(s, s->sums, b->offset);
    const unsigned char *late = tutti__sums_at(s, s->late, b->offset);

    for (int k = 0; k < TUTTI__PARTS; k += 2) {
        const size_t at = b->parts.at[k], n = b->parts.at[k + 1] - at;

        TUTTI_TRY(s->stream->ops->flat->fixed_join(s->stream, sums + at * each, late + at * each, n,
                                                   &(tutti__fixed){.bits = s->bits}));
    }
    return change(r, b, true, 0);
}

tutti_status tutti__exact_shares_each(const tutti_reducer *r, size_t i,
                                      tutti_status (*f)(const tutti_reducer *r, size_t i, size_t at,
                                                        size_t n))
{
    const tutti__gradient *g = &r->gradients[i];
    const tutti__bucket *b = &r->buckets[g->bucket];
    const size_t begin = (g->offset - b->offset) / sizeof(float);
    size_t low, high;

    for (int k = 0; k < 3; k++)
        if (tutti__parts_within(b, k, begin, begin + g->count, &low, &high))
            TUTTI_TRY(f(r, i, low - begin, high - low));
    return TUTTI_OK;
}

/* Not negative, so as integers they have the same order. */
tutti_status tutti__exact_shares_largest(const tutti_reducer *r)
{
    const tutti__exact *s = r->exact;
    tutti_status status;

    tutti__step_label(r, 0);
    status =
        tutti_all_reduce(r->group, TUTTI_BUF(s->seen + r->n + 1, r->n, TUTTI_I32), TUTTI_MAX, NULL);
    tutti__step_unlabel(r);
    return status;
}
