/* div.c -- y = a / b.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] / b[i];
}

static void backward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] / b[i];
    for (int64_t i = 0; p->dsrc[1] && i < p->count; i++)
        p->dsrc[1][i] = -p->dy[i] * (a[i] / b[i] / b[i]);
}

tutti_tensor *tutti_div(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti_op op = {.name = "div",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_WIDEST};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
