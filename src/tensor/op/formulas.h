/* formulas.h -- the longer formulas of elementwise.def, for loops on the host and kernels on GPUs.   SPDX-License-Identifier: MIT
 *
 * In plain arithmetic as base/real.h and without branches, so that loops vectorise, with the same bits at any vector width and
 * on GPUs. Values are computed on both sides of a choice before it. */
#ifndef TUTTI_TENSOR_OP_FORMULAS_H
#define TUTTI_TENSOR_OP_FORMULAS_H

#include "base/real.h"
#include "base/real_f32.h"

#include <math.h>
#include <string.h>

/* ---- Powers ----------------------------------------------------------------------------------- */

/* a^b as C's pow, by exp(b log |a|) in double, without branches. */
TUTTI__FORMULA float tutti__power_f32(float a, float b)
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

/* Of one exponent for all elements. */
TUTTI__FORMULA float tutti__power_of(float a, float b)
{
    return b == 1      ? a
           : b == 2    ? a * a
           : b == 3    ? a * a * a
           : b == 0.5f ? sqrtf(a)
                       : tutti__power_f32(a, b);
}

/* d b a^(b - 1), but 0 where b = 0 */
TUTTI__FORMULA float tutti__pow_base_gradient(float a, float b, float d)
{
    const float slope = d * (b * tutti__power_f32(a, b - 1));

    return b == 0 ? 0 : slope;
}

/* d y log a, but 0 where a = 0 and b >= 0 */
TUTTI__FORMULA float tutti__pow_exponent_gradient(float a, float b, float y, float d)
{
    const float slope = d * (y * tutti__log_f32(a));

    return ((a == 0) & (b >= 0)) ? 0 : slope;
}

/* ---- Sigmoid, tanh and what is made of them ---------------------------------------------------- */

/* For |x| >= 700, 0 or 1. NaN stays NaN. */
TUTTI__FORMULA float tutti__sigmoid(float x)
{
    const double v = (double)x, near = v > 700 ? 700 : v < -700 ? -700 : v;

    return (float)(1 / (1 + tutti__exp_normal(-near)));
}

/* (1 - e) / (1 + e) with e = exp(-2|x|), or near 0, where 1 - e loses precision, the first two terms of the series. From |x| = 20
 * on, both sums are 1. */
TUTTI__FORMULA double tutti__tanh(double x)
{
    const double u = fabs(x), e = tutti__exp_normal(-2 * (u > 20 ? 20 : u)); /* NaN stays NaN */
    const double far = (1 - e) / (1 + e), near = u - u * u * u / 3;

    return copysign(u < 1e-3 ? near : far, x); /* also for -0 */
}

TUTTI__FORMULA float tutti__silu_gradient(float x, float d)
{
    const float s = tutti__sigmoid_f32(x);

    return d * (s * (1 + x * (1 - s)));
}

TUTTI__FORMULA float tutti__softplus(float x, float beta, float threshold)
{
    const float v = x * beta, soft = tutti__softplus_f32(v) / beta;

    return v > threshold ? x : soft;
}

TUTTI__FORMULA float tutti__softplus_gradient(float x, float d, float beta, float threshold)
{
    const float v = x * beta, soft = d * tutti__sigmoid_f32(v);

    return v > threshold ? d : soft;
}

TUTTI__FORMULA float tutti__elu(float x, float alpha)
{
    const float below = alpha * tutti__expm1_f32(x);

    return x < 0 ? below : x;
}

TUTTI__FORMULA float tutti__elu_gradient(float x, float d, float alpha)
{
    const float below = d * (alpha * tutti__exp_f32(x));

    return x <= 0 ? below : d;
}

/* ---- GELU -------------------------------------------------------------------------------------- */

/* e^(x - rest) for -87 <= x <= 88 and a small rest: 2^k e^r with |r| <= log(2) / 2, e^r to degree 7: error 5e-9. NaN for NaN. */
TUTTI__FORMULA float tutti__exp_less_f32(float x, float rest)
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

/* P(x) = (1 + erf(x / sqrt 2)) / 2 = erfc(-x / sqrt 2) / 2 */

#define TUTTI__FAR 13.f /* P(-13) = 6e-39 is subnormal */

/* P(-u) / exp(-u^2 / 2) for 0 <= u <= TUTTI__FAR, with a relative error of 1e-8: interpolated at Chebyshev points in t = (u - 3) / (u
 * + 3), in which it is nearly a polynomial (Shepherd, Laframboise: "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <=
 * x < infinity", 1981). */
