/* sum.c -- sums and means, over dimensions or of all elements.   SPDX-License-Identifier: MIT */
#include "tensor/op/reduction.h"

static void sum_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, tutti__sum_slice);
}

static void mean_slice(const tutti__slice *s, double *result)
{
    tutti__sum_slice(s, result);
    for (int64_t i = 0; i < s->columns; i++)
        result[i] /= (double)s->n;
}

static void mean_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, mean_slice);
}

TUTTI__SPREAD(repeat, false, false, false, (double)dy *a)

static void sum_backward(const tutti_op_args *p)
{
    tutti__spread(p, repeat, 1);
}

static void mean_backward(const tutti_op_args *p)
{
    tutti__spread(p, repeat, 1 / (double)tutti__extent_of(p).n);
}

tutti_tensor *tutti_sum_dim(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = {.name = "sum_dim",
                                .shape = tutti__reduction_shape,
                                .forward = sum_forward,
                                .backward = sum_backward,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}

tutti_tensor *tutti_sum(tutti_tensor *x)
{
    static const tutti_op op = {.name = "sum",
                                .shape = tutti__reduction_shape,
                                .forward = sum_forward,
                                .backward = sum_backward,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti__reduction_run(&op, x, (tutti__reduction){{0}, false, 0});
}

tutti_tensor *tutti_mean_dim(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = {.name = "mean_dim",
                                .shape = tutti__reduction_shape,
                                .forward = mean_forward,
                                .backward = mean_backward,
                                .activations = 1};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}

tutti_tensor *tutti_mean(tutti_tensor *x)
{
    static const tutti_op op = {.name = "mean",
                                .shape = tutti__reduction_shape,
                                .forward = mean_forward,
                                .backward = mean_backward,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32}; /* a loss, which must be F32 */

    return tutti__reduction_run(&op, x, (tutti__reduction){{0}, false, 0});
}
