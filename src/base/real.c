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
