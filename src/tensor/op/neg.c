/* neg.c -- y = -x.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = -x[i];
}

static void backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = -p->dy[i];
}

tutti_tensor *tutti_neg(tutti_tensor *x)
{
    static const tutti_op op = {.name = "neg",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
