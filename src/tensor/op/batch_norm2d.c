/* batch_norm2d.c -- batch normalisation, with an optional residual and relu in the same pass.
 * SPDX-License-Identifier: MIT
 *   x [N,C,H,W], weight, bias, running mean and variance [C], residual as x   ->   y as x */
#include "tensor/op.h"

typedef struct attributes {
    tutti__batch_norm kernel;
    tutti_tensor *running_mean, *running_var;
} attributes;

/* The tensor must exist and be [C]. */
static tutti_status check_channels(const tutti_tensor *t, const char *what, const tutti_tensor *x)
{
    if (!t)
        return tutti__fail(TUTTI_ERR_ARG, "%s is NULL", what);
    if (t->dtype != TUTTI_F32 || t->shape.n != 1 || t->shape.d[0] != x->shape.d[1])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but %s is %s %s, expected F32 [%lld]",
                           tutti__shape_text(x->shape), what, tutti_dtype_name(t->dtype),
                           tutti__shape_text(t->shape), (long long)x->shape.d[1]);
    return TUTTI_OK;
}

static tutti_status batch_norm2d_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    const tutti_tensor *x = p->sources[0], *residual = p->sources[3];

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    TUTTI_TRY(check_channels(p->sources[1], "weight", x));
    TUTTI_TRY(check_channels(p->sources[2], "bias", x));
    TUTTI_TRY(check_channels(a->running_mean, "running_mean", x));
    TUTTI_TRY(check_channels(a->running_var, "running_var", x));
    if (residual && (residual->dtype != x->dtype || !tutti_shape_equal(residual->shape, x->shape)))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but residual is %s %s",
                           tutti__shape_text(x->shape), tutti_dtype_name(residual->dtype),
                           tutti__shape_text(residual->shape));
    if (a->kernel.training && !a->kernel.peers &&
        x->shape.d[0] * x->shape.d[2] * x->shape.d[3] <= 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s: training needs more than 1 value per channel; use a larger "
                           "batch or an eval step",
                           tutti__shape_text(x->shape));
    *y = x->shape;
    return TUTTI_OK;
}

static tutti_status make_saved(tutti__node *n)
{
    const size_t bytes = (size_t)n->src[0]->shape.d[1] * sizeof(float);
    tutti__batch_norm_saved *saved = n->saved[0] = tutti__step_alloc(n->cx, sizeof *saved);

    if (!saved)
        return TUTTI_ERR_MEMORY;
    *saved = (tutti__batch_norm_saved){.mean = tutti__step_memory(n->cx, bytes),
                                       .inv_std = tutti__step_memory(n->cx, bytes)};
    return saved->mean && saved->inv_std ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status batch_norm2d_forward(tutti__node *n)
{
    const attributes *a = n->attributes;
    const tutti_shape x = n->src[0]->shape;
    tutti_tensor mean = *a->running_mean, var = *a->running_var;
    tutti__batch_norm_saved *saved;

    if (!n->saved[0])
        TUTTI_TRY(make_saved(n));
    saved = n->saved[0];
    saved->count = (double)(x.d[0] * x.d[2] * x.d[3]);
    if (n->cx->recomputing) { /* the running statistics have this batch already */
        mean.data = tutti__step_memory(n->cx, 2 * (size_t)x.d[1] * sizeof(float));
        if (!mean.data)
            return TUTTI_ERR_MEMORY;
        var.data = (float *)mean.data + x.d[1];
    }
    return n->cx->kernels->batch_norm_forward(n->dst, n->src[0], n->src[1], n->src[2], n->src[3],
                                              &mean, &var, &a->kernel, saved);
}

static tutti_status batch_norm2d_backward(tutti__node *n)
{
    const attributes *a = n->attributes;
    tutti_tensor *dx, *dw, *db, *dresidual;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    TUTTI_TRY(tutti__grad_of(n, 3, &dresidual));
    return n->dst->cx->kernels->batch_norm_backward(dx, dw, db, dresidual, n->dst->grad, n->dst,
                                                    n->src[0], n->src[1], &a->kernel, n->saved[0]);
}

tutti_tensor *tutti_functional_batch_norm2d(tutti_tensor *x, const tutti_batch_norm2d_args *given)
{
    static const tutti__op op = {.plain = {.name = "batch_norm2d",
                                           .shape = batch_norm2d_shape,
                                           .activations = 1 << 0 | 1 << 3,
                                           .autocast = TUTTI_OP_WIDEST,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT},
                                 .forward = batch_norm2d_forward,
                                 .backward = batch_norm2d_backward,
                                 .lazy = 1 << 3};
    static const tutti_batch_norm2d_args none;
    const tutti_batch_norm2d_args *args = given ? given : &none; /* without weights: an error */
    const bool training = x && !x->cx->eval;
    const bool several = training && args->peers && args->peers->size > 1;
    const attributes a = {.kernel = {.momentum = (float)tutti__or((double)args->momentum, 0.1),
                                     .eps = (float)tutti__or((double)args->eps, 1e-5),
                                     .training = training,
                                     .relu = args->relu,
                                     .peers = several ? args->peers : NULL},
                          .running_mean = args->running_mean,
                          .running_var = args->running_var};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_batch_norm2d_args, args);

    if (status == TUTTI_OK)
        status = TUTTI__CHECK_RESERVED(tutti_peers, args->peers);
    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    return tutti__op_run(&op, (tutti_tensor *[]){x, args->weight, args->bias, args->residual}, 4,
                         &a, sizeof a);
}
