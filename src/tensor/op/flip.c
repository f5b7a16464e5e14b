/* flip.c -- dimensions in reverse.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status flip_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_dims *dims = p->attributes;
    bool used[TUTTI_MAX_DIMS] = {false};

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    for (int i = 0; i < dims->n; i++) {
        const int dim = tutti__dim_index(dims->d[i], y->n ? y->n : 1);

        if (dim < 0)
            return TUTTI_ERR_ARG;
        if (used[dim])
            return tutti__fail(TUTTI_ERR_ARG, "dim %d is given twice", dim);
        used[dim] = true;
    }
    return TUTTI_OK;
}

static bool flip_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const tutti_dims *dims = p->attributes;

    tutti__block_of_source(p, 0, b);
    for (int k = 0; k < dims->n && b->n > 0; k++) {
        const int dim = tutti__dim_index(dims->d[k], b->n);

        b->src_at += (b->size[dim] - 1) * b->src_stride[dim];
        b->src_stride[dim] = -b->src_stride[dim];
    }
    return i == 0;
}

tutti_tensor *tutti_flip(tutti_tensor *x, tutti_dims dims)
{
    static const tutti__move_op op = {.name = "flip", .shape = flip_shape, .block = flip_block};

    return tutti__move_run(&op, &x, 1, &dims, sizeof dims);
}
