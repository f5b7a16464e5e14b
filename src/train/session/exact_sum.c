/* exact_sum.c -- sums of doubles that do not depend on the order.   SPDX-License-Identifier: MIT */
#include "train/session/exact_sum.h"

#include <math.h>
#include <string.h>

#define DIGIT_BITS 30
#define DIGIT      0x1p30
#define FIRST      0x1p50 /* weight of the first digit */

void tutti__sum_add(int64_t *sum, double value)
{
    const int sign = value < 0 ? -1 : 1;
    double rest = fabs(value) / FIRST;

    if (isnan(value) || !(rest < DIGIT)) {
        sum[isnan(value) ? TUTTI__SUM_NAN : TUTTI__SUM_INFINITE]++;
        return;
    }
    for (int i = 0; i < TUTTI__SUM_DIGITS; i++) {
        const double digit = i + 1 < TUTTI__SUM_DIGITS ? floor(rest) : nearbyint(rest);

        sum[i] += sign * (int64_t)digit;
        rest = (rest - digit) * DIGIT;
    }
}

static tutti__wide add(tutti__wide a, double b)
{
    const double s = a.hi + b, t = s - a.hi, e = (a.hi - (s - t)) + (b - t) + a.lo;
    const double hi = s + e;

    return (tutti__wide){hi, e - (hi - s)};
}

tutti__wide tutti__sum_value(const int64_t *sum)
{
    int64_t digits[TUTTI__SUM_DIGITS];
    double weight = FIRST;
    tutti__wide value;

    if (sum[TUTTI__SUM_NAN] > 0 || sum[TUTTI__SUM_INFINITE] > 0)
        return (tutti__wide){sum[TUTTI__SUM_NAN] > 0 ? NAN : INFINITY, 0};
    memcpy(digits, sum, sizeof digits);
    for (int i = TUTTI__SUM_DIGITS - 1; i > 0; i--) {
        const int64_t below = digits[i] & (((int64_t)1 << DIGIT_BITS) - 1);

        digits[i - 1] += (digits[i] - below) / ((int64_t)1 << DIGIT_BITS);
        digits[i] = below;
    }
    value = (tutti__wide){(double)digits[0] * weight, 0};
    for (int i = 1; i < TUTTI__SUM_DIGITS; i++) {
        weight /= DIGIT;
        value = add(value, (double)digits[i] * weight);
    }
    return value;
}

static tutti__wide product(tutti__wide a, tutti__wide b)
{
    const double hi = a.hi * b.hi;

    return (tutti__wide){hi, fma(a.hi, b.hi, -hi) + (a.hi * b.lo + a.lo * b.hi)};
}

double tutti__wide_spread(double n, tutti__wide a, tutti__wide b)
{
    const tutti__wide left = product((tutti__wide){n, 0}, a), right = product(b, b);

    return (left.hi - right.hi) + (left.lo - right.lo);
}
