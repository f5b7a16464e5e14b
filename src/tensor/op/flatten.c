/* flatten.c -- [N, ...] as [N, K]: a reshape.   SPDX-License-Identifier: MIT */
#include "tensor/op.h"

static tutti_status flatten_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    x = p->sources[0]->shape;
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
    static const tutti__op op = {
        .plain = {.name = "flatten", .shape = flatten_shape, .activations = 1},
        .forward = tutti__reshape_forward,
        .backward = tutti__reshape_backward};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
