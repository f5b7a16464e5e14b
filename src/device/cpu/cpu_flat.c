/* cpu_flat.c -- the CPU's arithmetic over flat memory.   SPDX-License-Identifier: MIT */
#include "device/flat.h"

#include <math.h>
#include <string.h>

static tutti_status fill(tutti_stream *stream, float *p, size_t n, float value)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        p[i] = value;
    return TUTTI_OK;
}

TUTTI__CLONES
static void times(float *g, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        g[i] *= factor;
}

static tutti_status scale(tutti_stream *stream, float *p, size_t n, float factor)
{
    (void)stream;
    times(p, n, factor);
    return TUTTI_OK;
}

static tutti_status count(tutti_stream *stream, int64_t *p)
{
    (void)stream;
    ++*p;
    return TUTTI_OK;
}

/* ---- Optimizers ---- */

TUTTI__CLONES
static void plain(float *restrict p, const float *restrict g, size_t n, float lr, float decay)
{
    for (size_t i = 0; i < n; i++)
        p[i] -= lr * (g[i] + decay * p[i]);
}

TUTTI__CLONES
static void with_momentum(float *restrict p, const float *restrict g, float *restrict buffer,
                          size_t n, const float c[4])
{
    const float lr = c[0], decay = c[1], momentum = c[2], fresh = c[3];

    for (size_t i = 0; i < n; i++) {
        float b = momentum * buffer[i] + fresh * (g[i] + decay * p[i]);

        buffer[i] = b;
        p[i] -= lr * b;
    }
}

TUTTI__CLONES
static void with_nesterov(float *restrict p, const float *restrict g, float *restrict buffer,
                          size_t n, const float c[4])
{
    const float lr = c[0], decay = c[1], momentum = c[2], fresh = c[3];

    for (size_t i = 0; i < n; i++) {
        float d = g[i] + decay * p[i];
        float b = momentum * buffer[i] + fresh * d;

        buffer[i] = b;
        p[i] -= lr * (d + momentum * b);
    }
}

static tutti_status sgd(tutti_stream *stream, float *p, const float *g, float *buffer, size_t n,
                        const tutti__sgd *c)
{
    const float f[4] = {c->lr, c->decay, c->momentum, c->fresh};

    (void)stream;
    if (!buffer)
        plain(p, g, n, c->lr, c->decay);
    else if (c->nesterov)
        with_nesterov(p, g, buffer, n, f);
    else
        with_momentum(p, g, buffer, n, f);
    return TUTTI_OK;
}

TUTTI__CLONES
static void pass(float *restrict p, const float *restrict g, float *restrict exp_avg,
                 float *restrict exp_avg_sq, size_t n, const tutti__adam *restrict f)
{
    const tutti__adam c = *f;

    for (size_t i = 0; i < n; i++) {
        float x = c.keep * p[i];
        float d = g[i] + c.decay * p[i];
        float m = exp_avg[i] + c.fresh1 * (d - exp_avg[i]);
        float v = c.beta2 * exp_avg_sq[i] + c.fresh2 * d * d;

        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        p[i] = x - c.rate * m / (sqrtf(v) / c.root + c.eps);
    }
}

static tutti_status adam(tutti_stream *stream, float *p, const float *g, float *m, float *v,
                         size_t n, const tutti__adam *c)
{
    (void)stream;
    pass(p, g, m, v, n, c);
    return TUTTI_OK;
}

/* What an optimizer has no memory for is a constant here, so that each variant has vectors of its own. */
#define RMSPROP(name, CENTERED, BUFFERED)                                                          \
    TUTTI__CLONES static void name(                                                                \
        float *restrict p, const float *restrict g, float *restrict square, float *restrict mean,  \
        float *restrict buffer, size_t n, const tutti__rmsprop *restrict f)                        \
    {                                                                                              \
        const tutti__rmsprop c = *f;                                                               \
                                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            const float d = g[i] + c.decay * p[i];                                                 \
            const float s = c.alpha * square[i] + c.fresh * d * d;                                 \
            const float m = CENTERED ? mean[i] + c.fresh * (d - mean[i]) : 0;                      \
            const float v = CENTERED ? s - m * m : s;                                              \
            const float a = sqrtf(v < 0 ? 0 : v) + c.eps;                                          \
                                                                                                   \
            square[i] = s;                                                                         \
            if (CENTERED)                                                                          \
                mean[i] = m;                                                                       \
            if (BUFFERED) {                                                                        \
                const float b = c.momentum * buffer[i] + d / a;                                    \
                                                                                                   \
                buffer[i] = b;                                                                     \
                p[i] -= c.lr * b;                                                                  \
            } else {                                                                               \
                p[i] -= c.lr * d / a;                                                              \
            }                                                                                      \
        }                                                                                          \
    }

