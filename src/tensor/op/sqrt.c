/* sqrt.c -- y = sqrt(x), and rsqrt: y = 1 / sqrt(x).   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

#include <math.h>

/* Root and quotient are rounded as IEEE 754 says, on all machines. */
static void sqrt_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = sqrtf(x[i]);
}

static void sqrt_backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] / (2 * p->y[i]);
}

static void rsqrt_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = 1 / sqrtf(x[i]);
}

static void rsqrt_backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = -0.5f * p->dy[i] * (p->y[i] * p->y[i] * p->y[i]);
}

tutti_tensor *tutti_sqrt(tutti_tensor *x)
{
    static const tutti_op op = {.name = "sqrt",
                                .forward = sqrt_forward,
                                .backward = sqrt_backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}

tutti_tensor *tutti_rsqrt(tutti_tensor *x)
{
    static const tutti_op op = {.name = "rsqrt",
                                .forward = rsqrt_forward,
                                .backward = rsqrt_backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
