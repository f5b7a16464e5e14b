/* cuda_flat.c -- arithmetic over flat memory on CUDA's devices.   SPDX-License-Identifier: MIT
 *
 * The module's kernels leave results on the device; those that the caller needs are waited for and read here. */
#include "device/cuda/cuda_flat.h"
#include "device/cuda/cuda.h"

/* Elements narrowed or widened at a time, which need temporary memory. */
#define PART ((size_t)1 << 22)

/* FLAT(stream, fill, p, n, value): calls the module's. */
#define FLAT(stream, function, ...)                                                                \
    tutti__cuda_done((stream)->device,                                                             \
                     tutti__cuda_module()->flat->function(                                         \
                         (stream)->device.index, tutti__cuda_native(stream), __VA_ARGS__),         \
                     #function)

static tutti_status fill(tutti_stream *stream, float *p, size_t n, float value)
{
    return FLAT(stream, fill, p, n, value);
}

static tutti_status scale(tutti_stream *stream, float *p, size_t n, float factor)
{
    return FLAT(stream, scale, p, n, factor);
}

static tutti_status count(tutti_stream *stream, int64_t *p)
{
    return FLAT(stream, count, p);
}

static tutti_status sgd(tutti_stream *stream, float *p, const float *g, float *buffer, size_t n,
                        const tutti__sgd *c)
{
    return FLAT(stream, sgd, p, g, buffer, n, c);
}

static tutti_status adam(tutti_stream *stream, float *p, const float *g, float *m, float *v,
                         size_t n, const tutti__adam *c)
{
    return FLAT(stream, adam, p, g, m, v, n, c);
}

static tutti_status rmsprop(tutti_stream *stream, float *p, const float *g, float *square,
                            float *mean, float *buffer, size_t n, const tutti__rmsprop *c)
{
    return FLAT(stream, rmsprop, p, g, square, mean, buffer, n, c);
}

static tutti_status adagrad(tutti_stream *stream, float *p, const float *g, float *sum, size_t n,
                            const tutti__adagrad *c)
{
    return FLAT(stream, adagrad, p, g, sum, n, c);
}

static tutti_status clamp(tutti_stream *stream, float *p, size_t n, float limit)
{
    return FLAT(stream, clamp, p, n, limit);
}

static tutti_status sum_squares(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                tutti__squares *sum)
{
    const size_t parts = tutti__cuda_module()->flat->sum_squares_partial(spans, n);
    tutti__squares *p = stream->ops->alloc(stream->device, (parts + 1) * sizeof *p, false), more;
    tutti_status status;

    if (!p)
        return TUTTI_ERR_MEMORY;
    status = FLAT(stream, sum_squares, spans, n, p, p + parts);
    if (status == TUTTI_OK)
        status = tutti__read(stream, &more, p + parts, sizeof more);
    if (status == TUTTI_OK)
        tutti__squares_add(sum, &more);
    stream->ops->free(stream->device, p);
    return status;
}

static tutti_status unscale_into(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                 float factor, int32_t *found, bool *finite_p)
{
    int32_t value;

    TUTTI_TRY(stream->ops->zero(stream, found, sizeof *found));
    TUTTI_TRY(FLAT(stream, unscale, spans, n, factor, found));
    TUTTI_TRY(tutti__read(stream, &value, found, sizeof value));
    *finite_p = !value;
    return TUTTI_OK;
}

static tutti_status unscale(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                            float factor, bool *finite_p)
{
    int32_t *found = stream->ops->alloc(stream->device, sizeof *found, false);
    tutti_status status;

    if (!found)
        return TUTTI_ERR_MEMORY;
    status = unscale_into(stream, spans, n, factor, found, finite_p);
    stream->ops->free(stream->device, found);
    return status;
}

static tutti_status find_nonfinite(tutti_stream *stream, const void *p, size_t n, tutti_dtype dtype,
                                   int32_t *found)
{
    return FLAT(stream, find_nonfinite, p, n, dtype, found);
}

/* ---- 16 bit in place, through temporary memory: narrowed part by part forwards, widened backwards ---- */

static tutti_status narrow_part(tutti_stream *stream, void *p, size_t at, size_t n,
                                tutti_dtype dtype, void *beside)
{
    TUTTI_TRY(FLAT(stream, narrow, beside, (const float *)p + at, n, dtype));
    return tutti__copy(stream, (uint16_t *)p + at, beside, n * sizeof(uint16_t));
}

static tutti_status widen_part(tutti_stream *stream, void *p, size_t at, size_t n,
                               tutti_dtype dtype, void *beside)
{
    TUTTI_TRY(tutti__copy(stream, beside, (const uint16_t *)p + at, n * sizeof(uint16_t)));
    return FLAT(stream, widen, (float *)p + at, beside, n, dtype);
}

static tutti_status each_part(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype,
                              bool widens)
{
    const size_t parts = (n + PART - 1) / PART;
    void *beside =
        stream->ops->alloc(stream->device, (n < PART ? n : PART) * sizeof(uint16_t), false);
    tutti_status status = beside ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (size_t i = 0; i < parts && status == TUTTI_OK; i++) {
        const size_t at = (widens ? parts - 1 - i : i) * PART, left = n - at;

        status = (widens ? widen_part : narrow_part)(stream, p, at, left < PART ? left : PART,
                                                     dtype, beside);
    }
    stream->ops->free(stream->device, beside);
    return status;
}

static tutti_status narrow(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    return each_part(stream, p, n, dtype, false);
}

static tutti_status widen(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    return each_part(stream, p, n, dtype, true);
}

/* ---- Sums that do not depend on the order ---- */

static tutti_status fixed_add(tutti_stream *stream, void *sums, const float *g, size_t n,
                              const tutti__fixed *f, bool first, const tutti__fixed_seen *seen)
{
    return FLAT(stream, fixed_add, sums, g, n, f, first, seen);
}

static tutti_status fixed_join(tutti_stream *stream, void *sums, const void *more, size_t n,
                               const tutti__fixed *f)
{
    return FLAT(stream, fixed_join, sums, more, n, f);
}

static tutti_status fixed_mean(tutti_stream *stream, float *mean, const void *sums, size_t n,
                               const tutti__fixed *f, int number, const tutti__fixed_seen *seen)
{
    return FLAT(stream, fixed_mean, mean, sums, n, f, number, seen);
}

const tutti__flat_ops tutti__cuda_flat_ops = {
    .fill = fill,
    .scale = scale,
    .count = count,
    .sgd = sgd,
    .adam = adam,
    .rmsprop = rmsprop,
    .adagrad = adagrad,
    .clamp = clamp,
    .sum_squares = sum_squares,
    .unscale = unscale,
    .find_nonfinite = find_nonfinite,
    .narrow = narrow,
    .widen = widen,
    .fixed_add = fixed_add,
    .fixed_join = fixed_join,
    .fixed_mean = fixed_mean,
};
