/* l1_loss.c -- |x - target|.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"
#include "tensor/op/loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

tutti_tensor *tutti_l1_loss(tutti_tensor *x, tutti_tensor *target, const tutti_loss_opts *opts)
{
    static const tutti__loss_op loss = {.each = TUTTI__ELEMENTWISE("l1_loss", l1_loss,
                                                                   .shape = shape, .activations = 3,
                                                                   .autocast = TUTTI_OP_F32)};

    if (x && TUTTI__CHECK_RESERVED(tutti_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}
