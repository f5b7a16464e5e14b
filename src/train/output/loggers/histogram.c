/* histogram.c -- the distribution of a tensor's values.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/histogram.h"

#include <math.h>
#include <string.h>

enum { MANTISSA_BITS = 3, SHIFT = 23 - MANTISSA_BITS, LOWEST_EXPONENT = 127 - 40 };
#define LOWEST ((uint32_t)LOWEST_EXPONENT << MANTISSA_BITS)

/* The k-th edge above zero: k = 0 is 2^-40. */
static double edge(size_t k)
{
    const uint32_t bits = (LOWEST + (uint32_t)k) << SHIFT;
    float value;

    memcpy(&value, &bits, sizeof value);
    return isfinite(value) ? (double)value : 0x1p128;
}

/* The right edge of bucket i. */
static double limit(size_t i)
{
    const size_t zero = TUTTI__HISTOGRAM_STEPS;

    return i < zero ? -edge(zero - 1 - i) : edge(i - zero);
}

static void count(tutti__histogram *h, float value)
{
    const double x = (double)value;
    uint32_t bits, k;
    size_t bin = TUTTI__HISTOGRAM_STEPS;

    if (!isfinite(value))
        return;
    memcpy(&bits, &value, sizeof bits);
    k = (bits & 0x7fffffff) >> SHIFT;
    if (k >= LOWEST)
        bin = value < 0 ? bin - 1 - (k - LOWEST) : bin + 1 + (k - LOWEST);
    h->counts[bin]++;
    h->min = x < h->min ? x : h->min;
    h->max = x > h->max ? x : h->max;
    h->sum += x;
    h->sum_squares += x * x;
    h->n++;
}

void tutti__histogram_begin(tutti__histogram *h)
{
    memset(h, 0, offsetof(tutti__histogram, limits));
    h->min = INFINITY;
    h->max = -INFINITY;
}

void tutti__histogram_add(tutti__histogram *h, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        count(h, values[i]);
}

void tutti__histogram_end(tutti__histogram *h)
{
    if (h->n == 0)
        h->min = h->max = 0;
    for (size_t i = 0; i < TUTTI__HISTOGRAM_BINS; i++) {
        if (h->counts[i] == 0)
            continue;
        if (i > 0 && h->counts[i - 1] == 0) {
            h->limits[h->n_buckets] = limit(i - 1);
            h->buckets[h->n_buckets++] = 0;
        }
        h->limits[h->n_buckets] = limit(i);
        h->buckets[h->n_buckets++] = h->counts[i];
    }
}
