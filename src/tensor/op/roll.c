/* roll.c -- elements moved along dimensions, and from their ends to their beginnings.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

typedef struct attributes {
    tutti_shape shifts; /* one for each of dims */
    tutti_dims dims;
} attributes;

static tutti_status roll_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    if (a->dims.n != a->shifts.n || a->dims.n < 0 || a->dims.n > TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%d shifts and %d dims, expected as many of both, at most %d",
                           a->shifts.n, a->dims.n, TUTTI_MAX_DIMS);
    for (int i = 0; i < a->dims.n; i++)
        if (tutti__dim_index(a->dims.d[i], y->n) < 0)
            return TUTTI_ERR_ARG;
    return TUTTI_OK;
}

/* By how many elements dimension k moves, from 0 to its size - 1. */
static int64_t shift_of(const attributes *a, tutti_shape x, int k)
{
    int64_t shift = 0;

    for (int i = 0; i < a->dims.n && x.d[k] > 0; i++)
        if (tutti__dim_index(a->dims.d[i], x.n) == k)
            shift = (shift + a->shifts.d[i] % x.d[k] + x.d[k]) % x.d[k];
    return shift;
}

/* Each dimension that moves has two parts; bits of i say which. */
static bool roll_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;

    tutti__block_of_source(p, 0, b);
    for (int k = 0; k < b->n; k++) {
        const int64_t shift = shift_of(a, p->shape, k), size = b->size[k];

        if (shift == 0)
            continue;
        if (i & 1) {
            b->src_at += (size - shift) * b->src_stride[k];
            b->size[k] = shift;
        } else {
            b->dst_at += shift * b->dst_stride[k];
            b->size[k] = size - shift;
        }
        i >>= 1;
    }
    return i == 0;
}

tutti_tensor *tutti_roll(tutti_tensor *x, tutti_shape shifts, tutti_dims dims)
{
    static const tutti__move_op op = {.name = "roll", .shape = roll_shape, .block = roll_block};
    attributes a = {shifts, dims};
    tutti_tensor *y;

    if (!x || x->poison != TUTTI_OK || dims.n > 0 || shifts.n != 1 || x->shape.n < 2)
        return x && x->shape.n == 0 && shifts.n == 1 ? x
                                                     : tutti__move_run(&op, &x, 1, &a, sizeof a);
    /* without dims: as one dimension */
    a.dims = TUTTI_DIMS(0);
    y = tutti_reshape(x, TUTTI_SHAPE(tutti_shape_count(x->shape)));
    return tutti_reshape(tutti__move_run(&op, &y, 1, &a, sizeof a), x->shape);
}
