/* exact_sum.h -- sums of doubles that do not depend on the order, as integers that ranks add.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_EXACT_SUM_H
#define TUTTI_TRAIN_EXACT_SUM_H

#include "base/base.h"

/* A sum: digits of 30 bits from 2^50 down to 2^-100, then how many addends were NaN, and how many infinite or above 2^80. Two sums
 * are added word by word, up to 2^33 addends in all. */
enum { TUTTI__SUM_DIGITS = 6, TUTTI__SUM_NAN = 6, TUTTI__SUM_INFINITE = 7, TUTTI__SUM_WORDS = 8 };

/* A number as hi + lo, of about 106 bits. */
typedef struct tutti__wide {
    double hi, lo;
} tutti__wide;

/* What is below 2^-101 is lost. */
void tutti__sum_add(int64_t *sum, double value);
/* NaN or infinity if any addend was. */
tutti__wide tutti__sum_value(const int64_t *sum);
/* n a - b^2, which is accurate also if both are much larger than their difference. */
double tutti__wide_spread(double n, tutti__wide a, tutti__wide b);

#endif
