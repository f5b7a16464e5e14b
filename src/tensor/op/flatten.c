/* flatten.c -- [N, ...] as [N, K]: a reshape.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static tutti_status flatten_shape(const tutti__node *n, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x;

    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "x", NULL, TUTTI_F32));
    x = n->src[0]->shape;
    if (x.n < 2)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected at least two dimensions [N, ...]",
                           tutti__shape_text(x));
    *y = TUTTI_SHAPE(x.d[0], 1);
    for (int i = 1; i < x.n; i++)
        y->d[1] *= x.d[i];
    return TUTTI_OK;
}

tutti_tensor *tutti_flatten(tutti_tensor *x)
{
    static const tutti__op op = {.name = "flatten",
                                 .shape = flatten_shape,
                                 .forward = tutti__reshape_forward,
                                 .backward = tutti__reshape_backward,
                                 .activations = 1};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
