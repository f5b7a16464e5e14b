/* relu.c -- y = max(x, 0).   SPDX-License-Identifier: MIT
 * Backward looks at y, so that x need not be kept. */
#include "tensor/op.h"

static tutti_status relu_shape(const tutti__node *n, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "x", NULL, TUTTI_F32));
    *y = n->src[0]->shape;
    return TUTTI_OK;
}

static tutti_status relu_forward(tutti__node *n)
{
    return n->dst->cx->kernels->relu_forward(n->dst, n->src[0]);
}

static tutti_status relu_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->relu_backward(dx, n->dst->grad, n->dst);
}

tutti_tensor *tutti_relu(tutti_tensor *x)
{
    static const tutti__op op = {.name = "relu",
                                 .shape = relu_shape,
                                 .forward = relu_forward,
                                 .backward = relu_backward,
                                 .backward_reads = 1 << TUTTI__MAX_SRC,
                                 .activations = 1};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
