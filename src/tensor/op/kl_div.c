/* kl_div.c -- the Kullback-Leibler divergence of x, log-probabilities, from target: t (log t - x), or with log_target e^t (t - x).
 * SPDX-License-Identifier: MIT */
#include "base/real_f32.h"
#include "tensor/op/loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

TUTTI__CLONES static void divergence(float *restrict y, const float *restrict x,
                                     const float *restrict t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = t[i] * tutti__log_f32(t[i]), entropy = t[i] == 0 ? 0 : v;

        y[i] = entropy - t[i] * x[i];
    }
}

TUTTI__CLONES static void divergence_target_gradient(float *restrict dt, const float *restrict x,
                                                     const float *restrict t,
                                                     const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dt[i] = dy[i] * (tutti__log_f32(t[i]) + 1 - x[i]);
}

static void forward(const tutti_op_args *p)
{
    divergence(p->y, p->src[0], p->src[1], p->count);
}

static void backward(const tutti_op_args *p)
{
    const float *t = p->src[1];

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = -p->dy[i] * t[i];
    if (p->dsrc[1])
        divergence_target_gradient(p->dsrc[1], p->src[0], t, p->dy, p->count);
}

TUTTI__CLONES static void log_forward(const tutti_op_args *p)
{
    const float *x = p->src[0], *t = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = tutti__exp_f32(t[i]) * (t[i] - x[i]);
}

TUTTI__CLONES static void log_backward(const tutti_op_args *p)
{
    const float *x = p->src[0], *t = p->src[1];

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = -p->dy[i] * tutti__exp_f32(t[i]);
    for (int64_t i = 0; p->dsrc[1] && i < p->count; i++)
        p->dsrc[1][i] = p->dy[i] * (tutti__exp_f32(t[i]) * (t[i] - x[i] + 1));
}

#define LOSS(forward_, backward_)                                                                  \
    {                                                                                              \
        .each = {                                                                                  \
            .name = "kl_div",                                                                      \
            .shape = shape,                                                                        \
            .forward = forward_,                                                                   \
            .backward = backward_,                                                                 \
            .elementwise = true,                                                                   \
            .backward_reads = 3,                                                                   \
            .activations = 3,                                                                      \
            .autocast = TUTTI_OP_F32                                                               \
        }                                                                                          \
    }

tutti_tensor *tutti_kl_div(tutti_tensor *x, tutti_tensor *target, const tutti_kl_div_opts *opts)
{
    static const tutti__loss_op plain = LOSS(forward, backward),
                                of_logs = LOSS(log_forward, log_backward);

    if (x && TUTTI__CHECK_RESERVED(tutti_kl_div_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(opts && opts->log_target ? &of_logs : &plain,
                           (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}
