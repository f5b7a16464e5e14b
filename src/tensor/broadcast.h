/* broadcast.h -- a narrow tensor read as if it had a wide shape, and gradients of the wide shape summed back.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_BROADCAST_H
#define TUTTI_TENSOR_BROADCAST_H

#include "base/real.h"
#include <tutti/tensor.h>

/* How the elements of a wide shape lie in a narrow tensor, row-major: an element of the narrow one is repeated along the
 * dimensions whose stride is 0. */
typedef struct tutti__broadcast {
    int n; /* dimensions, of the wide shape, outermost first; neighbours that continue each other are one, sizes of 1 left out */
    int64_t size[TUTTI_MAX_DIMS], stride[TUTTI_MAX_DIMS];
    int64_t narrow, wide; /* numbers of elements */
} tutti__broadcast;

/* `narrow` must be broadcast to `wide` (tutti_op_broadcast). */
tutti__broadcast tutti__broadcast_of(tutti_shape narrow, tutti_shape wide);
/* Where element i of the wide shape lies in the narrow tensor. */
TUTTI__FORMULA int64_t tutti__broadcast_at(const tutti__broadcast *b, int64_t i)
{
    int64_t at = 0;

    for (int k = b->n - 1; k >= 0; k--) {
        at += i % b->size[k] * b->stride[k];
        i /= b->size[k];
    }
    return at;
}
/* to[0, n) = elements [from, from + n) of the wide shape. */
void tutti__broadcast_read(const tutti__broadcast *b, float *to, const float *narrow, int64_t from,
                           int64_t n);
/* Each element of narrow = the sum, in double, of those that it was repeated to; 0 for none. The same bits with any number of
 * threads. */
void tutti__broadcast_sum(tutti_ctx *cx, const tutti__broadcast *b, float *narrow,
                          const float *wide);

#endif
