/* softmax.c -- softmax and log-softmax over the last dimension.   SPDX-License-Identifier: MIT
 * One operation with two faces; the attribute says whether the logarithm is meant. */
#include "tensor/op.h"

static tutti_status softmax_shape(const tutti__node *n, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "x", NULL, TUTTI_F32));
    *y = n->src[0]->shape;
    if (y->n < 1)
        return tutti__fail(TUTTI_ERR_ARG, "x is a scalar, expected at least one dimension");
    return TUTTI_OK;
}

static tutti_status softmax_forward(tutti__node *n)
{
    return n->dst->cx->kernels->softmax_forward(n->dst, n->src[0], *(const bool *)n->attributes);
}

static tutti_status softmax_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->softmax_backward(dx, n->dst->grad, n->dst,
                                                 *(const bool *)n->attributes);
}

tutti_tensor *tutti_softmax(tutti_tensor *x)
{
    static const tutti__op op = {.name = "softmax",
                                 .shape = softmax_shape,
                                 .forward = softmax_forward,
                                 .backward = softmax_backward,
                                 .backward_reads = 1 << TUTTI__MAX_SRC,
                                 .activations = 1,
                                 .cast = TUTTI__CAST_F32};

    return tutti__op_run(&op, &x, 1, &(bool){false}, sizeof(bool));
}

tutti_tensor *tutti_log_softmax(tutti_tensor *x)
{
    static const tutti__op op = {.name = "log_softmax",
                                 .shape = softmax_shape,
                                 .forward = softmax_forward,
                                 .backward = softmax_backward,
                                 .backward_reads = 1 << TUTTI__MAX_SRC,
                                 .activations = 1,
                                 .cast = TUTTI__CAST_F32};

    return tutti__op_run(&op, &x, 1, &(bool){true}, sizeof(bool));
}
