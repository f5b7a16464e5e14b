/* likelihood_loss.c -- negative log likelihoods of distributions.   SPDX-License-Identifier: MIT
 *   poisson_nll_loss    e^x - t x of a logarithm x, or x - t log(x + eps); `full` adds log(t!), by Stirling's formula, where t > 1
 *   gaussian_nll_loss   (log v + (x - t)^2 / v) / 2, v = max(variance, eps); `full` adds log(2 pi) / 2 */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

/* ---- Poisson --------------------------------------------------------------------------------------- */

static tutti_status poisson_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

#define POISSON(row)                                                                               \
    {                                                                                              \
        .each = TUTTI__ELEMENTWISE("poisson_nll_loss", row, .shape = poisson_shape,                \
                                   .activations = 3, .autocast = TUTTI_OP_F32)                     \
    }

tutti_tensor *tutti_poisson_nll_loss(tutti_tensor *x, tutti_tensor *target,
                                     const tutti_poisson_nll_loss_opts *opts)
{
    static const tutti__loss_op of_log = POISSON(poisson_nll_loss_of_log);
    static const tutti__loss_op linear = POISSON(poisson_nll_loss);
    const tutti_poisson_nll_loss_opts o = opts ? *opts : (tutti_poisson_nll_loss_opts){0};
    const tutti__constants a = {(float)tutti__or((double)o.eps, 1e-8), o.full};

    if (x && TUTTI__CHECK_RESERVED(tutti_poisson_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(o.linear_input ? &linear : &of_log, (tutti_tensor *[]){x, target}, 2,
                           o.reduction, &a, sizeof a);
}

/* ---- Gauss ------------------------------------------------------------------------------------------ */

static tutti_status gaussian_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__constants *a = p->attributes;

    (void)dtype;
    if (!(a->k0 > 0))
        return tutti__fail(TUTTI_ERR_ARG, "eps is %g, expected more than 0", (double)a->k0);
    return tutti__loss_shape(p, (const char *const[]){"x", "target", "variance"}, 0, y);
}

tutti_tensor *tutti_gaussian_nll_loss(tutti_tensor *x, tutti_tensor *target, tutti_tensor *variance,
                                      const tutti_gaussian_nll_loss_opts *opts)
{
    static const tutti__loss_op loss = {
        .each = TUTTI__ELEMENTWISE("gaussian_nll_loss", gaussian_nll_loss, .shape = gaussian_shape,
                                   .activations = 7, .autocast = TUTTI_OP_F32)};
    const tutti_gaussian_nll_loss_opts o = opts ? *opts : (tutti_gaussian_nll_loss_opts){0};
    const tutti__constants a = {(float)tutti__or((double)o.eps, 1e-6), o.full ? 0.918938533f : 0};

    if (x && TUTTI__CHECK_RESERVED(tutti_gaussian_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target, variance}, 3, o.reduction, &a,
                           sizeof a);
}
