/* add.c -- y = a + b, equal shapes.   SPDX-License-Identifier: MIT
 * Both sources receive the gradient of y itself. */
#include "tensor/op.h"

static tutti_status add_shape(const tutti__node *n, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "a", NULL, TUTTI_F32));
    TUTTI_TRY(tutti__check_source(n, 1, "b", NULL, TUTTI_F32));
    *y = n->src[0]->shape;
    if (!tutti_shape_equal(*y, n->src[1]->shape))
        return tutti__fail(TUTTI_ERR_ARG, "a is %s but b is %s", tutti__shape_text(*y),
                           tutti__shape_text(n->src[1]->shape));
    return TUTTI_OK;
}

static tutti_status add_forward(tutti__node *n)
{
    return n->dst->cx->kernels->add_forward(n->dst, n->src[0], n->src[1]);
}

static tutti_status add_backward(tutti__node *n)
{
    tutti__grad_pass(n, 0, n->dst->grad);
    tutti__grad_pass(n, 1, n->dst->grad);
    return TUTTI_OK;
}

tutti_tensor *tutti_add(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op = {.name = "add",
                                 .shape = add_shape,
                                 .forward = add_forward,
                                 .backward = add_backward,
                                 .activations = 3,
                                 .cast = TUTTI__CAST_WIDEST};

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
