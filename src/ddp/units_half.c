/* units_half.c -- parameters that are gathered in 16 bits, because operations read them rounded to that.   SPDX-License-Identifier: MIT
 *
 *     narrow   | this rank's share, rounded | . . . . | all shares, 16 bits |
 *     flat     | share 0 | share 1 | my share, as it is | share 3 |            other shares are widened from there
 */
#include "ddp/zero.h"

#include "tensor/parallel.h"

/* Elements between F32 and 16 bits, in host memory, by the context's threads. */
typedef struct conversion {
    float *wide;
    uint16_t *half;
    size_t n;
    tutti_dtype dtype;
    bool widens;
} conversion;

enum { PART = 1 << 16 };

static void convert_part(void *arg, int64_t job, int member)
{
    const conversion *c = arg;
    const size_t at = (size_t)job * PART, n = c->n - at < PART ? c->n - at : PART;

    (void)member;
    if (c->widens)
        tutti__half_to_f32(c->wide + at, c->half + at, n, c->dtype);
    else
        tutti__half_from_f32(c->half + at, c->wide + at, n, c->dtype);
}

static tutti_status convert(const tutti_zero *zero, float *wide, void *half, size_t n,
                            tutti_dtype dtype, bool widens)
{
    tutti_ctx *cx = zero->root->module->cx;
    tutti_stream *stream = cx->stream;

    if (cx->device_ops->is_host) {
        tutti__parallel(cx, convert_part, &(conversion){wide, half, n, dtype, widens},
                        (int64_t)((n + PART - 1) / PART));
        return TUTTI_OK;
    }
    if (widens) {
        TUTTI_TRY(tutti__copy(stream, wide, half, n * sizeof(uint16_t)));
        return stream->ops->flat->widen(stream, wide, n, dtype);
    }
    TUTTI_TRY(tutti__copy(stream, half, wide, n * sizeof *wide)); /* there is room */
    return stream->ops->flat->narrow(stream, half, n, dtype);
}

/* Room for the largest bucket: this rank's share, in F32 while it is rounded, and all shares in 16 bits. */
static tutti_status make_narrow(tutti_zero *zero)
{
    const tutti_ctx *cx = zero->root->module->cx;
    size_t largest = 0;

    if (zero->narrow)
        return TUTTI_OK;
    for (size_t i = 0; i < zero->n_noted; i++) {
        const tutti__zero_bucket *b = &zero->buckets[i];
        const size_t share = b->p && !b->vectors ? tutti__zero_share(zero, b) : 0;

        largest = share > largest ? share : largest;
    }
    zero->narrow_at = (largest * sizeof(float) + 63) / 64 * 64;
    zero->narrow = cx->device_ops->alloc(
        cx->device,
        zero->narrow_at + largest * (size_t)zero->sharding.peers.size * sizeof(uint16_t), false);
    return zero->narrow ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__units_widen(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const size_t share = tutti__zero_share(zero, b), rank = (size_t)zero->sharding.peers.rank;
    const size_t after = (size_t)zero->sharding.peers.size - rank - 1;
    uint16_t *all = (uint16_t *)(void *)(zero->narrow + zero->narrow_at);
    float *p = zero->root->flat_parameters + tutti__zero_begin(zero, b);

    TUTTI_TRY(convert(zero, p, all, rank * share, b->as, true));
    return convert(zero, p + (rank + 1) * share, all + (rank + 1) * share, after * share, b->as,
                   true);
}

tutti_status tutti__units_prepare(tutti_zero *zero, const tutti__zero_bucket *b,
                                  tutti_const_buf *from, tutti_buf *to)
{
    const size_t share = tutti__zero_share(zero, b);
    float *p = zero->root->flat_parameters;

    *from = (tutti_const_buf){p + tutti__zero_own(zero, b), share, b->as, tutti__zero_stream(zero)};
    *to = (tutti_buf){p + tutti__zero_begin(zero, b), share * (size_t)zero->sharding.peers.size,
                      b->as, tutti__zero_stream(zero)};
    if (b->as == TUTTI_F32)
        return TUTTI_OK;
    TUTTI_TRY(make_narrow(zero));
    TUTTI_TRY(convert(zero, p + tutti__zero_own(zero, b), zero->narrow, share, b->as, false));
    from->p = zero->narrow;
    to->p = zero->narrow + zero->narrow_at;
    return TUTTI_OK;
}
