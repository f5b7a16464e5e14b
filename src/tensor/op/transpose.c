/* transpose.c -- two dimensions exchanged.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status transpose_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const int *dims = p->attributes;
    int a, b;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    a = tutti__dim_index(dims[0], y->n);
    b = a < 0 ? a : tutti__dim_index(dims[1], y->n);
    if (b < 0)
        return TUTTI_ERR_ARG;
    y->d[a] = p->sources[0]->shape.d[b];
    y->d[b] = p->sources[0]->shape.d[a];
    return TUTTI_OK;
}

static bool transpose_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const int *dims = p->attributes;
    const int from = tutti__dim_index(dims[0], p->shape.n);
    const int to = tutti__dim_index(dims[1], p->shape.n);
    int64_t stride[TUTTI_MAX_DIMS];

    tutti__block_of_source(p, 0, b);
    tutti__strides(p->shape, stride);
    b->dst_stride[from] = stride[to];
    b->dst_stride[to] = stride[from];
    return i == 0;
}

tutti_tensor *tutti_transpose(tutti_tensor *x, int dim0, int dim1)
{
    static const tutti__move_op op = {
        .name = "transpose", .shape = transpose_shape, .block = transpose_block};

    return tutti__move_run(&op, &x, 1, (int[]){dim0, dim1}, 2 * sizeof(int));
}
