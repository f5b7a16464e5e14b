/* tanh.c -- y = tanh(x), the hyperbolic tangent.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real.h"
#include "tensor/op.h"

#include <math.h>

/* (1 - e) / (1 + e) with e = exp(-2|x|), or near 0, where 1 - e loses precision, the first two terms of the series. From |x| = 20
 * on, both sums are 1. */
static inline double tangent(double x)
{
    const double u = fabs(x), e = tutti__exp_normal(-2 * (u > 20 ? 20 : u)); /* NaN stays NaN */
    const double far = (1 - e) / (1 + e), near = u - u * u * u / 3;

    return copysign(u < 1e-3 ? near : far, x); /* also for -0 */
}

TUTTI__CLONES static void tangents(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)tangent((double)x[i]);
}

static void forward(const tutti_op_args *p)
{
    tangents(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * (1 - p->y[i] * p->y[i]);
}

tutti_tensor *tutti_tanh(tutti_tensor *x)
{
    static const tutti_op op = {.name = "tanh",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
