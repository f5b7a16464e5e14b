/* square.c -- y = x^2.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] * x[i];
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * (2 * x[i]);
}

/* In PyTorch it is x ** 2, which autocast computes in F32. */
tutti_tensor *tutti_square(tutti_tensor *x)
{
    static const tutti_op op = {.name = "square",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
