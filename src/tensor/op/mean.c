/* mean.c -- the mean of all elements, a scalar.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static tutti_status mean_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    *y = (tutti_shape){0};
    return tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32);
}

static void forward(const tutti_op_args *p)
{
    const int64_t count = tutti_shape_count(p->sources[0]->shape);
    const float *x = p->src[0];
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i];
    p->y[0] = (float)(sum / (double)count);
}

static void backward(const tutti_op_args *p)
{
    const int64_t count = tutti_shape_count(p->sources[0]->shape);

    for (int64_t i = 0; i < count; i++)
        p->dsrc[0][i] = p->dy[0] / (float)count;
}

tutti_tensor *tutti_mean(tutti_tensor *x)
{
    static const tutti_op op = {.name = "mean",
                                .shape = mean_shape,
                                .forward = forward,
                                .backward = backward,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
