/* sigmoid.c -- y = 1 / (1 + exp(-x)).   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real.h"
#include "tensor/op.h"

/* For |x| >= 700, y is 0 or 1. NaN stays NaN. */
TUTTI__CLONES static void sigmoids(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i], near = v > 700 ? 700 : v < -700 ? -700 : v;

        y[i] = (float)(1 / (1 + tutti__exp_normal(-near)));
    }
}

static void forward(const tutti_op_args *p)
{
    sigmoids(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * p->y[i] * (1 - p->y[i]);
}

tutti_tensor *tutti_sigmoid(tutti_tensor *x)
{
    static const tutti_op op = {.name = "sigmoid",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
