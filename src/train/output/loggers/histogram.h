/* histogram.h -- the distribution of a tensor's values.   SPDX-License-Identifier: MIT
 *
 * Buckets grow exponentially on both sides of zero, eight per power of two: a number's bucket is its sign, its exponent and the
 * first three bits of its mantissa, so that counting needs no logarithm. Numbers below 2^-40 (1e-12) are in one
 * bucket around zero. */
#ifndef TUTTI_TRAIN_HISTOGRAM_H
#define TUTTI_TRAIN_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    TUTTI__HISTOGRAM_STEPS = 8 * (127 + 1 + 40),           /* on each side of zero */
    TUTTI__HISTOGRAM_BINS = 2 * TUTTI__HISTOGRAM_STEPS + 1 /* and the one around zero */
};

typedef struct tutti__histogram {
    double min, max, sum, sum_squares;
    uint64_t n;                                /* finite numbers; others are not counted */
    uint32_t counts[TUTTI__HISTOGRAM_BINS];    /* while counting */
    size_t n_buckets;                          /* for the reader */
    double limits[2 * TUTTI__HISTOGRAM_BINS];  /* right edges, ascending */
    double buckets[2 * TUTTI__HISTOGRAM_BINS]; /* count in each */
} tutti__histogram;

/* Between begin and end numbers are counted, fewer than 2^31 (counts of several may be added up meanwhile). The buckets are those that are not empty, each preceded by an empty one if its left
 * neighbour is empty, so that its left edge is known too. */
void tutti__histogram_begin(tutti__histogram *histogram);
void tutti__histogram_add(tutti__histogram *histogram, const float *values, size_t n);
void tutti__histogram_end(tutti__histogram *histogram);

#endif
