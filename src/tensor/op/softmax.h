/* softmax.h -- a row of log-softmax.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_SOFTMAX_H
#define TUTTI_TENSOR_OP_SOFTMAX_H

#include "base/real.h"

/* log of the sum of exp(x), without overflow */
static inline double tutti__log_sum_exp(const float *x, int64_t n)
{
    float largest = x[0];
    double sum = 0;

    for (int64_t i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < n; i++)
        sum += tutti__exp((double)(x[i] - largest));
    return (double)largest + tutti__log(sum);
}

#endif