RMSPROP(rmsprop_plain, false, false)
RMSPROP(rmsprop_buffered, false, true)
RMSPROP(rmsprop_centered, true, false)
RMSPROP(rmsprop_both, true, true)

static tutti_status rmsprop(tutti_stream *stream, float *p, const float *g, float *square,
                            float *mean, float *buffer, size_t n, const tutti__rmsprop *c)
{
    (void)stream;
    (mean ? (buffer ? rmsprop_both : rmsprop_centered)
          : (buffer ? rmsprop_buffered : rmsprop_plain))(p, g, square, mean, buffer, n, c);
    return TUTTI_OK;
}

TUTTI__CLONES
static void adagrad_pass(float *restrict p, const float *restrict g, float *restrict sum, size_t n,
                         const tutti__adagrad *restrict f)
{
    const tutti__adagrad c = *f;

    for (size_t i = 0; i < n; i++) {
        const float d = g[i] + c.decay * p[i];
        const float s = sum[i] + c.start + d * d;

        sum[i] = s;
        p[i] -= c.rate * d / (sqrtf(s) + c.eps);
    }
}

static tutti_status adagrad(tutti_stream *stream, float *p, const float *g, float *sum, size_t n,
                            const tutti__adagrad *c)
{
    (void)stream;
    adagrad_pass(p, g, sum, n, c);
    return TUTTI_OK;
}

TUTTI__CLONES
static void limit_to(float *p, size_t n, float limit)
{
    for (size_t i = 0; i < n; i++)
        p[i] = p[i] < -limit ? -limit : p[i] > limit ? limit : p[i];
}

static tutti_status clamp(tutti_stream *stream, float *p, size_t n, float limit)
{
    (void)stream;
    limit_to(p, n, limit);
    return TUTTI_OK;
}

/* ---- Checks of gradients ---- */

/* g *= factor; returns whether all were finite before. x * 0 is 0 for every finite x, else NaN. */
TUTTI__CLONES
static bool times_if_finite(float *g, size_t n, float factor)
{
    float lanes[16] = {0}, sum = 0;
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++) {
            lanes[k] += g[i + k] * 0.0f;
            g[i + k] *= factor;
        }
    for (; i < n; i++) {
        sum += g[i] * 0.0f;
        g[i] *= factor;
    }
    for (size_t k = 0; k < 16; k++)
        sum += lanes[k];
    return sum == 0;
}

static tutti_status unscale(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                            float factor, bool *finite_p)
{
    (void)stream;
    *finite_p = true;
    for (size_t i = 0; i < n; i++)
        *finite_p &= times_if_finite(spans[i].p, spans[i].n, factor);
    return TUTTI_OK;
}

/* A number is not finite if all bits of its exponent are set; these test nothing else, and run at memory bandwidth. */
#define FIND(name, T, MASK)                                                                        \
    TUTTI__CLONES static bool name(const T *x, size_t n)                                           \
    {                                                                                              \
        T found = 0;                                                                               \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            found |= (T)((x[i] & (MASK)) == (MASK));                                               \
        return found != 0;                                                                         \
    }

FIND(find_f32, uint32_t, UINT32_C(0x7f800000))
FIND(find_f64, uint64_t, UINT64_C(0x7ff0000000000000))
FIND(find_f16, uint16_t, 0x7c00)
FIND(find_bf16, uint16_t, 0x7f80)

static tutti_status find_nonfinite(tutti_stream *stream, const void *p, size_t n, tutti_dtype dtype,
                                   int32_t *found)
{
    bool any = false;

    (void)stream;
    if (dtype == TUTTI_F32)
        any = find_f32(p, n);
    else if (dtype == TUTTI_F64)
        any = find_f64(p, n);
    else if (dtype == TUTTI_F16)
        any = find_f16(p, n);
    else if (dtype == TUTTI_BF16)
        any = find_bf16(p, n);
    *found |= any;
    return TUTTI_OK;
}

/* ---- 16 bit in place ----
 *
 *     wide      | f32 f32 f32 f32 f32 f32 f32 f32 |
 *     narrowed  | 16 16 16 16 16 16 16 16 | rest  |     block by block, forwards; widened backwards */

enum {
    /* elements per block: loaded completely before the store, because source and destination may overlap */
    BLOCK = 1024
};

