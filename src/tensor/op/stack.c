/* stack.c -- tensors of one shape along a new dimension.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status stack_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "tensor 0", dtype));
    x = p->sources[0]->shape;
    if (x.n == TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "tensor 0 is %s, expected at most %d dimensions",
                           tutti__shape_text(x), TUTTI_MAX_DIMS - 1);
    dim = tutti__dim_index(*(const int *)p->attributes, x.n + 1);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    for (int i = 1; i < p->n_src; i++) {
        char name[32];

        snprintf(name, sizeof name, "tensor %d", i);
        TUTTI_TRY(tutti__move_source(p, i, name, dtype));
        if (!tutti_shape_equal(x, p->sources[i]->shape))
            return tutti__fail(TUTTI_ERR_ARG, "tensor 0 is %s but tensor %d is %s",
                               tutti__shape_text(x), i, tutti__shape_text(p->sources[i]->shape));
    }
    y->n = x.n + 1;
    for (int i = 0; i < y->n; i++)
        y->d[i] = i == dim ? p->n_src : x.d[i - (i > dim)];
    return TUTTI_OK;
}

static bool stack_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const int dim = tutti__dim_index(*(const int *)p->attributes, p->shape.n);
    int64_t stride[TUTTI_MAX_DIMS];

    if (i == p->n_src)
        return false;
    tutti__block_of_source(p, i, b);
    tutti__strides(p->shape, stride);
    for (int k = 0; k < b->n; k++)
        b->dst_stride[k] = stride[k + (k >= dim)];
    b->dst_at = i * stride[dim];
    return true;
}

tutti_tensor *tutti_stack(tutti_tensor *const *tensors, int n, int dim)
{
    static const tutti__move_op op = {.name = "stack", .shape = stack_shape, .block = stack_block};

    return tutti__move_run(&op, tensors, n, &dim, sizeof dim);
}
