/* real_f32.h -- elementary functions in single precision, in plain arithmetic.   SPDX-License-Identifier: MIT
 *
 * As real.h: no libm, whose last bits depend on the machine, and no branches, so that loops vectorise, with the same bits at any
 * vector width. Each is within 2 ulp for any argument, if its result is not subnormal; NaN of NaN. */
#ifndef TUTTI_BASE_REAL_F32_H
#define TUTTI_BASE_REAL_F32_H

#include "base/real.h"

#define TUTTI__LN2_HIGH_F32 0x1.62e4p-1f /* 15 bits: exact in products with small integers */
#define TUTTI__LN2_LOW_F32  0x1.7f7d1cp-20f

/* 2^k, -126 <= k <= 127 */
TUTTI__FORMULA float tutti__two_to_f32(uint32_t k)
{
    const uint32_t bits = (k + 127) << 23;
    float power;

    memcpy(&power, &bits, sizeof power);
    return power;
}

/* e^(x - rest) = 2^k e^r with |r| <= log(2) / 2, for -104 <= x <= 89 and a small rest: returns e^r - 1, to degree 7 (error 5e-9),
 * and stores k, an integer's bits. */
TUTTI__FORMULA float tutti__expm1_of_rest_f32(float x, float rest, uint32_t *k_p)
{
    const float shifted = x * 1.44269504f + 0x1.8p23f, k = shifted - 0x1.8p23f;
    const float r = (x - k * TUTTI__LN2_HIGH_F32) - (k * TUTTI__LN2_LOW_F32 + rest);
    float p = 1.f / 720 + r * (1.f / 5040);

    p = 1.f / 24 + r * (1.f / 120 + r * p);
    p = 1.f / 2 + r * (1.f / 6 + r * p);
    memcpy(k_p, &shifted, sizeof shifted);
    *k_p -= 0x4b400000u; /* the bits of 0x1.8p23f */
    return r * (1 + r * p);
}

TUTTI__FORMULA float tutti__exp_f32(float x)
{
    const float near = x > 89 ? 89 : x < -104 ? -104 : x;
    uint32_t k, first;
    const float rest = tutti__expm1_of_rest_f32(near, 0, &k);

    /* in two steps, since 2^k itself may overflow or be subnormal */
    first = (uint32_t)((int32_t)k >> 1);
    return (1 + rest) * tutti__two_to_f32(first) * tutti__two_to_f32(k - first);
}

/* e^x - 1 of x <= 0, with full precision near 0, too */
TUTTI__FORMULA float tutti__expm1_f32(float x)
{
    const float near = x < -80 ? -80 : x > 0 ? 0 : x;
    uint32_t k;
    const float rest = tutti__expm1_of_rest_f32(near, 0, &k), power = tutti__two_to_f32(k);

    return rest * power + (power - 1);
}

/* log x, as libm's: e log 2 + log m with sqrt(1/2) < m <= sqrt(2), and log m = 2 atanh s. */
TUTTI__FORMULA float tutti__log_f32(float x)
{
    const uint32_t half_root = 0x3f3504f3u; /* the bits of sqrt(1/2) */
    const float normal = x < 0x1p-126f ? x * 0x1p23f : x, below = x < 0x1p-126f ? 23 : 0;
    float m, s, z, p, e, y;
    uint32_t bits;

    memcpy(&bits, &normal, sizeof bits);
    bits += 0x3f800000u - half_root;
    e = (float)(int32_t)((bits >> 23) - 127u) - below;
    bits = (bits & 0x007fffffu) + half_root;
    memcpy(&m, &bits, sizeof m);
    s = (m - 1) / (m + 1);
    z = s * s;
    p = z * (1.f / 3 + z * (1.f / 5 + z * (1.f / 7 + z * (1.f / 9))));
    /* 2 s = (m - 1) - s (m - 1): the first term is exact */
    y = (m - 1) - (s * (m - 1) - 2 * s * p - e * TUTTI__LN2_LOW_F32);
    y += e * TUTTI__LN2_HIGH_F32;
    y = x < __builtin_inff() ? y : x; /* NaN, too */
    y = x < 0 ? __builtin_nanf("") : y;
    return x == 0 ? -__builtin_inff() : y;
}

/* log(1 + u), -1 <= u <= 1 */
TUTTI__FORMULA float tutti__log1p_f32(float u)
{
    const float sum = 1 + u, lost = u - (sum - 1);

    return tutti__log_f32(sum) + (sum == 0 ? 0 : lost / sum);
}

/* 1 / (1 + exp(-x)) */
TUTTI__FORMULA float tutti__sigmoid_f32(float x)
{
    return 1 / (1 + tutti__exp_f32(-x));
}

/* log(1 + exp(x)) */
TUTTI__FORMULA float tutti__softplus_f32(float x)
{
    const float u = x < 0 ? x : -x;

    return (x > 0 ? x : 0) + tutti__log1p_f32(tutti__exp_f32(u));
}

#endif
