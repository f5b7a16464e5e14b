/* smooth_l1_loss.c -- with d = |x - target|: d^2 / (2 beta) where d < beta, else d - beta / 2; and huber_loss, d^2 / 2 up to
 * delta, else delta (d - delta / 2).   SPDX-License-Identifier: MIT */
#include "tensor/op/loss.h"

#include <math.h>

static tutti_status check(const tutti_op_args *p, const char *what, bool may_be_zero,
                          tutti_shape *y)
{
    const float value = *(const float *)p->attributes;

    if (!(may_be_zero ? value >= 0 : value > 0))
        return tutti__fail(TUTTI_ERR_ARG, "%s is %g, expected %s 0", what, (double)value,
                           may_be_zero ? "at least" : "more than");
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

static tutti_status smooth_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return check(p, "beta", true, y);
}

static void smooth_forward(const tutti_op_args *p)
{
    const float *x = p->src[0], *target = p->src[1], beta = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++) {
        const float d = fabsf(x[i] - target[i]), near = 0.5f * d * d / beta, far = d - 0.5f * beta;

        p->y[i] = d < beta ? near : far;
    }
}

static void smooth_gradient(float *restrict dx, const float *restrict x,
                            const float *restrict target, const float *restrict dy, int64_t n,
                            float beta)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = x[i] - target[i], near = d / beta, far = (float)((d > 0) - (d < 0));

        dx[i] = dy[i] * (fabsf(d) < beta ? near : far);
    }
}

/* Both losses are symmetric: the target's gradient is that of x with the two exchanged. */
static void smooth_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++)
        if (p->dsrc[k])
            smooth_gradient(p->dsrc[k], p->src[k], p->src[1 - k], p->dy, p->count,
                            *(const float *)p->attributes);
}

static tutti_status huber_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return check(p, "delta", false, y);
}

static void huber_forward(const tutti_op_args *p)
{
    const float *x = p->src[0], *target = p->src[1], delta = *(const float *)p->attributes;

    for (int64_t i = 0; i < p->count; i++) {
        const float d = fabsf(x[i] - target[i]), near = 0.5f * d * d;
        const float far = delta * (d - 0.5f * delta);

        p->y[i] = d <= delta ? near : far;
    }
}

static void huber_gradient(float *restrict dx, const float *restrict x,
                           const float *restrict target, const float *restrict dy, int64_t n,
                           float delta)
{
    for (int64_t i = 0; i < n; i++) {
        const float d = x[i] - target[i], below = d < -delta ? -delta : d;

        dx[i] = dy[i] * (d > delta ? delta : below);
    }
}

static void huber_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++)
        if (p->dsrc[k])
            huber_gradient(p->dsrc[k], p->src[k], p->src[1 - k], p->dy, p->count,
                           *(const float *)p->attributes);
}

#define LOSS(called, prefix)                                                                       \
    {                                                                                              \
        .each = {                                                                                  \
            .name = called,                                                                        \
            .shape = prefix##_shape,                                                               \
            .forward = prefix##_forward,                                                           \
            .backward = prefix##_backward,                                                         \
            .elementwise = true,                                                                   \
            .backward_reads = 3,                                                                   \
            .activations = 3,                                                                      \
            .autocast = TUTTI_OP_F32                                                               \
        }                                                                                          \
    }

tutti_tensor *tutti_smooth_l1_loss(tutti_tensor *x, tutti_tensor *target,
                                   const tutti_smooth_l1_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS("smooth_l1_loss", smooth);
    const float beta = opts ? (float)tutti__or((double)opts->beta, 1) : 1;

    if (x && TUTTI__CHECK_RESERVED(tutti_smooth_l1_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, &beta, sizeof beta);
}

tutti_tensor *tutti_huber_loss(tutti_tensor *x, tutti_tensor *target,
                               const tutti_huber_loss_opts *opts)
{
    static const tutti__loss_op loss = LOSS("huber_loss", huber);
    const float delta = opts ? (float)tutti__or((double)opts->delta, 1) : 1;

    if (x && TUTTI__CHECK_RESERVED(tutti_huber_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, &delta, sizeof delta);
}
