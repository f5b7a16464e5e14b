/* histogram.h -- how the numbers of a tensor are spread.   SPDX-License-Identifier: MIT
 *
 * Buckets grow exponentially on both sides of zero, eight to an octave: a number's bucket is its sign, its exponent and the
 * first three bits of its mantissa, so that counting needs no logarithm. What is smaller than 2^-40 (1e-12) lies in one
 * bucket around zero. */
#ifndef TUTTI_TRAIN_HISTOGRAM_H
#define TUTTI_TRAIN_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum {
    TUTTI__HISTOGRAM_STEPS = 8 * (127 + 1 + 40),           /* on each side of zero */
    TUTTI__HISTOGRAM_BINS = 2 * TUTTI__HISTOGRAM_STEPS + 1 /* and the one around it */
};

typedef struct tutti__histogram {
    double min, max, sum, sum_squares;
    uint64_t n;                                /* finite numbers; others are left out */
    uint32_t counts[TUTTI__HISTOGRAM_BINS];    /* while counting */
    size_t n_buckets;                          /* to show */
    double limits[2 * TUTTI__HISTOGRAM_BINS];  /* right edges, rising */
    double buckets[2 * TUTTI__HISTOGRAM_BINS]; /* how many lie in each */
} tutti__histogram;

/* Of n numbers (fewer than 2^32). Buckets to show are those that hold something, each after an empty one where its left
 * neighbour holds nothing, so that its left edge is known too. */
void tutti__histogram_make(tutti__histogram *histogram, const float *values, size_t n);

#endif
