/* hardswish.c -- y = x relu6(x + 3) / 6, and hardsigmoid: y = relu6(x + 3) / 6.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

/* relu6(x + 3); NaN of NaN */
static inline float ramp(float x)
{
    return x <= -3 ? 0 : x >= 3 ? 6 : x + 3;
}

static void hardswish_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] * ramp(x[i]) / 6;
}

static void hardswish_backward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++) {
        const float inner = x[i] / 3 + 0.5f, slope = x[i] >= 3 ? 1 : inner;

        p->dsrc[0][i] = p->dy[i] * (x[i] <= -3 ? 0 : slope);
    }
}

static void hardsigmoid_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = ramp(x[i]) / 6;
}

static void hardsigmoid_backward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++) {
        const float d = p->dy[i] / 6, below = x[i] < 3 ? d : 0;

        p->dsrc[0][i] = x[i] > -3 ? below : 0;
    }
}

tutti_tensor *tutti_hardswish(tutti_tensor *x)
{
    static const tutti_op op = {.name = "hardswish",
                                .forward = hardswish_forward,
                                .backward = hardswish_backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}

tutti_tensor *tutti_hardsigmoid(tutti_tensor *x)
{
    static const tutti_op op = {.name = "hardsigmoid",
                                .forward = hardsigmoid_forward,
                                .backward = hardsigmoid_backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
