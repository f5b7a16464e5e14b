/* softmax.h -- what softmax and losses over classes share.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_SOFTMAX_H
#define TUTTI_TENSOR_OP_SOFTMAX_H

#include <stdint.h>

/* The largest of n >= 1 numbers; NaN only if the first is NaN. */
float tutti__largest_of(const float *x, int64_t n);

#endif
