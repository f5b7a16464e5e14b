/* leaky_relu.c -- y = x where x > 0, else slope * x.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0], slope = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0], slope = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * (x[i] > 0 ? 1 : slope);
}

tutti_tensor *tutti_leaky_relu(tutti_tensor *x, float negative_slope)
{
    static const tutti_op op = {.name = "leaky_relu",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, &negative_slope, sizeof negative_slope);
}
