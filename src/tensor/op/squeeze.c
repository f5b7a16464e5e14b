/* squeeze.c -- removes and inserts dimensions of size 1: reshapes.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

typedef struct attributes {
    bool all;
    tutti_dims dims;
} attributes;

static tutti_status squeeze_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    bool chosen[TUTTI_MAX_DIMS] = {false};
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (a->dims.n < 0 || a->dims.n > TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "%d dims, expected at most %d", a->dims.n,
                           TUTTI_MAX_DIMS);
    for (int i = 0; i < a->dims.n; i++) {
        const int dim = tutti__dim_index(a->dims.d[i], x.n);

        if (dim < 0)
            return TUTTI_ERR_ARG;
        if (chosen[dim])
            return tutti__fail(TUTTI_ERR_ARG, "dim %d is given twice", dim);
        chosen[dim] = true;
    }
    *y = (tutti_shape){0};
    for (int i = 0; i < x.n; i++)
        if (x.d[i] != 1 || !(a->all || chosen[i]))
            y->d[y->n++] = x.d[i];
    return TUTTI_OK;
}

static tutti_status unsqueeze_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (x.n == TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected at most %d dimensions",
                           tutti__shape_text(x), TUTTI_MAX_DIMS - 1);
    dim = tutti__dim_index(*(const int *)p->attributes, x.n + 1);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    y->n = x.n + 1;
    for (int i = 0; i < y->n; i++)
        y->d[i] = i == dim ? 1 : x.d[i - (i > dim)];
    return TUTTI_OK;
}

static tutti_tensor *squeeze(tutti_tensor *x, const attributes *a)
{
    static const tutti__op op = {
        .plain = {.name = "squeeze", .shape = squeeze_shape, .activations = 1},
        .forward = tutti__reshape_forward,
        .backward = tutti__reshape_backward};

    return tutti__op_run(&op, &x, 1, a, sizeof *a);
}

tutti_tensor *tutti_squeeze(tutti_tensor *x)
{
    return squeeze(x, &(attributes){.all = true});
}

tutti_tensor *tutti_squeeze_dim(tutti_tensor *x, int dim)
{
    return squeeze(x, &(attributes){.dims = TUTTI_DIMS(dim)});
}

tutti_tensor *tutti_squeeze_dims(tutti_tensor *x, tutti_dims dims)
{
    return squeeze(x, &(attributes){.dims = dims});
}

tutti_tensor *tutti_unsqueeze(tutti_tensor *x, int dim)
{
    static const tutti__op op = {
        .plain = {.name = "unsqueeze", .shape = unsqueeze_shape, .activations = 1},
        .forward = tutti__reshape_forward,
        .backward = tutti__reshape_backward};

    return tutti__op_run(&op, &x, 1, &dim, sizeof dim);
}
