/* mul.c -- y = a * b, element by element.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static void forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] * b[i];
}

static void backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++) {
        const float *other = p->src[1 - k];

        for (int64_t i = 0; p->dsrc[k] && i < p->count; i++)
            p->dsrc[k][i] = p->dy[i] * other[i];
    }
}

tutti_tensor *tutti_mul(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti_op op = {.name = "mul",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_WIDEST};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
