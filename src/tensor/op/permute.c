/* permute.c -- the dimensions in another order.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status permute_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_dims *dims = p->attributes;
    bool used[TUTTI_MAX_DIMS] = {false};
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (dims->n != x.n)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, but %d dims are given", tutti__shape_text(x),
                           dims->n);
    y->n = x.n;
    for (int i = 0; i < x.n; i++) {
        const int dim = tutti__dim_index(dims->d[i], x.n);

        if (dim < 0)
            return TUTTI_ERR_ARG;
        if (used[dim])
            return tutti__fail(TUTTI_ERR_ARG, "dim %d is given twice", dim);
        used[dim] = true;
        y->d[i] = x.d[dim];
    }
    return TUTTI_OK;
}

static bool permute_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const tutti_dims *dims = p->attributes;
    int64_t stride[TUTTI_MAX_DIMS];

    tutti__block_of_source(p, 0, b);
    tutti__strides(p->shape, stride);
    for (int k = 0; k < dims->n; k++)
        b->dst_stride[tutti__dim_index(dims->d[k], dims->n)] = stride[k];
    return i == 0;
}

tutti_tensor *tutti_permute(tutti_tensor *x, tutti_dims dims)
{
    static const tutti__move_op op = {
        .name = "permute", .shape = permute_shape, .block = permute_block};

    return tutti__move_run(&op, &x, 1, &dims, sizeof dims);
}
