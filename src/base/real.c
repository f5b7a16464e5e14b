/* real.c -- elementary functions in plain arithmetic.   SPDX-License-Identifier: MIT */
#include "base/real.h"

#include <math.h>

/* of -1022 to 1023 */
static double two_to(int k)
{
    const uint64_t bits = (uint64_t)(k + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

double tutti__exp(double x)
{
    double shifted, rest;
    int k;

    if (x != x)
        return x;
    if (x > 709.8)
        return INFINITY;
    if (x < -745.2)
        return 0;
    rest = tutti__exp_of_rest(x, &shifted);
    k = (int)(shifted - 0x1.8p52);
    /* In two steps, since 2^k itself may overflow or be subnormal. */
    return rest * two_to(k / 2) * two_to(k - k / 2);
}

double tutti__log(double x)
{
    if (!(x > 0))
        return x == 0 ? -INFINITY : NAN;
    if (x == INFINITY)
        return x;
    if (x < 0x1p-1022)
        return tutti__log_normal(x * 0x1p54) - 54 * (TUTTI__LN2_HIGH + TUTTI__LN2_LOW);
    return tutti__log_normal(x);
}

double tutti__cos_pi(double t)
{
    return tutti__cos_near(TUTTI__PI * t, (int32_t)(2 * t + 0.5));
}

double tutti__power(double base, uint64_t n)
{
    double power = 1;

    for (; n; n >>= 1, base *= base)
        if (n & 1)
            power *= base;
    return power;
}

/* x = m 2^e, and 96 bits of 2 / pi, from the first on whose product with 2^e is no multiple of 4: in x 2 / pi = q + f, f has an
 * error of 2^-70 (Payne, Hanek: "Radian reduction for trigonometric functions", 1983). */
double tutti__angle_rest_far(float x, int32_t *quarter_p)
{
    static const uint32_t two_over_pi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                           0xdb629599, 0x3c439041, 0xfe5163ab};
    uint32_t bits;
    int e, first, shift;
    unsigned __int128 window = 0, product;
    __int128 quarter;
    double rest;

    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 23 & 0xff) - 150;
    first = e > 2 ? e - 2 : 0;
    for (int i = 0; i < 96; i++)
        window = window << 1 | (two_over_pi[(first + i) / 32] >> (31 - (first + i) % 32) & 1);
    product = window * (bits << 9 >> 9 | 0x800000u);
    shift = 96 + first - e;
    quarter = (__int128)((product + ((unsigned __int128)1 << (shift - 1))) >> shift);
    rest = (double)((__int128)product - (quarter << shift)) * two_to(-shift) * (TUTTI__PI / 2);
    *quarter_p = (int32_t)(quarter & 3);
    if (bits >> 31)
        *quarter_p = -*quarter_p & 3;
    return bits >> 31 ? -rest : rest;
}
