/* add.c -- y = a + b.   SPDX-License-Identifier: MIT
 * Of equal shapes both sources receive the gradient of y itself. */
#include "tensor/op/elementwise.h"

static bool equal_shapes(const tutti__node *n)
{
    return tutti_shape_equal(n->src[0]->shape, n->src[1]->shape);
}

static tutti_status add_forward(tutti__node *n)
{
    if (!equal_shapes(n))
        return tutti__plain_forward(n);
    return n->cx->kernels->add_forward(n->dst, n->src[0], n->src[1]);
}

static tutti_status add_backward(tutti__node *n)
{
    if (!equal_shapes(n))
        return tutti__plain_backward(n);
    tutti__grad_pass(n, 0, n->dst->grad);
    tutti__grad_pass(n, 1, n->dst->grad);
    return TUTTI_OK;
}

tutti_tensor *tutti_add(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op = {.plain = {.name = "add",
                                           .forward = tutti__add_forward,
                                           .backward = tutti__add_backward,
                                           .elementwise = true,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_WIDEST},
                                 .forward = add_forward,
                                 .backward = add_backward,
                                 .formula = TUTTI__FORMULA_add};

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
