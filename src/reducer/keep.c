/* keep.c -- memory of which a rank keeps only a part after its reduction: gradients, and sums over shards (ZeRO-2).
 * SPDX-License-Identifier: MIT
 *
 * It stays where it is: only its pages go, and come again before the first write to the bucket, with any contents. It is not
 * in the group's memory: pages that processes share come and go at a much higher price, in all of them, and only small ones. */
#include "reducer/internal.h"

#include "comm/comm.h"
#include "device/planned/planned.h"

#include <string.h>

tutti_status tutti__keep_alloc(const tutti_reducer *r, size_t bytes, bool open, unsigned char **p_p)
{
    if (r->stream)
        *p_p = r->stream->ops->reserve(r->stream->device, bytes);
    else
        *p_p = r->planned ? tutti__planned_reserve(bytes) : tutti__memory_reserve(bytes);
    if (!*p_p)
        return TUTTI_ERR_MEMORY;
    return open && !r->planned && !r->stream ? tutti__memory_open(*p_p, bytes) : TUTTI_OK;
}

void tutti__keep_free(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    if (r->stream && p)
        r->stream->ops->unreserve(r->stream->device, p, bytes);
    else if (r->planned)
        (void)tutti__planned_free(p);
    else if (!r->stream)
        tutti__memory_unreserve(p, bytes);
}

/* ---- Parts ---- */

void tutti__parts_set(tutti__bucket *b, size_t head, size_t begin, size_t end, size_t tail)
{
    b->parts = (tutti__bucket_parts){{0, head, begin, end, tail, b->view.buf.count}};
}

bool tutti__parts_within(const tutti__bucket *b, int k, size_t begin, size_t end, size_t *low_p,
                         size_t *high_p)
{
    const size_t *part = &b->parts.at[2 * (size_t)k];

    *low_p = begin > part[0] ? begin : part[0];
    *high_p = end < part[1] ? end : part[1];
    return *low_p < *high_p;
}

/* Bytes that nobody reads until they are brought. Host memory stays accessible, for programs that look at it. */
static void discard(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    if (r->stream)
        r->stream->ops->give_back(r->stream->device, p, bytes);
    else if (r->planned)
        tutti__planned_give_back(p, bytes);
    else
        tutti__memory_discard(p, bytes);
}

static tutti_status back(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    if (r->stream)
        return r->stream->ops->back(r->stream->device, p, bytes, false);
    if (!r->planned)
        return tutti__memory_back(p, bytes, false);
    tutti__planned_touch(p, bytes);
    return TUTTI_OK;
}

tutti_status tutti__parts_change(const tutti_reducer *r, const tutti__bucket *b, unsigned char *p,
                                 size_t element, unsigned char *here, unsigned want)
{
    for (unsigned k = 0; k < TUTTI__PARTS; k++) {
        unsigned char *part = p + b->parts.at[k] * element;
        const size_t bytes = (b->parts.at[k + 1] - b->parts.at[k]) * element;
        const unsigned bit = 1U << k;

        if ((want & bit) == (*here & bit))
            continue;
        if (want & bit)
            TUTTI_TRY(back(r, part, bytes));
        else
            discard(r, part, bytes);
        *here = (unsigned char)(*here ^ bit);
    }
    return TUTTI_OK;
}

/* ---- Gradients ---- */

void tutti__keep_begin(tutti_reducer *r, tutti__bucket *b)
{
    b->here = TUTTI__ALL_PARTS;
    if (!r->stream || !r->kept_in_part)
        return;
    b->here = 0;
    b->parts.at[TUTTI__PARTS] =
        b->span / tutti_dtype_size(r->gradients[r->order[b->info.first]].dtype);
}

static unsigned char *at(const tutti_reducer *r, const tutti__bucket *b)
{
    return r->block + b->offset;
}

static size_t element_of(const tutti__bucket *b)
{
    return tutti_dtype_size(b->view.buf.dtype);
}

void tutti__reducer_keep(tutti_reducer *r, size_t bucket, size_t begin, size_t end, size_t tail)
{
    tutti__bucket *b = &r->buckets[bucket];
    const size_t element = element_of(b);

    if (b->parts.at[TUTTI__PARTS] == 0 && !r->planned && !r->stream) {
        tutti__memory_together(at(r, b), begin * element);
        tutti__memory_together(at(r, b) + begin * element, (end - begin) * element);
        tutti__memory_together(at(r, b) + end * element, (tail - end) * element);
    }
    tutti__parts_set(b, 0, begin, end, tail);
    if (!r->planned) /* gives back, which cannot fail */
        (void)!tutti__parts_change(r, b, at(r, b), element, &b->here, TUTTI__KEPT_PARTS);
}

/* A hook reads all of a bucket. */
static tutti_status clear_padding(const tutti_reducer *r, const tutti__bucket *b)
{
    tutti_stream *stream = tutti__stream_or_cpu(r->stream);

    for (size_t place = b->info.first; place < b->info.first + b->info.n; place++) {
        const tutti__gradient *g = &r->gradients[r->order[place]];
        const size_t end = g->offset + g->count * tutti_dtype_size(g->dtype);
        const size_t next = place + 1 < b->info.first + b->info.n
                                ? r->gradients[r->order[place + 1]].offset
                                : b->offset + b->span;

        if (end < next)
            TUTTI_TRY(stream->ops->zero(stream, r->block + end, next - end));
    }
    return TUTTI_OK;
}

/* A local gradient, for the first time: it stays. */
static tutti_status bring_local(const tutti_reducer *r, tutti__gradient *g)
{
    const size_t bytes = (g->count * tutti_dtype_size(g->dtype) + 63) / 64 * 64;

    if (g->here || !r->stream || !r->kept_in_part)
        return TUTTI_OK;
    TUTTI_TRY(back(r, r->block + g->offset, bytes));
    g->here = true;
    return r->stream->ops->zero(r->stream, r->block + g->offset, bytes);
}

tutti_status tutti__reducer_bring(tutti_reducer *r, size_t i)
{
    tutti__gradient *g = &r->gradients[i];
    tutti__bucket *b = g->local ? NULL : &r->buckets[g->bucket];

    if (!b)
        return bring_local(r, g);
    if (!r->kept_in_part || b->here == TUTTI__ALL_PARTS)
        return TUTTI_OK;
    TUTTI_TRY(tutti__parts_change(r, b, at(r, b), element_of(b), &b->here, TUTTI__ALL_PARTS));
    return r->exact || r->planned ? TUTTI_OK : clear_padding(r, b);
}

void tutti__keep_planned(const tutti_reducer *r, tutti__bucket *b)
{
    if (r->kept_in_part && !r->exact && r->planned)
        (void)!tutti__parts_change(r, b, at(r, b), element_of(b), &b->here, TUTTI__KEPT_PARTS);
}

void tutti__keep_copy(const tutti__bucket *b, size_t begin, const float *from, size_t n)
{
    float *to = b->view.buf.p;
    size_t low, high;

    if (b->here == TUTTI__ALL_PARTS || b->parts.at[TUTTI__PARTS] == 0) {
        memcpy(to + begin, from, n * sizeof *to);
        return;
    }
    for (int k = 0; k < 3; k++)
        if (tutti__parts_within(b, k, begin, begin + n, &low, &high))
            memcpy(to + low, from + (low - begin), (high - low) * sizeof *to);
}

void tutti__reducer_set_in_flight(tutti_reducer *r, size_t buckets)
{
    r->in_flight = buckets;
}
