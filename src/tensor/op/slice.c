/* slice.c -- elements start, start + step, ... before end along a dimension, as x[start:end:step] in Python.
 * SPDX-License-Identifier: MIT */
#include "tensor/move.h"

typedef struct attributes {
    int dim;
    int64_t start, end, step;
} attributes;

/* Python's rule: negative positions count from the end, and positions beyond an end are at it. */
static int64_t position(int64_t at, int64_t size)
{
    at += at < 0 ? size : 0;
    return at < 0 ? 0 : at > size ? size : at;
}

static tutti_status slice_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int64_t start, end, size;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    if (y->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "x is a scalar, which has no dimension to be cut");
    dim = tutti__dim_index(a->dim, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (a->step < 1)
        return tutti__fail(TUTTI_ERR_ARG, "step is %lld, expected at least 1", (long long)a->step);
    size = y->d[dim];
    start = position(a->start, size);
    end = position(a->end, size);
    y->d[dim] = end > start ? (end - start + a->step - 1) / a->step : 0;
    if (y->d[dim] == 0 && dim > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "no element of dim %d of x, which is %s, is from %lld on and before "
                           "%lld; only the first dimension may be empty",
                           dim, tutti__shape_text(p->sources[0]->shape), (long long)a->start,
                           (long long)a->end);
    return TUTTI_OK;
}

static bool slice_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const int dim = tutti__dim_index(a->dim, p->shape.n);

    tutti__block_of_source(p, 0, b);
    b->src_at = position(a->start, b->size[dim]) * b->src_stride[dim];
    b->src_stride[dim] *= a->step;
    b->size[dim] = p->shape.d[dim];
    return i == 0;
}

tutti_tensor *tutti_slice(tutti_tensor *x, int dim, int64_t start, int64_t end, int64_t step)
{
    static const tutti__move_op op = {.name = "slice", .shape = slice_shape, .block = slice_block};
    const attributes a = {dim, start, end, step};

    return tutti__move_run(&op, &x, 1, &a, sizeof a);
}
