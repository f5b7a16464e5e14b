/* row_norm.c -- what normalisations of rows share.   SPDX-License-Identifier: MIT */
#include "tensor/op/row_norm.h"

#include <math.h>

#define LANES 32

/* Sums of four differences in float, which are then added in double. */
TUTTI__CLONES static double sum_less(const float *x, int64_t n, float less)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)(((x[i + k] - less) + (x[i + LANES + k] - less)) +
                                ((x[i + 2 * LANES + k] - less) + (x[i + 3 * LANES + k] - less)));
    for (; i < n; i++)
        sum += (double)(x[i] - less);
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

static inline float square_less(float x, float less)
{
    return (x - less) * (x - less);
}

TUTTI__CLONES static double squares_less(const float *x, int64_t n, float less)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] +=
                (double)((square_less(x[i + k], less) + square_less(x[i + LANES + k], less)) +
                         (square_less(x[i + 2 * LANES + k], less) +
                          square_less(x[i + 3 * LANES + k], less)));
    for (; i < n; i++)
        sum += (double)square_less(x[i], less);
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

void tutti__row_moments(const float *x, int64_t n, bool centred, double eps, float *mean_p,
                        float *inv_std_p)
{
    /* the mean relative to an element, so that float sums keep their precision if it is large */
    const double mean = centred ? (double)x[0] + sum_less(x, n, x[0]) / (double)n : 0;

    *mean_p = (float)mean;
    *inv_std_p = (float)(1 / sqrt(squares_less(x, n, (float)mean) / (double)n + eps));
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

/* Source i, NULL if there are fewer. */
static tutti_tensor *source(const tutti__node *n, int i)
{
    return i < n->n_src ? n->src[i] : NULL;
}

tutti_status tutti__norm_forward(tutti__node *n, const tutti__row_norm *a)
{
    if (!n->cx->kernels->norm_forward)
        return tutti__plain_forward(n);
    n->saved[0] = tutti__step_memory(n->cx, (size_t)(2 * a->rows + 1) * sizeof(float));
    if (!n->saved[0])
        return TUTTI_ERR_MEMORY;
    return n->cx->kernels->norm_forward(n->dst, n->src[0], source(n, 1), source(n, 2), a,
                                        n->saved[0]);
}

tutti_status tutti__norm_backward(tutti__node *n, const tutti__row_norm *a, int64_t doubles)
{
    const size_t bytes = (size_t)doubles * sizeof(double) + 1;
    tutti_tensor *dsrc[3] = {NULL};
    tutti_status status;

    if (n->cx->kernels->norm_backward) {
        for (int i = 0; i < n->n_src; i++)
            TUTTI_TRY(tutti__grad_of(n, i, &dsrc[i]));
        return n->cx->kernels->norm_backward(dsrc[0], dsrc[1], dsrc[2], n->dst->grad, n->src[0],
                                             source(n, 1), a, n->saved[0]);
    }
    n->saved[1] = tutti__scratch_take(n->cx, bytes);
    if (!n->saved[1])
        return TUTTI_ERR_MEMORY;
    status = tutti__plain_backward(n);
    tutti__scratch_give(n->cx, n->saved[1], bytes);
    n->saved[1] = NULL;
    return status;
}
