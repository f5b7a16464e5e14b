/* abs.c -- y = |x|.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

#include <math.h>

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = fabsf(x[i]);
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * (float)((x[i] > 0) - (x[i] < 0));
}

tutti_tensor *tutti_abs(tutti_tensor *x)
{
    static const tutti_op op = {.name = "abs",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
