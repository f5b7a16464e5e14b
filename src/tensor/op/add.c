/* add.c -- y = a + b.   SPDX-License-Identifier: MIT
 * Of equal shapes both sources receive the gradient of y itself. */
#include "tensor/op.h"

static void plain_forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] + b[i];
}

static void plain_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; p->dsrc[k] && i < p->count; i++)
            p->dsrc[k][i] = p->dy[i];
}

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
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .elementwise = true,
                                           .activations = 3,
                                           .autocast = TUTTI_OP_WIDEST},
                                 .forward = add_forward,
                                 .backward = add_backward};

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