TUTTI__FORMULA float tutti__scaled_tail(float u)
{
    const float t = (u - 3) / (u + 3);
    float p = 1.15907529e-4f + t * 5.38724426e-5f;

    p = -9.83935285e-4f + t * (-3.3936397e-4f + t * p);
    p = 6.13207575e-3f + t * (2.90439592e-3f + t * p);
    p = 0.123225034f + t * (-0.0462132503f + t * p);
    return 0.121513948f + t * (-0.206402622f + t * p);
}

/* P(x), and *bell_p = exp(-x^2 / 2). Tails have full precision too, because the square of u's high half is exact. */
TUTTI__FORMULA float tutti__cumulative(float x, float *bell_p)
{
    const float u = fabsf(x), near = u > TUTTI__FAR ? TUTTI__FAR : u; /* NaN stays NaN */
    uint32_t bits;
    float high, tail;

    memcpy(&bits, &near, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&high, &bits, sizeof high);
    *bell_p = tutti__exp_less_f32(-0.5f * high * high, 0.5f * (near - high) * (near + high));
    *bell_p = u > TUTTI__FAR ? 0 : *bell_p;
    tail = tutti__scaled_tail(near) * *bell_p;
    return x < 0 ? tail : 1 - tail;
}

TUTTI__FORMULA float tutti__gelu(float x)
{
    float bell;

    return x * tutti__cumulative(x, &bell);
}

/* y' = P(x) + x exp(-x^2 / 2) / sqrt(2 pi) */
TUTTI__FORMULA float tutti__gelu_slope(float x)
{
    float bell, p = tutti__cumulative(x, &bell);

    return p + x * (bell * 0.398942280f);
}

/* With tanh: P(x) = (1 + tanh(v)) / 2 = 1 / (1 + exp(-2v)), v = sqrt(2 / pi) (x + 0.044715 x^3) */

#define TUTTI__GELU_LINEAR 1.59576912f /* 2 sqrt(2 / pi) */
#define TUTTI__GELU_CUBIC  0.0713548163f
#define TUTTI__FAR_TANH    9.98f /* beyond it 1 / P would overflow */

/* Clamps x to +-TUTTI__FAR_TANH; NaN for NaN. */
TUTTI__FORMULA float tutti__near_zero(float x)
{
    return x > TUTTI__FAR_TANH ? TUTTI__FAR_TANH : x < -TUTTI__FAR_TANH ? -TUTTI__FAR_TANH : x;
}

/* P(x), and *odds_p = (1 - P) / P. */
TUTTI__FORMULA float tutti__cumulative_tanh(float x, float *odds_p)
{
    const float near = tutti__near_zero(x);

    *odds_p =
        tutti__exp_less_f32(-near * (TUTTI__GELU_LINEAR + TUTTI__GELU_CUBIC * near * near), 0);
    return x < -TUTTI__FAR_TANH ? 0 : 1 / (1 + *odds_p);
}

TUTTI__FORMULA float tutti__gelu_tanh(float x)
{
    float odds;

    return x * tutti__cumulative_tanh(x, &odds);
}

/* y' = P + x P (1 - P) (2v)' */
TUTTI__FORMULA float tutti__gelu_tanh_slope(float x)
{
    const float near = tutti__near_zero(x);
    const float slope = near * (TUTTI__GELU_LINEAR + 3 * TUTTI__GELU_CUBIC * near * near);
    float odds, p = tutti__cumulative_tanh(x, &odds);

    return p + p * (p * odds) * slope;
}

/* ---- Piecewise linear activations -------------------------------------------------------------- */

/* relu6(x + 3); NaN of NaN */
TUTTI__FORMULA float tutti__ramp(float x)
{
    return x <= -3 ? 0 : x >= 3 ? 6 : x + 3;
}

TUTTI__FORMULA float tutti__hardswish_slope(float x)
{
    const float inner = x / 3 + 0.5f, slope = x >= 3 ? 1 : inner;

    return x <= -3 ? 0 : slope;
}

TUTTI__FORMULA float tutti__hardsigmoid_gradient(float x, float dy)
{
    const float d = dy / 6, below = x < 3 ? d : 0;

    return x > -3 ? below : 0;
}

TUTTI__FORMULA float tutti__clamp(float x, float low, float high)
{
    const float v = x < low ? low : x; /* NaN stays NaN */

    return v > high ? high : v;
}

