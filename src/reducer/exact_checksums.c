/* exact_checksums.c -- checksums of the sums over shards.   SPDX-License-Identifier: MIT
 *
 * All that is added to the sums of a gradient is also added up on the way, while it is in registers, and so are all ranks' sums when
 * means are made of them. Such checksums are integers that wrap: that of all ranks' sums is the sum of those of what was added, whichever
 * rank added what, and a bit that flips in memory or on the way in between changes it. Each rank also takes the checksum of its own sums
 * before it sends them, as often as that costs little, and always for a while after a flip of which nobody knew where: so it is known
 * whose memory it was. */
#include "reducer/exact.h"

#include "reducer/reducer.h"

#include <stdlib.h>

/* The part of a step's time for those before sending: 1 / BUDGET; how many steps suspicion lasts. */
enum { BUDGET = 1000, SUSPICIOUS_STEPS = 10000 };

/* ---- Memory ---- */

tutti_status tutti__exact_checksums_new(const tutti_reducer *r)
{
    tutti__exact_checksums *t = &r->exact->checksums;
    tutti_stream *stream = r->exact->stream;
    const size_t bytes = TUTTI__CHECKSUM_KINDS * (r->n + 1) * sizeof *t->there;

    t->there = stream->ops->alloc(stream->device, bytes, true);
    t->seen = r->stream ? stream->ops->host_alloc(stream->device, bytes) : t->there;
    return t->there && t->seen ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__exact_checksums_free(const tutti_reducer *r)
{
    tutti__exact_checksums *t = &r->exact->checksums;
    tutti_stream *stream = r->exact->stream;

    if (t->seen != t->there)
        stream->ops->host_free(stream->device, t->seen);
    stream->ops->free(stream->device, t->there);
}

uint64_t *tutti__exact_checksums_of(const tutti_reducer *r, tutti__checksum_kind kind, size_t i)
{
    return r->exact->checksums.there + (size_t)kind * (r->n + 1) + i;
}

static uint64_t *seen(const tutti_reducer *r, tutti__checksum_kind kind, size_t i)
{
    return r->exact->checksums.seen + (size_t)kind * (r->n + 1) + i;
}

static tutti_status see(const tutti_reducer *r, tutti__checksum_kind kind)
{
    return r->stream ? tutti__read(r->stream, seen(r, kind, 0),
                                   tutti__exact_checksums_of(r, kind, 0), r->n * sizeof(uint64_t))
                     : TUTTI_OK;
}

static bool differ(const tutti__exact *s, uint64_t a, uint64_t b)
{
    return s->bits == 64 ? a != b : (uint32_t)a != (uint32_t)b;
}

/* ---- A step ---- */

tutti_status tutti__exact_checksums_begin(const tutti_reducer *r)
{
    tutti_stream *stream = r->exact->stream;
    tutti__exact_checksums *t = &r->exact->checksums;

    t->damaged = t->own = 0;
    t->ns = 0;
    t->verifies = !r->stream && (t->suspicious > 0 || t->credit_ns >= 0);
    t->suspicious -= t->suspicious > 0;
    return stream->ops->zero(stream, t->there,
                             TUTTI__CHECKSUM_KINDS * (r->n + 1) * sizeof *t->there);
}

TUTTI__CLONES static uint64_t checksum_64(const uint64_t *p, size_t n)
{
    uint64_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += p[i];
    return all;
}

TUTTI__CLONES static uint64_t checksum_32(const uint32_t *p, size_t n)
{
    uint32_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += p[i];
    return all;
}

void tutti__exact_checksums_verify(const tutti_reducer *r, const tutti__bucket *b)
{
    const tutti__exact *s = r->exact;
    tutti__exact_checksums *t = &r->exact->checksums;
    const uint64_t begin_ns = tutti__now_ns();

    for (size_t k = 0; t->verifies && k < b->info.n; k++) {
        const size_t i = r->order[b->info.first + k];
        const tutti__gradient *g = &r->gradients[i];
        const void *p = tutti__sums_at(s, s->joining ? s->late : s->sums, g->offset);
        const uint64_t checksum =
            s->bits == 64 ? checksum_64(p, g->count) : checksum_32(p, g->count);

        if (differ(s, checksum,
                   *seen(r, s->joining ? TUTTI__CHECKSUM_LATE : TUTTI__CHECKSUM_ADDED, i)))
            t->own = i + 1;
    }
    t->ns += t->verifies ? tutti__now_ns() - begin_ns : 0;
}

tutti_status tutti__exact_checksums_tell(const tutti_reducer *r, int64_t *numbers)
{
    TUTTI_TRY(see(r, TUTTI__CHECKSUM_ADDED));
    TUTTI_TRY(see(r, TUTTI__CHECKSUM_LATE));
    for (size_t place = 0; place < r->n_reduced; place++) {
        const size_t i = r->order[place];

        numbers[place] =
            (int64_t)(*seen(r, TUTTI__CHECKSUM_ADDED, i) + *seen(r, TUTTI__CHECKSUM_LATE, i));
    }
    return TUTTI_OK;
}

tutti_status tutti__exact_checksums_forget_means(const tutti_reducer *r)
{
    tutti_stream *stream = r->exact->stream;

    return stream->ops->zero(stream, tutti__exact_checksums_of(r, TUTTI__CHECKSUM_MEANS, 0),
                             r->n * sizeof(uint64_t));
}

tutti_status tutti__exact_checksums_check(const tutti_reducer *r, const int64_t *numbers)
{
    tutti__exact_checksums *t = &r->exact->checksums;
    const uint64_t step_ns = tutti__now_ns() - r->begin_ns;

    t->credit_ns += (int64_t)(step_ns / BUDGET) - (int64_t)t->ns;
    if (t->credit_ns > 0)
        t->credit_ns = 0;
    t->damaged = t->own;
    if (r->kept_in_part || tutti__group_is_planned(r->group)) /* this rank has a share of them */
        return TUTTI_OK;
    TUTTI_TRY(see(r, TUTTI__CHECKSUM_MEANS));
    for (size_t place = 0; place < r->n_reduced && t->damaged == 0; place++) {
        const size_t i = r->order[place];

        if (differ(r->exact, *seen(r, TUTTI__CHECKSUM_MEANS, i), (uint64_t)numbers[place]))
            t->damaged = i + 1;
    }
    if (t->damaged > 0 && t->own == 0)
        t->suspicious = SUSPICIOUS_STEPS;
    if (t->damaged == 0 || t->tolerant)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_DEVICE,
        "step %llu: the sums over all shards of \"%s\" are not what ranks have added "
        "to them: a bit has changed in %s. Test the hosts' memory",
        (unsigned long long)r->step, r->gradients[t->damaged - 1].name,
        t->own > 0 ? "this rank's memory" : "a rank's memory, or on the way");
}

