/* relu.c -- y = max(x, 0).   SPDX-License-Identifier: MIT
 * Backward reads y, so that x need not be kept. */
#include "tensor/op/elementwise.h"

static tutti_status relu_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->relu_forward ? k->relu_forward(n->dst, n->src[0]) : tutti__plain_forward(n);
}

static tutti_status relu_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->relu_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->relu_backward(dx, n->dst->grad, n->dst);
}

tutti_tensor *tutti_relu(tutti_tensor *x)
{
    static const tutti__op op = {.plain = {.name = "relu",
                                           .forward = tutti__relu_forward,
                                           .backward = tutti__relu_backward,
                                           .elementwise = true,
                                           .backward_reads = TUTTI__READS_relu,
                                           .activations = 1},
                                 .forward = relu_forward,
                                 .backward = relu_backward,
                                 .formula = TUTTI__FORMULA_relu};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
