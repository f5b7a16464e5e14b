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

/* 2^k e^r with |r| <= log(2) / 2; thirteen terms of e^r leave 4e-18. */
double tutti__exp(double x)
{
    static const double inverse[] = {1,
                                     1. / 2,
                                     1. / 6,
                                     1. / 24,
                                     1. / 120,
                                     1. / 720,
                                     1. / 5040,
                                     1. / 40320,
                                     1. / 362880,
                                     1. / 3628800,
                                     1. / 39916800,
                                     1. / 479001600,
                                     1. / 6227020800};
    double k, r, p = 0;

    if (x != x)
        return x;
    if (x > 709.8)
        return INFINITY;
    if (x < -745.2)
        return 0;
    k = (x * 1.4426950408889634074 + 0x1.8p52) - 0x1.8p52; /* the nearest integer */
    r = (x - k * TUTTI__LN2_HIGH) - k * TUTTI__LN2_LOW;
    for (int i = 12; i >= 0; i--)
        p = r * (inverse[i] + p);
    /* In two steps, since 2^k alone may be no normal number. */
    return (1 + p) * two_to((int)k / 2) * two_to((int)k - (int)k / 2);
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
