/* keep.c -- gradients of which a rank keeps only a part after their reduction (ZeRO-2).   SPDX-License-Identifier: MIT
 *
 * The block stays where it is: only its pages go, and come again before backward's first write to the bucket, with any contents. It is not
 * in the group's memory: pages that processes share come and go at a much higher price, in all of them, and only small ones. */
#include "reducer/internal.h"

#include "comm/comm.h"
#include "device/planned/planned.h"

#include <string.h>

/* On a device nothing has memory before it is brought; host memory gets it when it is first touched. */
static tutti_status reserve_on_device(tutti_reducer *r, size_t bytes)
{
    r->block = r->stream->ops->reserve(r->stream->device, bytes);
    for (size_t b = 0; b < r->n_buckets; b++)
        r->buckets[b].left = (tutti__kept){
            0, 0,
            r->buckets[b].span /
                tutti_dtype_size(r->gradients[r->order[r->buckets[b].info.first]].dtype)};
    return r->block ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__keep_alloc(tutti_reducer *r, size_t bytes)
{
    if (r->stream)
        return reserve_on_device(r, bytes);
    if (tutti__group_is_planned(r->group)) {
        r->block = tutti__planned_reserve(bytes);
        return r->block ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    r->block = tutti__memory_reserve(bytes);
    return r->block ? tutti__memory_open(r->block, bytes) : TUTTI_ERR_MEMORY;
}

void tutti__keep_free(tutti_reducer *r)
{
    if (r->stream && r->block)
        r->stream->ops->unreserve(r->stream->device, r->block, r->bytes);
    else if (tutti__group_is_planned(r->group))
        (void)tutti__planned_free(r->block);
    else if (!r->stream)
        tutti__memory_unreserve(r->block, r->bytes);
}

/* Of the block: bytes that nobody reads until they are brought. Host memory stays accessible, for programs that look at it. */
static void discard(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    if (r->stream)
        r->stream->ops->give_back(r->stream->device, p, bytes);
    else
        tutti__memory_discard(p, bytes);
}

static tutti_status back(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    return r->stream ? r->stream->ops->back(r->stream->device, p, bytes, false)
                     : tutti__memory_back(p, bytes, false);
}

void tutti__reducer_keep(tutti_reducer *r, size_t bucket, size_t begin, size_t end, size_t tail)
{
    tutti__bucket *b = &r->buckets[bucket];
    const size_t element = tutti_dtype_size(b->view.buf.dtype);
    unsigned char *p = r->block + b->offset;

    b->kept = (tutti__kept){begin, end, tail};
    if (tutti__group_is_planned(r->group))
        return;
    if (!b->parted && !r->stream) {
        b->parted = true;
        tutti__memory_together(p, begin * element);
        tutti__memory_together(p + begin * element, (end - begin) * element);
        tutti__memory_together(p + end * element, (tail - end) * element);
    }
    discard(r, p, begin * element);
    discard(r, p + end * element, (tail - end) * element);
    b->left = b->kept;
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
    tutti__kept left;
    size_t element;
    unsigned char *p;

    if (!b)
        return bring_local(r, g);
    left = b->left;
    if (left.tail == 0)
        return TUTTI_OK;
    element = tutti_dtype_size(b->view.buf.dtype);
    p = r->block + b->offset;
    TUTTI_TRY(back(r, p, left.begin * element));
    TUTTI_TRY(back(r, p + left.end * element, (left.tail - left.end) * element));
    b->left = (tutti__kept){0, 0, 0};
    return clear_padding(r, b);
}

void tutti__keep_planned(const tutti_reducer *r, const tutti__bucket *b)
{
    const size_t element = tutti_dtype_size(b->view.buf.dtype);
    const unsigned char *p = r->block + b->offset;

    if (!r->kept_in_part || b->kept.tail == 0 || !tutti__group_is_planned(r->group))
        return;
    tutti__planned_give_back(p, b->kept.begin * element);
    tutti__planned_give_back(p + b->kept.end * element, (b->kept.tail - b->kept.end) * element);
}

void tutti__keep_copy(const tutti__bucket *b, size_t at, const float *from, size_t n)
{
    const tutti__kept all = {.begin = 0, .end = 0, .tail = 0}, *k = b->kept.tail ? &b->kept : &all;
    const size_t parts[2][2] = {{k->begin, k->end}, {k->tail, SIZE_MAX}};
    float *to = b->view.buf.p;

    for (int i = 0; i < 2; i++) {
        const size_t low = at > parts[i][0] ? at : parts[i][0];
        const size_t high = at + n < parts[i][1] ? at + n : parts[i][1];

        if (low < high)
            memcpy(to + low, from + (low - at), (high - low) * sizeof *to);
    }
}

void tutti__reducer_set_in_flight(tutti_reducer *r, size_t buckets)
{
    r->in_flight = buckets;
}

/* On a device: all of it. */
size_t tutti__reducer_resident(const tutti_reducer *r)
{
    return r->stream ? r->bytes : tutti__memory_resident(r->block, r->bytes);
}
