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
    const bool planned = r->planned;

    *p_p = planned ? tutti__planned_reserve(bytes) : tutti__memory_reserve(bytes);
    if (!*p_p)
        return TUTTI_ERR_MEMORY;
    return open && !planned ? tutti__memory_open(*p_p, bytes) : TUTTI_OK;
}

void tutti__keep_free(const tutti_reducer *r, unsigned char *p, size_t bytes)
{
    if (r->planned)
        (void)tutti__planned_free(p);
    else
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

tutti_status tutti__parts_change(const tutti_reducer *r, const tutti__bucket *b, unsigned char *p,
                                 size_t element, unsigned char *here, unsigned want)
{
    const bool planned = r->planned;

    for (unsigned k = 0; k < TUTTI__PARTS; k++) {
        unsigned char *part = p + b->parts.at[k] * element;
        const size_t bytes = (b->parts.at[k + 1] - b->parts.at[k]) * element;
        const unsigned bit = 1U << k;

        if ((want & bit) == (*here & bit))
            continue;
        if (!(want & bit) && planned)
            tutti__planned_give_back(part, bytes);
        else if (!(want & bit))
            tutti__memory_discard(part, bytes);
        else if (planned)
            tutti__planned_touch(part, bytes);
        else
            TUTTI_TRY(tutti__memory_back(part, bytes, false));
        *here = (unsigned char)(*here ^ bit);
    }
    return TUTTI_OK;
}

/* ---- Gradients ---- */

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

    if (r->stream)
        return;
    if (b->parts.at[TUTTI__PARTS] == 0 && !r->planned) {
        tutti__memory_together(at(r, b), begin * element);
        tutti__memory_together(at(r, b) + begin * element, (end - begin) * element);
        tutti__memory_together(at(r, b) + end * element, (tail - end) * element);
    }
    tutti__parts_set(b, 0, begin, end, tail);
    if (!r->planned) /* gives back, which cannot fail */
        (void)!tutti__parts_change(r, b, at(r, b), element, &b->here, TUTTI__KEPT_PARTS);
}

/* A hook reads all of a bucket. */
static void clear_padding(const tutti_reducer *r, const tutti__bucket *b)
{
    for (size_t place = b->info.first; place < b->info.first + b->info.n; place++) {
        const tutti__gradient *g = &r->gradients[r->order[place]];
        const size_t end = g->offset + g->count * tutti_dtype_size(g->dtype);
        const size_t next = place + 1 < b->info.first + b->info.n
                                ? r->gradients[r->order[place + 1]].offset
                                : b->offset + b->span;

        memset(r->block + end, 0, next - end);
    }
}

tutti_status tutti__reducer_bring(tutti_reducer *r, size_t i)
{
    const tutti__gradient *g = &r->gradients[i];
    tutti__bucket *b = g->local || !r->kept_in_part ? NULL : &r->buckets[g->bucket];

    if (!b || b->here == TUTTI__ALL_PARTS)
        return TUTTI_OK;
    TUTTI_TRY(tutti__parts_change(r, b, at(r, b), element_of(b), &b->here, TUTTI__ALL_PARTS));
    if (!r->exact && !r->planned)
        clear_padding(r, b);
    return TUTTI_OK;
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