static tutti_status narrow(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    uint16_t block[BLOCK];

    (void)stream;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? n - at : BLOCK;

        tutti__half_from_f32(block, (const float *)p + at, k, dtype);
        memcpy((char *)p + at * sizeof *block, block, k * sizeof *block);
    }
    return TUTTI_OK;
}

static tutti_status widen(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype)
{
    uint16_t block[BLOCK];

    (void)stream;
    for (size_t at = (n + BLOCK - 1) / BLOCK * BLOCK; at > 0;) {
        size_t k;

        at -= BLOCK;
        k = n - at < BLOCK ? n - at : BLOCK;
        memcpy(block, (const char *)p + at * sizeof *block, k * sizeof *block);
        tutti__half_to_f32((float *)p + at, block, k, dtype);
    }
    return TUTTI_OK;
}

/* ---- Sums that do not depend on the order ----
 *
 * A float as a double times a power of two is exact; adding 1.5 * 2^52 rounds it to an integer, in the sum's low bits. For the
 * way back, the halves of a 64-bit integer become two doubles whose sum is rounded once. Every machine's vectors have this
 * arithmetic, with the same bits. */

#define WHOLE      6755399441055744.0 /* 1.5 * 2^52 */
#define WHOLE_BITS UINT64_C(0x4338000000000000)

static inline uint64_t bits_of(double x)
{
    uint64_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double double_of_bits(uint64_t u)
{
    double x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* |x| as an integer: it has the same order as |x|. */
static inline int32_t magnitude(float x)
{
    int32_t i;

    memcpy(&i, &x, sizeof i);
    return i & INT32_MAX;
}

static inline int32_t largest_of(const float *x, size_t n, int32_t largest)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t m = magnitude(x[i]);

        largest = m > largest ? m : largest;
    }
    return largest;
}

/* Whole squares in each bin (squares.h) of up to TUTTI__SQUARES_BLOCK elements, for `top`; returns the largest element. */
TUTTI__CLONES static int32_t add_squares(const float *x, size_t n, int top, int64_t sums[2])
{
    const uint64_t bits[2] = {TUTTI__SQUARES_MAGIC(top), TUTTI__SQUARES_MAGIC(top - 1)};
    const double magic[2] = {double_of_bits(bits[0]), double_of_bits(bits[1])};
    uint64_t high = 0, low = 0;
    int32_t largest = 0;

    for (size_t i = 0; i < n; i++) {
        const int32_t m = magnitude(x[i]);
        const double d = (double)x[i] * (double)x[i], whole = d + magic[0];

        largest = m > largest ? m : largest;
        high += bits_of(whole);
        low += bits_of(d - (whole - magic[0]) + magic[1]);
    }
    sums[0] = (int64_t)(high - n * bits[0]);
    sums[1] = (int64_t)(low - n * bits[1]);
    return largest;
}

/* For the top bin so far, since it rarely rises: one pass, at the speed of memory. If it does, once more. */
static void add_block(tutti__squares *sum, const float *x, size_t n)
{
    tutti__squares block = *sum;
    int64_t sums[2];
    int top;

    do {
        top = TUTTI__SQUARES_TOP(block.largest);
        tutti__squares_raise(&block, (uint32_t)add_squares(x, n, top, sums));
    } while (TUTTI__SQUARES_TOP(block.largest) != top);
    for (int k = 0; k < 2; k++) {
        block.high[k] = 0;
        block.low[k] = sums[k];
    }
    tutti__squares_add(sum, &block);
}

static tutti_status sum_squares(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                tutti__squares *sum)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < spans[i].n; at += TUTTI__SQUARES_BLOCK)
            add_block(sum, spans[i].p + at,
                      spans[i].n - at < TUTTI__SQUARES_BLOCK ? spans[i].n - at
                                                             : TUTTI__SQUARES_BLOCK);
    return TUTTI_OK;
}

static inline double double_of(uint64_t s)
{
    const double high =
                     double_of_bits((s >> 32) ^ UINT64_C(0x4530000080000000)), /* 2^84 + 2^63 + */
        low = double_of_bits((s & UINT32_MAX) | UINT64_C(0x4330000000000000)); /* 2^52 + */

    return (high - 0x1.00000801p84) + low;
}

/* In blocks, so that the second loop finds them in the cache. */
#define EACH_BLOCK(n)                                                                              \
    for (size_t at = 0, k; at < (n) && (k = (n)-at < BLOCK ? (n)-at : BLOCK, 1); at += BLOCK)

