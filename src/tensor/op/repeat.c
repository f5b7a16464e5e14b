/* repeat.c -- a tensor, or each of its elements, several times.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

typedef struct attributes {
    int dim;
    int64_t times;
} attributes;

static tutti_status repeat_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    dim = tutti__dim_index(a->dim, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (a->times < 0 || (y->d[dim] > 0 && a->times > INT64_MAX / y->d[dim]))
        return tutti__fail(TUTTI_ERR_ARG, "dim %d is repeated %lld times, expected at least 0", dim,
                           (long long)a->times);
    y->d[dim] *= a->times;
    return TUTTI_OK;
}

static bool repeat_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const int dim = tutti__dim_index(a->dim, p->shape.n);

    tutti__block_of_source(p, 0, b);
    b->dst_at = i * b->size[dim] * b->dst_stride[dim];
    return i < a->times;
}

static bool interleave_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const int dim = tutti__dim_index(a->dim, p->shape.n);

    tutti__block_of_source(p, 0, b);
    b->dst_at = i * b->dst_stride[dim];
    b->dst_stride[dim] *= a->times;
    return i < a->times;
}

tutti_tensor *tutti_repeat(tutti_tensor *x, tutti_shape times)
{
    static const tutti__move_op op = {
        .name = "repeat", .shape = repeat_shape, .block = repeat_block, .overlaps = true};
    tutti_shape shape = times;

    if (!x || x->poison != TUTTI_OK)
        return tutti__move_run(&op, &x, 1, &(attributes){0}, sizeof(attributes));
    if (times.n < x->shape.n || times.n > TUTTI_MAX_DIMS)
        return tutti__poisoned(
            x->cx, tutti__fail(TUTTI_ERR_ARG,
                               "repeat: %d numbers for x, which is %s: expected one for each "
                               "dimension, and at most %d",
                               times.n, tutti__shape_text(x->shape), TUTTI_MAX_DIMS));
    for (int i = 0; i < shape.n; i++)
        shape.d[i] = i < shape.n - x->shape.n ? 1 : x->shape.d[i - (shape.n - x->shape.n)];
    if (shape.n > x->shape.n)
        x = tutti_reshape(x, shape);
    for (int i = shape.n - 1; i >= 0; i--)
        if (times.d[i] != 1)
            x = tutti__move_run(&op, &x, 1, &(attributes){i, times.d[i]}, sizeof(attributes));
    return x;
}

tutti_tensor *tutti_repeat_interleave_dim(tutti_tensor *x, int64_t repeats, int dim)
{
    static const tutti__move_op op = {.name = "repeat_interleave",
                                      .shape = repeat_shape,
                                      .block = interleave_block,
                                      .overlaps = true};

    return tutti__move_run(&op, &x, 1, &(attributes){dim, repeats}, sizeof(attributes));
}

tutti_tensor *tutti_repeat_interleave(tutti_tensor *x, int64_t repeats)
{
    if (x && x->poison == TUTTI_OK)
        x = tutti_reshape(x, TUTTI_SHAPE(tutti_shape_count(x->shape)));
    return tutti_repeat_interleave_dim(x, repeats, 0);
}
