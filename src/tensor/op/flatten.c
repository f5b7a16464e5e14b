/* flatten.c -- dimensions as one: a reshape.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

/* [N, ...] as [N, K] */
static tutti_status flatten_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (x.n < 2)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected at least two dimensions [N, ...]",
                           tutti__shape_text(x));
    *y = TUTTI_SHAPE(x.d[0], 1);
    for (int i = 1; i < x.n; i++)
        y->d[1] *= x.d[i];
    return TUTTI_OK;
}

static tutti_status flatten_dims_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const int *dims = p->attributes;
    tutti_shape x;
    int start, end;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (x.n == 0) /* becomes [1] */
        x = TUTTI_SHAPE(1);
    start = tutti__dim_index(dims[0], x.n);
    end = start < 0 ? start : tutti__dim_index(dims[1], x.n);
    if (end < 0)
        return TUTTI_ERR_ARG;
    if (end < start)
        return tutti__fail(TUTTI_ERR_ARG, "start_dim %d is after end_dim %d", dims[0], dims[1]);
    *y = (tutti_shape){0};
    for (int i = 0; i < x.n; i++)
        if (i > start && i <= end)
            y->d[y->n - 1] *= x.d[i];
        else
            y->d[y->n++] = x.d[i];
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

tutti_tensor *tutti_flatten_dims(tutti_tensor *x, int start_dim, int end_dim)
{
    static const tutti__op op = {
        .plain = {.name = "flatten", .shape = flatten_dims_shape, .activations = 1},
        .forward = tutti__reshape_forward,
        .backward = tutti__reshape_backward};

    return tutti__op_run(&op, &x, 1, (int[]){start_dim, end_dim}, 2 * sizeof(int));
}
