/* reciprocal.c -- y = 1 / x.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = 1 / x[i];
}

static void backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = -p->dy[i] * (p->y[i] * p->y[i]);
}

tutti_tensor *tutti_reciprocal(tutti_tensor *x)
{
    static const tutti_op op = {.name = "reciprocal",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
