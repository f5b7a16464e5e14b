/* squares.c -- sums of squares put together, and their value.   SPDX-License-Identifier: MIT */
#include "device/squares.h"

#include <math.h>

void tutti__squares_raise(tutti__squares *s, uint32_t bits)
{
    const int rise = TUTTI__SQUARES_TOP(bits) - TUTTI__SQUARES_TOP(s->largest);

    if (bits <= s->largest)
        return;
    s->largest = bits;
    if (rise == 0)
        return;
    s->high[1] = rise == 1 ? s->high[0] : 0;
    s->low[1] = rise == 1 ? s->low[0] : 0;
    s->high[0] = s->low[0] = 0;
}

static void add(tutti__squares *s, int k, int64_t high, int64_t low)
{
    const int64_t sum = s->low[k] + (low & UINT32_MAX);

    s->high[k] += high + (low >> 32) + (sum >> 32); /* rounded down */
    s->low[k] = sum & UINT32_MAX;
}

void tutti__squares_add(tutti__squares *s, const tutti__squares *more)
{
    int below;

    tutti__squares_raise(s, more->largest);
    below = TUTTI__SQUARES_TOP(s->largest) - TUTTI__SQUARES_TOP(more->largest);
    for (int k = 0; k + below < 2; k++)
        add(s, k + below, more->high[k], more->low[k]);
}

double tutti__squares_value(const tutti__squares *s)
{
    double part[2];

    if (s->largest >= UINT32_C(0x7f800000))
        return s->largest == UINT32_C(0x7f800000) ? (double)INFINITY : (double)NAN;
    for (int k = 0; k < 2; k++)
        part[k] = (double)s->high[k] * 0x1p32 + (double)s->low[k];
    return ldexp(part[0] + part[1] * 0x1p-52, 52 * TUTTI__SQUARES_TOP(s->largest) - 253);
}