#define ADD(name, T, OF, COMBINE)                                                                  \
    TUTTI__CLONES static int32_t name(T *restrict sums, const float *restrict g, size_t n,         \
                                      double scale, int32_t largest, uint64_t *total)              \
    {                                                                                              \
        T all = 0;                                                                                 \
                                                                                                   \
        EACH_BLOCK(n)                                                                              \
        {                                                                                          \
            largest = largest_of(g + at, k, largest);                                              \
            for (size_t i = at; i < at + k; i++) {                                                 \
                const T term = OF(bits_of((double)g[i] * scale + WHOLE));                          \
                                                                                                   \
                sums[i] = COMBINE(sums[i], term);                                                  \
                all += term;                                                                       \
            }                                                                                      \
        }                                                                                          \
        *total += all;                                                                             \
        return largest;                                                                            \
    }

#define OF_64(bits) ((bits)-WHOLE_BITS)
#define OF_32(bits) ((uint32_t)(bits))
#define BOTH(a, b)  ((a) + (b))
#define LAST(a, b)  (b)
ADD(add_64, uint64_t, OF_64, BOTH)
ADD(put_64, uint64_t, OF_64, LAST)
ADD(add_32, uint32_t, OF_32, BOTH)
ADD(put_32, uint32_t, OF_32, LAST)

static tutti_status fixed_add(tutti_stream *stream, void *sums, const float *g, size_t n,
                              const tutti__fixed *f, bool first, const tutti__fixed_seen *seen)
{
    const double scale = ldexp(1, f->exponent);
    const int32_t so_far = (int32_t)*seen->largest;
    uint64_t *total = seen->total;

    (void)stream;
    *seen->largest =
        (uint32_t)(f->bits == 64 ? (first ? put_64 : add_64)(sums, g, n, scale, so_far, total)
                                 : (first ? put_32 : add_32)(sums, g, n, scale, so_far, total));
    return TUTTI_OK;
}

TUTTI__CLONES static void join_64(uint64_t *restrict sums, const uint64_t *restrict more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += more[i];
}

TUTTI__CLONES static void join_32(uint32_t *restrict sums, const uint32_t *restrict more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += more[i];
}

static tutti_status fixed_join(tutti_stream *stream, void *sums, const void *more, size_t n,
                               const tutti__fixed *f)
{
    (void)stream;
    if (f->bits == 64)
        join_64(sums, more, n);
    else
        join_32(sums, more, n);
    return TUTTI_OK;
}

#define MEAN(name, T, DOUBLE_OF, COMBINE)                                                          \
    TUTTI__CLONES static int32_t name(float *restrict mean, const T *restrict sums, size_t n,      \
                                      double unit, double count, int32_t largest, uint64_t *total) \
    {                                                                                              \
        T all = 0;                                                                                 \
                                                                                                   \
        EACH_BLOCK(n)                                                                              \
        {                                                                                          \
            for (size_t i = at; i < at + k; i++) {                                                 \
                mean[i] = (float)COMBINE(DOUBLE_OF(sums[i]) * unit, count);                        \
                all += sums[i];                                                                    \
            }                                                                                      \
            largest = largest_of(mean + at, k, largest);                                           \
        }                                                                                          \
        *total += all;                                                                             \
        return largest;                                                                            \
    }

#define OF_I32(s)   ((double)(int32_t)(s))
#define OVER(a, b)  ((a) / (b))
#define TIMES(a, b) ((a) * (b))
MEAN(over_64, uint64_t, double_of, OVER)
MEAN(times_64, uint64_t, double_of, TIMES)
MEAN(over_32, uint32_t, OF_I32, OVER)
MEAN(times_32, uint32_t, OF_I32, TIMES)

/* Dividing by a power of two is multiplying by its inverse, with the same bits and much faster. */
static tutti_status fixed_mean(tutti_stream *stream, float *mean, const void *sums, size_t n,
                               const tutti__fixed *f, int count, const tutti__fixed_seen *seen)
{
    const bool times = (count & (count - 1)) == 0, wide = f->bits == 64;
    const double unit = ldexp(1, -f->exponent), by = times ? 1.0 / count : count;
    const int32_t so_far = (int32_t)*seen->largest;
    uint64_t *total = seen->total;

    (void)stream;
    *seen->largest =
        (uint32_t)(wide ? (times ? times_64 : over_64)(mean, sums, n, unit, by, so_far, total)
                        : (times ? times_32 : over_32)(mean, sums, n, unit, by, so_far, total));
    return TUTTI_OK;
}

const tutti__flat_ops tutti__cpu_flat_ops = {
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
