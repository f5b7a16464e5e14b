/* flat.c -- the CPU's arithmetic over flat memory.   SPDX-License-Identifier: MIT */
#include "device/flat.h"

#include <math.h>
#include <string.h>

#define LANES 8

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

/* ---- Looking at gradients ---- */

TUTTI__CLONES
static void add_squares(const float *restrict g, size_t n, double lanes[restrict LANES])
{
    double sum[LANES];
    size_t i = 0;

    for (int k = 0; k < LANES; k++)
        sum[k] = lanes[k];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)g[i + (size_t)k] * (double)g[i + (size_t)k];
    for (int k = 0; i < n; i++, k++)
        sum[k] += (double)g[i] * (double)g[i];
    for (int k = 0; k < LANES; k++)
        lanes[k] = sum[k];
}

/* In eight lanes over all spans, so that the machine's vectors do not change its bits. */
static tutti_status sum_squares(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                double *sum_p)
{
    double lanes[LANES] = {0};

    (void)stream;
    for (size_t i = 0; i < n; i++)
        add_squares(spans[i].p, spans[i].n, lanes);
    *sum_p = 0;
    for (int k = 0; k < LANES; k++)
        *sum_p += lanes[k];
    return TUTTI_OK;
}

/* g *= factor; whether all were finite before. x * 0 is 0 for every finite x, and NaN for what is not. */
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

/* A number is not finite if all bits of its exponent are set; these look at nothing else, and run at the speed of memory. */
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
    BLOCK = 1024
}; /* elements that leave memory at once: narrow and wide may overlap around them */

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

const tutti__flat_ops tutti__cpu_flat_ops = {
    .fill = fill,
    .scale = scale,
    .count = count,
    .sgd = sgd,
    .adam = adam,
    .sum_squares = sum_squares,
    .unscale = unscale,
    .find_nonfinite = find_nonfinite,
    .narrow = narrow,
    .widen = widen,
};
