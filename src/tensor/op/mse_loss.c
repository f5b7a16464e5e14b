/* mse_loss.c -- (x - target)^2.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

static tutti_status mean_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->mse_forward ? k->mse_forward(n->dst, n->src[0], n->src[1]) : tutti__plain_forward(n);
}

static tutti_status mean_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx, *dtarget;

    if (!k->mse_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__grad_of(n, 1, &dtarget));
    if (dx)
        TUTTI_TRY(k->mse_backward(dx, n->dst->grad, n->src[0], n->src[1]));
    if (dtarget)
        TUTTI_TRY(k->mse_backward(dtarget, n->dst->grad, n->src[1], n->src[0]));
    return TUTTI_OK;
}

tutti_tensor *tutti_mse_loss_with(tutti_tensor *x, tutti_tensor *target,
                                  const tutti_loss_opts *opts)
{
    static const tutti__loss_op loss = {.each = TUTTI__ELEMENTWISE("mse_loss", mse_loss,
                                                                   .shape = shape, .activations = 3,
                                                                   .autocast = TUTTI_OP_F32),
                                        .mean_forward = mean_forward,
                                        .mean_backward = mean_backward};

    if (x && TUTTI__CHECK_RESERVED(tutti_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}

tutti_tensor *tutti_mse_loss(tutti_tensor *x, tutti_tensor *target)
{
    return tutti_mse_loss_with(x, target, NULL);
}
