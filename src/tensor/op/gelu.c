/* gelu.c -- y = x P(x), where P is the normal distribution's cumulative function: the Gaussian error linear unit.
 * SPDX-License-Identifier: MIT
 * Hendrycks, Gimpel: "Gaussian Error Linear Units", 2016; both forms are PyTorch's. All in F32 and without branches, so that
 * loops vectorise, with the same bits at any vector width. */
#include "base/base.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

/* e^(x - rest) for -87 <= x <= 88 and a small rest: 2^k e^r with |r| <= log(2) / 2, e^r to degree 7: error 5e-9. NaN for NaN. */
static inline float exp_less(float x, float rest)
{
    const float bias = 0x1.8p23f + 127; /* a sum with it has k + 127 in its low bits */
    const float shifted = x * 1.44269504f + bias, k = shifted - bias;
    /* the first product is exact */
    const float r = (x - k * 0x1.62e4p-1f) - (k * 0x1.7f7d1cp-20f + rest);
    float p = 1.f / 720 + r * (1.f / 5040), power;
    uint32_t bits;

    p = 1.f / 24 + r * (1.f / 120 + r * p);
    p = 1.f / 2 + r * (1.f / 6 + r * p);
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    memcpy(&power, &bits, sizeof power);
    return (1 + r * (1 + r * p)) * power;
}

/* ---- P(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2 ----------------------------------------------------- */

#define FAR 13.f /* P(-13) = 6e-39 is subnormal */

/* P(-u) / exp(-u^2 / 2) for 0 <= u <= FAR, with a relative error of 1e-8: interpolated at Chebyshev points in t = (u - 3) / (u
 * + 3), in which it is nearly a polynomial (Shepherd, Laframboise: "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <=
 * x < infinity", 1981). */
static inline float scaled_tail(float u)
{
    const float t = (u - 3) / (u + 3);
    float p = 1.15907529e-4f + t * 5.38724426e-5f;

    p = -9.83935285e-4f + t * (-3.3936397e-4f + t * p);
    p = 6.13207575e-3f + t * (2.90439592e-3f + t * p);
    p = 0.123225034f + t * (-0.0462132503f + t * p);
    return 0.121513948f + t * (-0.206402622f + t * p);
}

/* P(x), and *bell_p = exp(-x^2 / 2). Tails have full precision too, because the square of u's high half is exact. */
static inline float cumulative(float x, float *bell_p)
{
    const float u = fabsf(x), near = u > FAR ? FAR : u; /* NaN stays NaN */
    uint32_t bits;
    float half, tail;

    memcpy(&bits, &near, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&half, &bits, sizeof half);
    *bell_p = exp_less(-0.5f * half * half, 0.5f * (near - half) * (near + half));
    *bell_p = u > FAR ? 0 : *bell_p;
    tail = scaled_tail(near) * *bell_p;
    return x < 0 ? tail : 1 - tail;
}

TUTTI__CLONES static void gelu(float *restrict y, const float *restrict x, int64_t n)
{
    float bell;

    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * cumulative(x[i], &bell);
}

/* y' = P(x) + x exp(-x^2 / 2) / sqrt(2 pi) */
TUTTI__CLONES static void gelu_backward(float *restrict dx, const float *restrict x,
                                        const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float bell, p = cumulative(x[i], &bell);

        dx[i] = dy[i] * (p + x[i] * (bell * 0.398942280f));
    }
}

/* ---- With tanh: P(x) = (1 + tanh(v)) / 2 = 1 / (1 + exp(-2v)), v = sqrt(2 / pi) (x + 0.044715 x^3) ------------------ */

#define LINEAR   1.59576912f /* 2 sqrt(2 / pi) */
#define CUBIC    0.0713548163f
#define FAR_TANH 9.98f /* beyond it 1 / P would overflow */

/* Clamps x to +-FAR_TANH; NaN for NaN. */
static inline float near_zero(float x)
{
    return x > FAR_TANH ? FAR_TANH : x < -FAR_TANH ? -FAR_TANH : x;
}

/* P(x), and *odds_p = (1 - P) / P. */
static inline float cumulative_tanh(float x, float *odds_p)
{
    const float near = near_zero(x);

    *odds_p = exp_less(-near * (LINEAR + CUBIC * near * near), 0);
    return x < -FAR_TANH ? 0 : 1 / (1 + *odds_p);
}

TUTTI__CLONES static void gelu_tanh(float *restrict y, const float *restrict x, int64_t n)
{
    float odds;

    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * cumulative_tanh(x[i], &odds);
}

/* y' = P + x P (1 - P) (2v)' */
TUTTI__CLONES static void gelu_tanh_backward(float *restrict dx, const float *restrict x,
                                             const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float near = near_zero(x[i]), slope = near * (LINEAR + 3 * CUBIC * near * near);
        float odds, p = cumulative_tanh(x[i], &odds);

        dx[i] = dy[i] * (p + p * (p * odds) * slope);
    }
}

/* ---- The operation -------------------------------------------------------------------------------------------- */

static bool by_tanh(const tutti_op_args *p)
{
    return *(const tutti_gelu_form *)p->attributes == TUTTI_GELU_TANH;
}

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_gelu_form form = *(const tutti_gelu_form *)p->attributes;

    if (form != TUTTI_GELU_EXACT && form != TUTTI_GELU_TANH)
        return tutti__fail(TUTTI_ERR_ARG,
                           "form is %d, expected TUTTI_GELU_EXACT or TUTTI_GELU_TANH", (int)form);
    return tutti_op_broadcast(p, y, dtype);
}

static void forward(const tutti_op_args *p)
{
    (by_tanh(p) ? gelu_tanh : gelu)(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    (by_tanh(p) ? gelu_tanh_backward : gelu_backward)(p->dsrc[0], p->src[0], p->dy, p->count);
}

tutti_tensor *tutti_gelu(tutti_tensor *x, tutti_gelu_form form)
{
    static const tutti__op op = {.plain = {.name = "gelu",
                                           .shape = shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .elementwise = true,
                                           .backward_reads = 1 << 0,
                                           .activations = 1},
                                 .again = true};

    return tutti__op_run(&op, &x, 1, &form, sizeof form);
}
