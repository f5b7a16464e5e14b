/* logsumexp.c -- log sum exp(x) over dimensions, without overflow.   SPDX-License-Identifier: MIT */
#include "tensor/op/reduction.h"

#include "base/real.h"

#include <math.h>

/* e^(v - g), v <= g; 0 or nearly for -inf, NaN for NaN */
static inline double exp_less(double v, double g)
{
    const double d = v - g;

    return tutti__exp_normal(d < -700 ? -700 : d > 700 ? 700 : d);
}

TUTTI__FOLD(fold_exp, 0, t + exp_less(v, g), t + u)

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

TUTTI__SPREAD(softmax_part, true, true, false, (double)dy *exp_less((double)x, (double)y))

static void backward(const tutti_op_args *p)
{
    tutti__spread(p, softmax_part, 0);
}

tutti_tensor *tutti_logsumexp(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = {.name = "logsumexp",
                                .shape = tutti__reduction_shape,
                                .forward = forward,
                                .backward = backward,
                                .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                .activations = 1};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}
