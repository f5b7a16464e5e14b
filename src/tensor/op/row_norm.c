/* row_norm.c -- what normalisations of rows share.   SPDX-License-Identifier: MIT */
#include "tensor/op/row_norm.h"

#include <math.h>

TUTTI__FOLD(row_sum, 0, t + v, t + u)
TUTTI__FOLD(row_squares, 0, t + (v - g) * (v - g), t + u)

void tutti__row_moments(const float *x, int64_t n, bool centred, double eps, float *mean_p,
                        float *inv_std_p)
{
    const double mean = centred ? row_sum.row(x, n, 0) / (double)n : 0;

    *mean_p = (float)mean;
    *inv_std_p = (float)(1 / sqrt(row_squares.row(x, n, mean) / (double)n + eps));
}

tutti_status tutti__norm_weight(const tutti_op_args *p, int i, const char *what, tutti_shape shape)
{
    const tutti_tensor *t = p->sources[i];

    if (t && (t->dtype != TUTTI_F32 || !tutti_shape_equal(t->shape, shape)))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but %s is %s %s, expected F32 %s",
                           tutti__shape_text(p->sources[0]->shape), what,
                           tutti_dtype_name(t->dtype), tutti__shape_text(t->shape),
                           tutti__shape_text(shape));
    return TUTTI_OK;
}

tutti_status tutti__norm_backward(tutti__node *n, int64_t doubles)
{
    const size_t bytes = (size_t)doubles * sizeof(double) + 1;
    tutti_status status;

    n->saved[1] = tutti__scratch_take(n->cx, bytes);
    if (!n->saved[1])
        return TUTTI_ERR_MEMORY;
    status = tutti__plain_backward(n);
    tutti__scratch_give(n->cx, n->saved[1], bytes);
    n->saved[1] = NULL;
    return status;
}
