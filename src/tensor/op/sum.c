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

/* ---- By kernels ------------------------------------------------------------------------------ */

static double count_of(const tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);

    return (double)tutti__extent_of(&p).n;
}

static tutti_status sum_node_forward(tutti__node *n)
{
    return tutti__can_fold(n)
               ? tutti__fold_by_kernel(n, (tutti__fold_args){.kind = TUTTI__FOLD_SUM, .divisor = 1},
                                       NULL)
               : tutti__plain_forward(n);
}

static tutti_status sum_node_backward(tutti__node *n)
{
    return tutti__can_fold(n) ? tutti__spread_by_kernel(n, TUTTI__FORMULA_spread, 1, NULL)
                              : tutti__plain_backward(n);
}

static tutti_status mean_node_forward(tutti__node *n)
{
    return tutti__can_fold(n)
               ? tutti__fold_by_kernel(
                     n, (tutti__fold_args){.kind = TUTTI__FOLD_SUM, .divisor = count_of(n)}, NULL)
               : tutti__plain_forward(n);
}

static tutti_status mean_node_backward(tutti__node *n)
{
    return tutti__can_fold(n) ? tutti__spread_by_kernel(n, TUTTI__FORMULA_spread, count_of(n), NULL)
                              : tutti__plain_backward(n);
}

#define SUM(called)                                                                                \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = tutti__reduction_shape,                                                 \
                  .forward = sum_forward,                                                          \
                  .backward = sum_backward,                                                        \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_F32},                                                       \
        .forward = sum_node_forward, .backward = sum_node_backward                                 \
    }

tutti_tensor *tutti_sum_dim(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = SUM("sum_dim");

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}

tutti_tensor *tutti_sum(tutti_tensor *x)
{
    static const tutti__op op = SUM("sum");

    return tutti__reduction_run(&op, x, (tutti__reduction){{0}, false, 0});
}

tutti_tensor *tutti_mean_dim(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "mean_dim",
                                           .shape = tutti__reduction_shape,
                                           .forward = mean_forward,
                                           .backward = mean_backward,
                                           .activations = 1},
                                 .forward = mean_node_forward,
                                 .backward = mean_node_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}

tutti_tensor *tutti_mean(tutti_tensor *x)
{
    static const tutti__op op = {.plain = {.name = "mean",
                                           .shape = tutti__reduction_shape,
                                           .forward = mean_forward,
                                           .backward = mean_backward,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .forward = mean_node_forward,
                                 .backward = mean_node_backward}; /* a loss, which must be F32 */

    return tutti__reduction_run(&op, x, (tutti__reduction){{0}, false, 0});
}
