/* add_scalar.c -- y = x + value.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

#include <string.h>

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0], value = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] + value;
}

static void backward(const tutti_op_args *p)
{
    memcpy(p->dsrc[0], p->dy, (size_t)p->count * sizeof *p->dy);
}

tutti_tensor *tutti_add_scalar(tutti_tensor *x, float value)
{
    static const tutti_op op = {.name = "add_scalar",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, &value, sizeof value);
}
