/* softplus.c -- y = log(1 + exp(beta x)) / beta, but x where beta x > threshold; and logsigmoid: y = -log(1 + exp(-x)).
 * SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/real_f32.h"
#include "tensor/op.h"

typedef struct attributes {
    float beta, threshold;
} attributes;

static tutti_status softplus_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    if (!(a->beta < 0 || a->beta > 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "beta is %g, expected a number other than 0 (PyTorch's default is 1)",
                           (double)a->beta);
    return tutti_op_broadcast(p, y, dtype);
}

TUTTI__CLONES static void softplus(float *restrict y, const float *restrict x, int64_t n,
                                   float beta, float threshold)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i] * beta, soft = tutti__softplus_f32(v) / beta;

        y[i] = v > threshold ? x[i] : soft;
    }
}

TUTTI__CLONES static void softplus_backward(float *restrict dx, const float *restrict x,
                                            const float *restrict dy, int64_t n, float beta,
                                            float threshold)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i] * beta, d = dy[i], soft = d * tutti__sigmoid_f32(v);

        dx[i] = v > threshold ? d : soft;
    }
}

static void forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;

    softplus(p->y, p->src[0], p->count, a->beta, a->threshold);
}

static void backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;

    softplus_backward(p->dsrc[0], p->src[0], p->dy, p->count, a->beta, a->threshold);
}

TUTTI__CLONES static void logsigmoid(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = -tutti__softplus_f32(-x[i]);
}

TUTTI__CLONES static void logsigmoid_backward(float *restrict dx, const float *restrict x,
                                              const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * tutti__sigmoid_f32(-x[i]);
}

static void logsigmoid_plain_forward(const tutti_op_args *p)
{
    logsigmoid(p->y, p->src[0], p->count);
}

static void logsigmoid_plain_backward(const tutti_op_args *p)
{
    logsigmoid_backward(p->dsrc[0], p->src[0], p->dy, p->count);
}

tutti_tensor *tutti_softplus(tutti_tensor *x, float beta, float threshold)
{
    static const tutti_op op = {.name = "softplus",
                                .shape = softplus_shape,
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};
    const attributes a = {beta, threshold};

    return tutti_op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_logsigmoid(tutti_tensor *x)
{
    static const tutti_op op = {.name = "logsigmoid",
                                .forward = logsigmoid_plain_forward,
                                .backward = logsigmoid_plain_backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0,
                                .activations = 1};

    return tutti_op_run(&op, &x, 1, NULL, 0);
}
