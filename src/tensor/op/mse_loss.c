/* mse_loss.c -- mean of (x - target)^2 over all elements.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static tutti_status mse_loss_shape(const tutti_op_args *p, tutti_shape *loss, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "target", NULL, TUTTI_F32));
    if (!tutti_shape_equal(p->sources[0]->shape, p->sources[1]->shape))
        return tutti__fail(
            TUTTI_ERR_ARG, "x is %s but target is %s; nothing is broadcast, make the shapes equal",
            tutti__shape_text(p->sources[0]->shape), tutti__shape_text(p->sources[1]->shape));
    *loss = (tutti_shape){0};
    return TUTTI_OK;
}

static void plain_forward(const tutti_op_args *p)
{
    const int64_t count = tutti_shape_count(p->sources[0]->shape);
    const float *x = p->src[0], *target = p->src[1];
    double sum = 0;

    for (int64_t i = 0; i < count; i++) {
        double d = (double)x[i] - (double)target[i];

        sum += d * d;
    }
    p->y[0] = (float)(sum / (double)count);
}

/* The loss is symmetric: the target's gradient is that of x with the two exchanged. */
static void plain_backward(const tutti_op_args *p)
{
    const int64_t count = tutti_shape_count(p->sources[0]->shape);
    const float scale = 2 * p->dy[0] / (float)count;

    for (int k = 0; k < 2; k++) {
        const float *x = p->src[k], *target = p->src[1 - k];
        float *dx = p->dsrc[k];

        for (int64_t i = 0; dx && i < count; i++)
            dx[i] = scale * (x[i] - target[i]);
    }
}

static tutti_status mse_loss_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->mse_forward ? k->mse_forward(n->dst, n->src[0], n->src[1]) : tutti__plain_forward(n);
}

static tutti_status mse_loss_backward(tutti__node *n)
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

tutti_tensor *tutti_mse_loss(tutti_tensor *x, tutti_tensor *target)
{
    static const tutti__op op = {.plain = {.name = "mse_loss",
                                           .shape = mse_loss_shape,
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .backward_reads = 3,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_F32},
                                 .forward = mse_loss_forward,
                                 .backward = mse_loss_backward};

    return tutti__op_run(&op, (tutti_tensor *[]){x, target}, 2, NULL, 0);
}