/* ---- Fault injection ---- */

int tutti__reducer_flip_sum(tutti_reducer *r, size_t i, size_t at, uint32_t word)
{
    tutti__exact_checksums *t = r->exact ? &r->exact->checksums : NULL;

    if (!t || r->stream)
        return -1;
    t->flip = i + 1;
    t->flip_at = at;
    t->flip_bit = (int)(word % (uint32_t)r->exact->bits);
    return t->flip_bit;
}

void tutti__exact_checksums_inject(const tutti_reducer *r, size_t i, unsigned char *sums)
{
    tutti__exact_checksums *t = &r->exact->checksums;

    if (t->flip != i + 1)
        return;
    t->flip = 0;
    sums[t->flip_at * (size_t)(r->exact->bits / 8) + (size_t)t->flip_bit / 8] ^=
        (unsigned char)(1u << t->flip_bit % 8); /* little endian, or another bit */
}

/* ---- For elastic training ---- */

void tutti__reducer_tolerate_damage(tutti_reducer *r)
{
    r->exact->checksums.tolerant = true;
}

const char *tutti__reducer_damage(const tutti_reducer *r, bool *own_p)
{
    const tutti__exact_checksums *t = &r->exact->checksums;

    *own_p = t->own > 0;
    return t->damaged > 0 ? r->gradients[t->damaged - 1].name : NULL;
}
