/* silu.c -- y = x / (1 + exp(-x)), also named swish.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real_f32.h"
#include "tensor/op.h"

TUTTI__CLONES static void silu(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * tutti__sigmoid_f32(x[i]);
}

TUTTI__CLONES static void silu_backward(float *restrict dx, const float *restrict x,
                                        const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = tutti__sigmoid_f32(x[i]);

        dx[i] = dy[i] * (s * (1 + x[i] * (1 - s)));
    }
}

static void forward(const tutti_op_args *p)
{
    silu(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    silu_backward(p->dsrc[0], p->src[0], p->dy, p->count);
}

tutti_tensor *tutti_silu(tutti_tensor *x)
{
    static const tutti_op op = {.name = "silu",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