TUTTI__FORMULA float tutti__clamp_gradient(float x, float d, float low, float high)
{
    const float below = x < high ? d : 0;

    return x > low ? below : 0;
}

TUTTI__FORMULA float tutti__hardtanh_gradient(float x, float d, float low, float high)
{
    const float below = x >= high ? 0 : d;

    return x <= low ? 0 : below;
}

/* ---- Choices ----------------------------------------------------------------------------------- */

TUTTI__FORMULA float tutti__lesser(float a, float b)
{
    const float least = a < b ? a : b;

    return a != a ? a : least;
}

TUTTI__FORMULA float tutti__lesser_gradient(float x, float other, float d)
{
    const float share = x == other ? d / 2 : d;

    return x > other ? 0 : share;
}

TUTTI__FORMULA float tutti__greater(float a, float b)
{
    const float greatest = a > b ? a : b;

    return a != a ? a : greatest;
}

TUTTI__FORMULA float tutti__greater_gradient(float x, float other, float d)
{
    const float share = x == other ? d / 2 : d;

    return x < other ? 0 : share;
}

/* ---- Gradients of reductions ----------------------------------------------------------------------- */

/* e^(v - g), v <= g; 0 or nearly for -inf, NaN for NaN */
TUTTI__FORMULA double tutti__exp_less(double v, double g)
{
    const double d = v - g;

    return tutti__exp_normal(d < -700 ? -700 : d > 700 ? 700 : d);
}

TUTTI__FORMULA float tutti__deviation_by_std(double x, double y, double dy, double mean, double n)
{
    const double slope = (x - mean) * dy / y / n;

    return (float)(y == 0 ? 0 : slope); /* 0 where all elements are equal, as in PyTorch */
}

/* ---- Losses of x and a target t ------------------------------------------------------------------ */

TUTTI__FORMULA float tutti__smooth_l1(float x, float t, float beta)
{
    const float d = fabsf(x - t), near = 0.5f * d * d / beta, far = d - 0.5f * beta;

    return d < beta ? near : far;
}

TUTTI__FORMULA float tutti__smooth_l1_slope(float x, float t, float beta)
{
    const float d = x - t, near = d / beta, far = (float)((d > 0) - (d < 0));

    return fabsf(d) < beta ? near : far;
}

TUTTI__FORMULA float tutti__huber(float x, float t, float delta)
{
    const float d = fabsf(x - t), near = 0.5f * d * d, far = delta * (d - 0.5f * delta);

    return d <= delta ? near : far;
}

TUTTI__FORMULA float tutti__huber_slope(float x, float t, float delta)
{
    const float d = x - t, below = d < -delta ? -delta : d;

    return d > delta ? delta : below;
}

TUTTI__FORMULA float tutti__divergence(float x, float t)
{
    const float v = t * tutti__log_f32(t), entropy = t == 0 ? 0 : v;

    return entropy - t * x;
}

/* Logarithms are at least -100. */
TUTTI__FORMULA float tutti__binary_entropy(float x, float t)
{
    const float log_x = tutti__log_f32(x), log_rest = tutti__log1p_f32(-x);
    const float is = log_x < -100 ? -100 : log_x, is_not = log_rest < -100 ? -100 : log_rest;

    return (t - 1) * is_not - t * is;
}

TUTTI__FORMULA float tutti__binary_entropy_gradient(float x, float t, float d)
{
    const float v = x * (1 - x);

    return d * (x - t) / (v > 1e-12f ? v : 1e-12f);
}

/* Of a logit x; more: the weight of targets that are 1. */
TUTTI__FORMULA float tutti__logit_entropy(float x, float t, float more)
{
    return (1 - t) * x + (1 + (more - 1) * t) * tutti__softplus_f32(-x);
}

TUTTI__FORMULA float tutti__logit_gradient(float x, float t, float more, float d)
{
    return d * ((1 - t) - (1 + (more - 1) * t) * tutti__sigmoid_f32(-x));
}

/* ---- Sizes and their powers -------------------------------------------------------------------- */

TUTTI__FORMULA double tutti__sign(float x)
{
    return (double)(x > 0) - (double)(x < 0);
}

/* x^p for x >= 0 and p != 0, without branches; x is no subnormal */
TUTTI__FORMULA double tutti__magnitude_power(double x, double p)
{
    const double e = p * tutti__log_normal(x), near = e < -708 ? -708 : e > 709 ? 709 : e;
    const double y = e > 709 ? (double)INFINITY : e < -708 ? 0 : tutti__exp_normal(near);
    const double zero = p > 0 ? 0 : (double)INFINITY, infinite = p > 0 ? (double)INFINITY : 0;

    return x == 0 ? zero : x == (double)INFINITY ? infinite : x != x ? x : y;
}

