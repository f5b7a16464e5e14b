/* smooth_l1_loss.c -- with d = |x - target|: d^2 / (2 beta) where d < beta, else d - beta / 2; and huber_loss, d^2 / 2 up to
 * delta, else delta (d - delta / 2).   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

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

static tutti_status huber_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return check(p, "delta", false, y);
}

tutti_tensor *tutti_smooth_l1_loss(tutti_tensor *x, tutti_tensor *target,
                                   const tutti_smooth_l1_loss_opts *opts)
{
    static const tutti__loss_op loss = {
        .each = TUTTI__ELEMENTWISE("smooth_l1_loss", smooth_l1_loss, .shape = smooth_shape,
                                   .activations = 3, .autocast = TUTTI_OP_F32)};
    const float beta = opts ? (float)tutti__or((double)opts->beta, 1) : 1;

    if (x && TUTTI__CHECK_RESERVED(tutti_smooth_l1_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN,
                           &(tutti__constants){beta, 0}, sizeof(tutti__constants));
}

tutti_tensor *tutti_huber_loss(tutti_tensor *x, tutti_tensor *target,
                               const tutti_huber_loss_opts *opts)
{
    static const tutti__loss_op loss = {
        .each = TUTTI__ELEMENTWISE("huber_loss", huber_loss, .shape = huber_shape, .activations = 3,
                                   .autocast = TUTTI_OP_F32)};
    const float delta = opts ? (float)tutti__or((double)opts->delta, 1) : 1;

    if (x && TUTTI__CHECK_RESERVED(tutti_huber_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN,
                           &(tutti__constants){delta, 0}, sizeof(tutti__constants));
}
