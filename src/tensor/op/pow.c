/* pow.c -- y = a^b with broadcasting, and pow_scalar: y = x^exponent.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real.h"
#include "base/real_f32.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

/* a^b as C's pow, by exp(b log |a|) in double, without branches. */
static inline float power(float a, float b)
{
    const float size = fabsf(a);
    const double shifted = (double)b + 0x1.8p52, whole = shifted - 0x1.8p52;
    const int32_t is_large = fabsf(b) >= 0x1p24f; /* then it is whole, and even */
    const int32_t is_whole = is_large | (whole == (double)b);
    const float none = ((a < 0) & !is_whole & (size < INFINITY)) ? NAN : 0;
    double log_size = tutti__log_normal((double)size), v;
    uint64_t odd;
    uint32_t bits, sign;
    float y;

    memcpy(&odd, &shifted, sizeof odd);
    log_size = size < INFINITY ? log_size : (double)size; /* NaN, too */
    log_size = size == 0 ? -(double)INFINITY : log_size;
    v = (double)b * log_size;
    v = v > 700 ? 700 : v;
    v = v < -700 ? -700 : v;
    y = (float)tutti__exp_normal(v);
    memcpy(&sign, &a, sizeof sign);
    sign &= (uint32_t)odd << 31;
    sign = (is_large | !is_whole) ? 0 : sign;
    memcpy(&bits, &y, sizeof bits);
    bits |= sign;
    memcpy(&y, &bits, sizeof y);
    y += none;
    return (b == 0) | (a == 1) | ((a == -1) & (fabsf(b) == INFINITY)) ? 1 : y;
}

TUTTI__CLONES static void powers(float *restrict y, const float *restrict a,
                                 const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = power(a[i], b[i]);
}

/* da = dy b a^(b - 1), but 0 where b = 0 */
TUTTI__CLONES static void base_gradient(float *restrict da, const float *restrict a,
                                        const float *restrict b, const float *restrict dy,
                                        int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = dy[i] * (b[i] * power(a[i], b[i] - 1));

        da[i] = b[i] == 0 ? 0 : d;
    }
}

/* db = dy y log a, but 0 where a = 0 and b >= 0 */
TUTTI__CLONES static void exponent_gradient(float *restrict db, const float *restrict a,
                                            const float *restrict b, const float *restrict y,
                                            const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = dy[i] * (y[i] * tutti__log_f32(a[i]));

        db[i] = ((a[i] == 0) & (b[i] >= 0)) ? 0 : d;
    }
}

static void forward(const tutti_op_args *p)
{
    powers(p->y, p->src[0], p->src[1], p->count);
}

static void backward(const tutti_op_args *p)
{
    if (p->dsrc[0])
        base_gradient(p->dsrc[0], p->src[0], p->src[1], p->dy, p->count);
    if (p->dsrc[1])
        exponent_gradient(p->dsrc[1], p->src[0], p->src[1], p->y, p->dy, p->count);
}

/* ---- One exponent ------------------------------------------------------------------------------ */

/* Any exponent, repeated for the loop over tensors: with one outside the loop, gcc makes branches of its cases. */
static void powers_of_any(float *y, const float *x, int64_t n, float b)
{
    float exponents[256];

    for (int i = 0; i < 256; i++)
        exponents[i] = b;
    for (int64_t i = 0; i < n; i += 256)
        powers(y + i, x + i, exponents, n - i < 256 ? n - i : 256);
}

static void powers_of(float *y, const float *x, int64_t n, float b)
{
    if (b == 1)
        memcpy(y, x, (size_t)n * sizeof *y);
    else if (b == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * x[i];
    else if (b == 3)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * x[i] * x[i];
    else if (b == 0.5f)
        for (int64_t i = 0; i < n; i++)
            y[i] = sqrtf(x[i]);
    else
        powers_of_any(y, x, n, b);
}

static void scalar_forward(const tutti_op_args *p)
{
    powers_of(p->y, p->src[0], p->count, *(const float *)p->attributes);
}

static void scalar_backward(const tutti_op_args *p)
{
    const float b = *(const float *)p->attributes;
    float *dx = p->dsrc[0];

    powers_of(dx, p->src[0], p->count, b - 1);
    for (int64_t i = 0; i < p->count; i++)
        dx[i] = b == 0 ? 0 : p->dy[i] * (b * dx[i]);
}

tutti_tensor *tutti_pow(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti_op op = {.name = "pow",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 3 | TUTTI_OP_RESULT,
                                .activations = 3,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}

tutti_tensor *tutti_pow_scalar(tutti_tensor *x, float exponent)
{
    static const tutti_op op = {.name = "pow_scalar",
                                .forward = scalar_forward,
                                .backward = scalar_backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, &exponent, sizeof exponent);
}