/* ---- Losses with a margin, and likelihoods ----------------------------------------------------- */

TUTTI__FORMULA float tutti__above_zero(float v)
{
    return v < 0 ? 0 : v;
}

/* log(t!) = t log t - t + log(2 pi t) / 2 by Stirling, or 0 up to t = 1 */
TUTTI__FORMULA float tutti__log_factorial(float t)
{
    const float l = t * tutti__log_f32(t) - t + 0.5f * tutti__log_f32((float)(2 * TUTTI__PI) * t);

    return t > 1 ? l : 0;
}

/* Its derivative is log t + 1 / (2 t). */
TUTTI__FORMULA float tutti__log_factorial_slope(float t)
{
    const float slope = tutti__log_f32(t) + 0.5f / t;

    return t > 1 ? slope : 0;
}

/* (log v + (x - t)^2 / v) / 2, v = max(variance, eps) */
TUTTI__FORMULA float tutti__gaussian_nll(float x, float t, float variance, float eps)
{
    const float v = variance < eps ? eps : variance, d = x - t;

    return 0.5f * (tutti__log_f32(v) + d * d / v);
}

/* That of the variance is computed as if it were v, as in PyTorch. */
TUTTI__FORMULA float tutti__gaussian_variance_slope(float x, float t, float variance, float eps)
{
    const float v = variance < eps ? eps : variance, d = x - t;

    return 0.5f * (1 / v - d * d / (v * v));
}

/* ---- Sine and cosine --------------------------------------------------------------------------- */

#define TUTTI__FAR_ANGLE 0x1p19f /* from here on tutti__angle_rest_far */

__extension__ typedef unsigned __int128 tutti__u128;
__extension__ typedef __int128 tutti__i128;

/* For a finite |x| >= 2^19: x - q pi / 2 for the nearest q, of which *quarter_p gets the last two bits.
 * x = m 2^e, and 96 bits of 2 / pi, from the first on whose product with 2^e is no multiple of 4: in x 2 / pi = q + f, f has an
 * error of 2^-70 (Payne, Hanek: "Radian reduction for trigonometric functions", 1983). */
TUTTI__FORMULA double tutti__angle_rest_far(float x, int32_t *quarter_p)
{
    const uint32_t two_over_pi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                    0xdb629599, 0x3c439041, 0xfe5163ab};
    uint32_t bits;
    int e, first, shift;
    tutti__u128 window = 0, product;
    tutti__i128 quarter;
    uint64_t scale_bits;
    double rest, scale;

    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 23 & 0xff) - 150;
    first = e > 2 ? e - 2 : 0;
    for (int i = 0; i < 96; i++)
        window = window << 1 | (two_over_pi[(first + i) / 32] >> (31 - (first + i) % 32) & 1);
    product = window * (bits << 9 >> 9 | 0x800000u);
    shift = 96 + first - e;
    quarter = (tutti__i128)((product + ((tutti__u128)1 << (shift - 1))) >> shift);
    scale_bits = (uint64_t)(1023 - shift) << 52; /* 2^-shift */
    memcpy(&scale, &scale_bits, sizeof scale);
    rest = (double)((tutti__i128)product - (quarter << shift)) * scale * (TUTTI__PI / 2);
    *quarter_p = (int32_t)(quarter & 3);
    if (bits >> 31)
        *quarter_p = -*quarter_p & 3;
    return bits >> 31 ? -rest : rest;
}

/* cos(x + turns pi / 2), on GPUs: the host has a loop (sin.c) */
TUTTI__FORMULA float tutti__turned_cos(float x, int32_t turns)
{
    const double shifted = (double)x * (2 / TUTTI__PI) + 0x1.8p52;
    uint64_t bits;
    int32_t quarter;
    double rest;

    if (!(fabsf(x) < INFINITY))
        return NAN;
    memcpy(&bits, &shifted, sizeof bits);
    quarter = (int32_t)(uint32_t)bits;
    rest = fabsf(x) < TUTTI__FAR_ANGLE ? tutti__angle_rest((double)x, quarter)
                                       : tutti__angle_rest_far(x, &quarter);
    return (float)tutti__cos_of_rest(rest, quarter + turns);
}

#endif
