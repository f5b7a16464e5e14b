/* binary_cross_entropy.c -- of probabilities x in [0, 1]: -(t log x + (1 - t) log(1 - x)) weight, logarithms at least -100; and of
 * logits, in one formula that cannot overflow.   SPDX-License-Identifier: MIT
 * Logits, with f = 1 + (pos_weight - 1) t: ((1 - t) x + f log(1 + exp(-x))) weight. */
#include "tensor/op/elementwise.h"
#include "tensor/op/formulas.h"
#include "tensor/op/loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target", "weight"}, 1 << 2, y);
}

static tutti_status logits_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target", "weight", "pos_weight"},
                             1 << 2 | 1 << 3, y);
}

/* Each y times w; nothing if w is NULL. */
static void weigh(float *y, const float *w, int64_t n)
{
    for (int64_t i = 0; y && w && i < n; i++)
        y[i] *= w[i];
}

/* ---- Probabilities ------------------------------------------------------------------------------- */

TUTTI__CLONES static void entropies(float *restrict y, const float *restrict x,
                                    const float *restrict t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__binary_entropy(x[i], t[i]);
}

TUTTI__CLONES static void target_gradient(float *restrict dt, const float *restrict x,
                                          const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dt[i] = dy[i] * (tutti__log1p_f32(-x[i]) - tutti__log_f32(x[i]));
}

static void forward(const tutti_op_args *p)
{
    entropies(p->y, p->src[0], p->src[1], p->count);
    weigh(p->y, p->src[2], p->count);
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0], *t = p->src[1];

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = tutti__binary_entropy_gradient(x[i], t[i], p->dy[i]);
    weigh(p->dsrc[0], p->src[2], p->count);
    if (p->dsrc[1])
        target_gradient(p->dsrc[1], x, p->dy, p->count);
    weigh(p->dsrc[1], p->src[2], p->count);
    if (p->dsrc[2])
        entropies(p->dsrc[2], x, t, p->count);
    weigh(p->dsrc[2], p->dy, p->count);
}

/* ---- Logits -------------------------------------------------------------------------------------- */

/* more: pos_weight; NULL: 1. Each case has its loop, since gcc does not vectorise one with a choice of pointers. */
TUTTI__CLONES static void logit_entropies(float *restrict y, const float *restrict x,
                                          const float *restrict t, const float *restrict more,
                                          int64_t n)
{
    if (!more) {
        for (int64_t i = 0; i < n; i++)
            y[i] = tutti__logit_entropy(x[i], t[i], 1);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = tutti__logit_entropy(x[i], t[i], more[i]);
}

TUTTI__CLONES static void logit_gradient(float *restrict dx, const float *restrict x,
                                         const float *restrict t, const float *restrict more,
                                         const float *restrict dy, int64_t n)
{
    if (!more) {
        for (int64_t i = 0; i < n; i++)
            dx[i] = tutti__logit_gradient(x[i], t[i], 1, dy[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        dx[i] = tutti__logit_gradient(x[i], t[i], more[i], dy[i]);
}

TUTTI__CLONES static void logit_target_gradient(float *restrict dt, const float *restrict x,
                                                const float *restrict more,
                                                const float *restrict dy, int64_t n)
{
    if (!more) {
        for (int64_t i = 0; i < n; i++)
            dt[i] = -dy[i] * x[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        dt[i] = dy[i] * ((more[i] - 1) * tutti__softplus_f32(-x[i]) - x[i]);
}

TUTTI__CLONES static void pos_weight_gradient(float *restrict dw, const float *restrict x,
                                              const float *restrict t, const float *restrict dy,
                                              int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dw[i] = dy[i] * (t[i] * tutti__softplus_f32(-x[i]));
}

static void logits_forward(const tutti_op_args *p)
{
    logit_entropies(p->y, p->src[0], p->src[1], p->src[3], p->count);
    weigh(p->y, p->src[2], p->count);
}

static void logits_backward(const tutti_op_args *p)
{
    const float *x = p->src[0], *t = p->src[1], *weight = p->src[2], *more = p->src[3];

    if (p->dsrc[0])
        logit_gradient(p->dsrc[0], x, t, more, p->dy, p->count);
    weigh(p->dsrc[0], weight, p->count);
    if (p->dsrc[1])
        logit_target_gradient(p->dsrc[1], x, more, p->dy, p->count);
    weigh(p->dsrc[1], weight, p->count);
    if (p->dsrc[2])
        logit_entropies(p->dsrc[2], x, t, more, p->count);
    weigh(p->dsrc[2], p->dy, p->count);
    if (p->dsrc[3])
        pos_weight_gradient(p->dsrc[3], x, t, p->dy, p->count);
    weigh(p->dsrc[3], weight, p->count);
}

tutti_tensor *tutti_binary_cross_entropy(tutti_tensor *x, tutti_tensor *target,
                                         const tutti_binary_cross_entropy_opts *opts)
{
    static const tutti__loss_op loss = {
        .each = {.plain = {.name = "binary_cross_entropy",
                           .shape = shape,
                           .forward = forward,
                           .backward = backward,
                           .elementwise = true,
                           .backward_reads = TUTTI__READS_binary_cross_entropy,
                           .activations = 7,
                           .autocast = TUTTI_OP_F32},
                 .formula = TUTTI__FORMULA_binary_cross_entropy}};
    const tutti_binary_cross_entropy_opts o = opts ? *opts : (tutti_binary_cross_entropy_opts){0};

    if (x && TUTTI__CHECK_RESERVED(tutti_binary_cross_entropy_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    if (x && o.pos_weight)
        return tutti__poisoned(x->cx,
                               tutti__fail(TUTTI_ERR_ARG,
                                           "binary_cross_entropy: pos_weight is given, which only "
                                           "binary_cross_entropy_with_logits has"));
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target, tutti__loss_weight(x, o.weight)}, 3,
                           o.reduction, NULL, 0);
}

tutti_tensor *tutti_binary_cross_entropy_with_logits(tutti_tensor *x, tutti_tensor *target,
                                                     const tutti_binary_cross_entropy_opts *opts)
{
    static const tutti__loss_op loss = {
        .each = {.plain = {.name = "binary_cross_entropy_with_logits",
                           .shape = logits_shape,
                           .forward = logits_forward,
                           .backward = logits_backward,
                           .elementwise = true,
                           .backward_reads = TUTTI__READS_binary_cross_entropy_with_logits,
                           .activations = 15,
                           .autocast = TUTTI_OP_F32},
                 .formula = TUTTI__FORMULA_binary_cross_entropy_with_logits}};
    const tutti_binary_cross_entropy_opts o = opts ? *opts : (tutti_binary_cross_entropy_opts){0};

    if (x && TUTTI__CHECK_RESERVED(tutti_binary_cross_entropy_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss,
                           (tutti_tensor *[]){x, target, tutti__loss_weight(x, o.weight),
                                              tutti__loss_weight(x, o.pos_weight)},
                           4, o.reduction, NULL, 0);
}
