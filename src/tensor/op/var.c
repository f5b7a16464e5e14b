/* var.c -- variance and standard deviation over dimensions.   SPDX-License-Identifier: MIT
 *   sum (x - mean)^2 / max(0, n - correction), in two passes, and its root
 * Kept: the mean. */
#include "tensor/op/reduction.h"

#include <math.h>

TUTTI__FOLD(fold_deviations, 0, t + (v - g) * (v - g), t + u)

static double divisor(const tutti_op_args *p)
{
    const tutti__reduction *r = p->attributes;
    const double n = (double)tutti__extent_of(p).n - r->parameter;

    return n > 0 ? n : 0;
}

static void var_slice(const tutti__slice *s, double *result)
{
    double mean[TUTTI__COLUMNS];
    const double n = divisor(s->p);

    tutti__sum_slice(s, mean);
    for (int64_t i = 0; i < s->columns; i++) {
        mean[i] /= (double)s->n;
        s->p->kept[s->at + i] = (float)mean[i];
    }
    tutti__fold_slice(s, &fold_deviations, mean, result);
    for (int64_t i = 0; i < s->columns; i++)
        result[i] /= n;
}

static void std_slice(const tutti__slice *s, double *result)
{
    var_slice(s, result);
    for (int64_t i = 0; i < s->columns; i++)
        result[i] = sqrt(result[i]);
}

static void var_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, var_slice);
}

static void std_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, std_slice);
}

TUTTI__SPREAD(deviation, true, false, true, ((double)x - (double)kept) * (double)dy * a)
/* 0 where all elements are equal, as in PyTorch */
TUTTI__SPREAD(deviation_by_std, true, true, true,
              y == 0 ? 0 : ((double)x - (double)kept) * (double)dy / (double)y * a)

static void var_backward(const tutti_op_args *p)
{
    tutti__spread(p, deviation, 2 / divisor(p));
}

static void std_backward(const tutti_op_args *p)
{
    tutti__spread(p, deviation_by_std, 1 / divisor(p));
}

/* ---- By kernels: kept, on the device, is the mean of each result ------------------------------- */

static tutti_status var_by_kernel(tutti__node *n, bool root)
{
    const tutti_op_args p = tutti__op_args(n);
    const size_t bytes = (size_t)p.count * sizeof(float) + 1;
    float *mean = n->saved[0] = tutti__step_memory(n->cx, bytes);

    if (!mean)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__fold_by_kernel(
        n, (tutti__fold_args){.kind = TUTTI__FOLD_SUM, .divisor = (double)tutti__extent_of(&p).n},
        mean));
    return tutti__fold_by_kernel(
        n,
        (tutti__fold_args){
            .kind = TUTTI__FOLD_SQUARES, .given = mean, .divisor = divisor(&p), .root = root},
        NULL);
}

static tutti_status var_node_forward(tutti__node *n)
{
    return tutti__can_fold(n) ? var_by_kernel(n, false) : tutti__plain_forward(n);
}

static tutti_status std_node_forward(tutti__node *n)
{
    return tutti__can_fold(n) ? var_by_kernel(n, true) : tutti__plain_forward(n);
}

static tutti_status var_node_backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);

    return tutti__can_fold(n) ? tutti__spread_by_kernel(n, TUTTI__FORMULA_spread_deviation,
                                                        divisor(&p) / 2, n->saved[0])
                              : tutti__plain_backward(n);
}

static tutti_status std_node_backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);

    return tutti__can_fold(n) ? tutti__spread_by_kernel(n, TUTTI__FORMULA_spread_deviation_by_std,
                                                        divisor(&p), n->saved[0])
                              : tutti__plain_backward(n);
}

tutti_tensor *tutti_var_dim(tutti_tensor *x, tutti_dims dims, float correction, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "var_dim",
                                           .shape = tutti__reduction_shape,
                                           .forward = var_forward,
                                           .backward = var_backward,
                                           .keeps = tutti__keeps_one,
                                           .backward_reads = 1 << 0,
                                           .activations = 1},
                                 .forward = var_node_forward,
                                 .backward = var_node_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, (double)correction});
}

tutti_tensor *tutti_std_dim(tutti_tensor *x, tutti_dims dims, float correction, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "std_dim",
                                           .shape = tutti__reduction_shape,
                                           .forward = std_forward,
                                           .backward = std_backward,
                                           .keeps = tutti__keeps_one,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                           .activations = 1},
                                 .forward = std_node_forward,
                                 .backward = std_node_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, (double)correction});
}
