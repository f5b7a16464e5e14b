/* exp.c -- y = e^x.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real_f32.h"
#include "tensor/op.h"

TUTTI__CLONES static void exponentials(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__exp_f32(x[i]);
}

static void forward(const tutti_op_args *p)
{
    exponentials(p->y, p->src[0], p->count);
}

static void backward(const tutti_op_args *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * p->y[i];
}

tutti_tensor *tutti_exp(tutti_tensor *x)
{
    static const tutti_op op = {.name = "exp",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = TUTTI_OP_RESULT,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
