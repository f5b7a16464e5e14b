/* likelihood_loss.c -- negative log likelihoods of distributions.   SPDX-License-Identifier: MIT
 *   poisson_nll_loss    e^x - t x of a logarithm x, or x - t log(x + eps); `full` adds log(t!), by Stirling's formula, where t > 1
 *   gaussian_nll_loss   (log v + (x - t)^2 / v) / 2, v = max(variance, eps); `full` adds log(2 pi) / 2 */
#include "base/real_f32.h"
#include "tensor/op/loss.h"

typedef struct attributes {
    float eps;
    bool linear, full;
} attributes;

/* ---- Poisson --------------------------------------------------------------------------------------- */

static tutti_status poisson_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

/* log(t!) = t log t - t + log(2 pi t) / 2, or 0 up to t = 1 */
TUTTI__CLONES static void add_log_factorials(float *restrict y, const float *restrict t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float l = t[i] * tutti__log_f32(t[i]) - t[i] +
                        0.5f * tutti__log_f32((float)(2 * TUTTI__PI) * t[i]);

        y[i] += t[i] > 1 ? l : 0;
    }
}

TUTTI__CLONES static void poisson_forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], *t = p->src[1], eps = a->eps;

    if (a->linear)
        for (int64_t i = 0; i < p->count; i++)
            p->y[i] = x[i] - t[i] * tutti__log_f32(x[i] + eps);
    else
        for (int64_t i = 0; i < p->count; i++)
            p->y[i] = tutti__exp_f32(x[i]) - t[i] * x[i];
    if (a->full)
        add_log_factorials(p->y, t, p->count);
}

/* The derivative of log(t!) is log t + 1 / (2 t). */
TUTTI__CLONES static void poisson_backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], *t = p->src[1];
    float *dx = p->dsrc[0], *dt = p->dsrc[1];

    for (int64_t i = 0; dx && i < p->count; i++)
        dx[i] = p->dy[i] * (a->linear ? 1 - t[i] / (x[i] + a->eps) : tutti__exp_f32(x[i]) - t[i]);
    for (int64_t i = 0; dt && i < p->count; i++) {
        const float more = tutti__log_f32(t[i]) + 0.5f / t[i];
        const float log_x = a->linear ? tutti__log_f32(x[i] + a->eps) : x[i];

        dt[i] = p->dy[i] * ((a->full && t[i] > 1 ? more : 0) - log_x);
    }
}

tutti_tensor *tutti_poisson_nll_loss(tutti_tensor *x, tutti_tensor *target,
                                     const tutti_poisson_nll_loss_opts *opts)
{
    static const tutti__loss_op loss = {.each.plain = {.name = "poisson_nll_loss",
                                                       .shape = poisson_shape,
                                                       .forward = poisson_forward,
                                                       .backward = poisson_backward,
                                                       .elementwise = true,
                                                       .backward_reads = 3,
                                                       .activations = 3,
                                                       .autocast = TUTTI_OP_F32}};
    const tutti_poisson_nll_loss_opts o = opts ? *opts : (tutti_poisson_nll_loss_opts){0};
    const attributes a = {(float)tutti__or((double)o.eps, 1e-8), o.linear_input, o.full};

    if (x && TUTTI__CHECK_RESERVED(tutti_poisson_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2, o.reduction, &a, sizeof a);
}

/* ---- Gauss ------------------------------------------------------------------------------------------ */

static tutti_status gaussian_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    if (!(a->eps > 0))
        return tutti__fail(TUTTI_ERR_ARG, "eps is %g, expected more than 0", (double)a->eps);
    return tutti__loss_shape(p, (const char *const[]){"x", "target", "variance"}, 0, y);
}

TUTTI__CLONES static void gaussian_forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], *t = p->src[1], *var = p->src[2], eps = a->eps;
    const float constant = a->full ? 0.918938533f : 0;

    for (int64_t i = 0; i < p->count; i++) {
        const float v = var[i] < eps ? eps : var[i], d = x[i] - t[i];

        p->y[i] = 0.5f * (tutti__log_f32(v) + d * d / v) + constant;
    }
}

/* That of the variance is computed as if it were v, as in PyTorch. */
static void gaussian_backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], *t = p->src[1], *var = p->src[2], eps = a->eps;

    for (int64_t i = 0; i < p->count; i++) {
        const float v = var[i] < eps ? eps : var[i], d = x[i] - t[i], dy = p->dy[i];

        if (p->dsrc[0])
            p->dsrc[0][i] = dy * d / v;
        if (p->dsrc[1])
            p->dsrc[1][i] = -dy * d / v;
        if (p->dsrc[2])
            p->dsrc[2][i] = 0.5f * dy * (1 / v - d * d / (v * v));
    }
}

tutti_tensor *tutti_gaussian_nll_loss(tutti_tensor *x, tutti_tensor *target, tutti_tensor *variance,
                                      const tutti_gaussian_nll_loss_opts *opts)
{
    static const tutti__loss_op loss = {.each.plain = {.name = "gaussian_nll_loss",
                                                       .shape = gaussian_shape,
                                                       .forward = gaussian_forward,
                                                       .backward = gaussian_backward,
                                                       .elementwise = true,
                                                       .backward_reads = 7,
                                                       .activations = 7,
                                                       .autocast = TUTTI_OP_F32}};
    const tutti_gaussian_nll_loss_opts o = opts ? *opts : (tutti_gaussian_nll_loss_opts){0};
    const attributes a = {(float)tutti__or((double)o.eps, 1e-6), false, o.full};

    if (x && TUTTI__CHECK_RESERVED(tutti_gaussian_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target, variance}, 3, o.reduction, &a,
                           sizeof a);
}
