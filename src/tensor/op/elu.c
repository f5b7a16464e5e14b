/* elu.c -- y = x where x > 0, else alpha (e^x - 1).   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real_f32.h"
#include "tensor/op.h"

TUTTI__CLONES static void elu(float *restrict y, const float *restrict x, int64_t n, float alpha)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i], below = alpha * tutti__expm1_f32(v);

        y[i] = v < 0 ? below : v;
    }
}

TUTTI__CLONES static void elu_backward(float *restrict dx, const float *restrict x,
                                       const float *restrict dy, int64_t n, float alpha)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = dy[i], below = d * (alpha * tutti__exp_f32(x[i]));

        dx[i] = x[i] <= 0 ? below : d;
    }
}

static void forward(const tutti_op_args *p)
{
    elu(p->y, p->src[0], p->count, *(const float *)p->attributes);
}

static void backward(const tutti_op_args *p)
{
    elu_backward(p->dsrc[0], p->src[0], p->dy, p->count, *(const float *)p->attributes);
}

tutti_tensor *tutti_elu(tutti_tensor *x, float alpha)
{
    static const tutti_op op = {.name = "elu",
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, &alpha, sizeof alpha);
}
