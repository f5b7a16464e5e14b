/* row_norm.h -- what normalisations of rows share.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_ROW_NORM_H
#define TUTTI_TENSOR_OP_ROW_NORM_H

#include "tensor/op/reduction.h"

/* Of n elements: *mean_p, and 1 / sqrt(variance + eps), biased. centred: else the mean is 0. */
void tutti__row_moments(const float *x, int64_t n, bool centred, double eps, float *mean_p,
                        float *inv_std_p);
/* OK if source i is absent or F32 of this shape. */
tutti_status tutti__norm_weight(const tutti_op_args *p, int i, const char *what, tutti_shape shape);
/* Runs n's forward by a kernel, if there is one, else plain. */
tutti_status tutti__norm_forward(tutti__node *n, const tutti__row_norm *a);
/* Runs n's backward by a kernel, if there is one, else its plain backward with room for `doubles` in tutti__norm_work. */
tutti_status tutti__norm_backward(tutti__node *n, const tutti__row_norm *a, int64_t doubles);
static inline double *tutti__norm_work(const tutti_op_args *p)
{
    return ((const tutti__node *)p->internal)->saved[1];
}

#endif
