/* logsumexp.c -- log sum exp(x) over dimensions, without overflow.   SPDX-License-Identifier: MIT */
#include "tensor/op/reduction.h"

#include "tensor/op/formulas.h"

#include <math.h>

TUTTI__FOLD(fold_exp, 0, t + tutti__exp_less(v, g), t + u)

static void slice(const tutti__slice *s, double *result)
{
    double largest[TUTTI__COLUMNS], sum[TUTTI__COLUMNS];

    tutti__max_slice(s, largest);
    tutti__fold_slice(s, &fold_exp, largest, sum);
    for (int64_t i = 0; i < s->columns; i++) /* of no elements: -inf */
        result[i] = fabs(largest[i]) == INFINITY ? largest[i] : largest[i] + tutti__log(sum[i]);
}

static void forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, slice);
}

TUTTI__SPREAD(softmax_part, true, true, false, (double)dy *tutti__exp_less((double)x, (double)y))

static void backward(const tutti_op_args *p)
{
    tutti__spread(p, softmax_part, 0);
}

static tutti_status node_forward(tutti__node *n)
{
    const size_t bytes = (size_t)tutti_shape_count(n->dst->shape) * sizeof(float) + 1;
    float *largest;

    if (!tutti__can_fold(n))
        return tutti__plain_forward(n);
    largest = tutti__step_memory(n->cx, bytes);
    if (!largest)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__fold_by_kernel(n, (tutti__fold_args){.kind = TUTTI__FOLD_MAX}, largest));
    return tutti__fold_by_kernel(n, (tutti__fold_args){.kind = TUTTI__FOLD_EXPS, .given = largest},
                                 NULL);
}

static tutti_status node_backward(tutti__node *n)
{
    return tutti__can_fold(n) ? tutti__spread_by_kernel(n, TUTTI__FORMULA_spread_exps, 0, NULL)
                              : tutti__plain_backward(n);
}

tutti_tensor *tutti_logsumexp(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "logsumexp",
                                           .shape = tutti__reduction_shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                           .activations = 1},
                                 .forward = node_forward,
                                 .backward = node_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}
