/* cat.c -- tensors behind each other along a dimension.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status cat_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "tensor 0", dtype));
    *y = p->sources[0]->shape;
    if (y->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "tensor 0 is a scalar; tutti_stack joins scalars");
    dim = tutti__dim_index(*(const int *)p->attributes, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    for (int i = 1; i < p->n_src; i++) {
        char name[32];
        tutti_shape x;

        snprintf(name, sizeof name, "tensor %d", i);
        TUTTI_TRY(tutti__move_source(p, i, name, dtype));
        x = p->sources[i]->shape;
        if (dim < x.n)
            x.d[dim] = p->sources[0]->shape.d[dim];
        if (!tutti_shape_equal(x, p->sources[0]->shape))
            return tutti__fail(TUTTI_ERR_ARG,
                               "tensor 0 is %s but tensor %d is %s; they may differ in dim %d only",
                               tutti__shape_text(p->sources[0]->shape), i,
                               tutti__shape_text(p->sources[i]->shape), dim);
        y->d[dim] += p->sources[i]->shape.d[dim];
    }
    return TUTTI_OK;
}

static bool cat_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const int dim = tutti__dim_index(*(const int *)p->attributes, p->shape.n);

    if (i == p->n_src)
        return false;
    tutti__block_of_source(p, i, b);
    for (int k = 0; k < i; k++)
        b->dst_at += p->sources[k]->shape.d[dim] * b->dst_stride[dim];
    return true;
}

tutti_tensor *tutti_cat(tutti_tensor *const *tensors, int n, int dim)
{
    static const tutti__move_op op = {.name = "cat", .shape = cat_shape, .block = cat_block};

    return tutti__move_run(&op, tensors, n, &dim, sizeof dim);
}
