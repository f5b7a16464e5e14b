/* mse_loss.c -- mean of (x - target)^2 over all elements.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static tutti_status mse_loss_shape(const tutti__node *n, tutti_shape *loss, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti__check_source(n, 1, "target", NULL, TUTTI_F32));
    if (!tutti_shape_equal(n->src[0]->shape, n->src[1]->shape))
        return tutti__fail(
            TUTTI_ERR_ARG, "x is %s but target is %s; nothing is broadcast, make the shapes equal",
            tutti__shape_text(n->src[0]->shape), tutti__shape_text(n->src[1]->shape));
    *loss = (tutti_shape){0};
    return TUTTI_OK;
}

static tutti_status mse_loss_forward(tutti__node *n)
{
    return n->dst->cx->kernels->mse_forward(n->dst, n->src[0], n->src[1]);
}

/* The loss is symmetric: the target's gradient is that of x with the two exchanged. */
static tutti_status mse_loss_backward(tutti__node *n)
{
    const tutti__kernels *kernels = n->dst->cx->kernels;
    tutti_tensor *dx, *dtarget;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__grad_of(n, 1, &dtarget));
    if (dx)
        TUTTI_TRY(kernels->mse_backward(dx, n->dst->grad, n->src[0], n->src[1]));
    if (dtarget)
        TUTTI_TRY(kernels->mse_backward(dtarget, n->dst->grad, n->src[1], n->src[0]));
    return TUTTI_OK;
}

tutti_tensor *tutti_mse_loss(tutti_tensor *x, tutti_tensor *target)
{
    static const tutti__op op = {.name = "mse_loss",
                                 .shape = mse_loss_shape,
                                 .forward = mse_loss_forward,
                                 .backward = mse_loss_backward,
                                 .backward_reads = 3,
                                 .activations = 3,
                                 .cast = TUTTI__CAST_F32};

    return tutti__op_run(&op, (tutti_tensor *[]){x, target}, 2, NULL, 0);
}
