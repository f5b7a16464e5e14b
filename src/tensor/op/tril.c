/* tril.c -- the lower and the upper triangle of matrices, the last two dimensions.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

static tutti_status triangle_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    if (y->n < 2)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected at least two dimensions",
                           tutti__shape_text(*y));
    return TUTTI_OK;
}

/* Columns [first, end) of row i of all matrices. */
static bool row_block(const tutti_op_args *p, int64_t i, int64_t first, int64_t end,
                      tutti__block *b)
{
    const int last = p->shape.n - 1;
    const int64_t columns = p->shape.d[last];

    first = first < 0 ? 0 : first > columns ? columns : first;
    end = end < first ? first : end > columns ? columns : end;
    tutti__block_of_source(p, 0, b);
    b->size[last - 1] = 1;
    b->size[last] = end - first;
    b->src_at = b->dst_at = i * columns + first;
    return i < p->shape.d[last - 1];
}

static bool tril_block(const tutti_op_args *p, int i, tutti__block *b)
{
    return row_block(p, i, 0, i + *(const int64_t *)p->attributes + 1, b);
}

static bool triu_block(const tutti_op_args *p, int i, tutti__block *b)
{
    return row_block(p, i, i + *(const int64_t *)p->attributes, INT64_MAX, b);
}

/* Beyond any matrix, and far from overflow. */
static int64_t clamp(int64_t diagonal)
{
    const int64_t most = INT64_MAX / 4;

    return diagonal < -most ? -most : diagonal > most ? most : diagonal;
}

tutti_tensor *tutti_tril(tutti_tensor *x, int64_t diagonal)
{
    static const tutti__move_op op = {.name = "tril", .shape = triangle_shape, .block = tril_block};
    const int64_t at = clamp(diagonal);

    return tutti__move_run(&op, &x, 1, &at, sizeof at);
}

tutti_tensor *tutti_triu(tutti_tensor *x, int64_t diagonal)
{
    static const tutti__move_op op = {.name = "triu", .shape = triangle_shape, .block = triu_block};
    const int64_t at = clamp(diagonal);

    return tutti__move_run(&op, &x, 1, &at, sizeof at);
}
