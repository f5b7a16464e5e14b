/* log.c -- y = log x, the natural logarithm: -inf of 0, NaN of negative numbers.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real_f32.h"
#include "tensor/op.h"

TUTTI__CLONES static void logarithms(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__log_f32(x[i]);
}

static void forward(const tutti_op_args *p)
{
    logarithms(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] / x[i];
}

tutti_tensor *tutti_functional_log(tutti_tensor *x)
{
    static const tutti_op op = {.name = "log",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
