/* window.c -- [N,C,L] as an image of one row, and zeros behind an image.   SPDX-License-Identifier: MIT */
#include "tensor/op/window.h"
#include "tensor/move.h"

tutti_tensor *tutti__with_row(tutti_tensor *t, const char *op, const char *what, const char *dims)
{
    if (!t || t->poison != TUTTI_OK)
        return t;
    if (t->shape.n != 3) {
        const tutti_status status = tutti__fail(TUTTI_ERR_ARG, "%s: %s is %s, expected %s", op,
                                                what, tutti__shape_text(t->shape), dims);

        return tutti__poisoned(t->cx, status);
    }
    return tutti_reshape(t, TUTTI_SHAPE(t->shape.d[0], t->shape.d[1], 1, t->shape.d[2]));
}

tutti_tensor *tutti__without_row(tutti_tensor *y)
{
    if (!y || y->poison != TUTTI_OK)
        return y;
    return tutti_reshape(y, TUTTI_SHAPE(y->shape.d[0], y->shape.d[1], y->shape.d[3]));
}

static tutti_status zeros_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const int *more = p->attributes;

    *y = p->sources[0]->shape;
    y->d[2] += more[0];
    y->d[3] += more[1];
    return tutti__move_source(p, 0, "x", dtype);
}

static bool zeros_block(const tutti_op_args *p, int i, tutti__block *b)
{
    tutti__block_of_source(p, 0, b);
    return i == 0;
}

tutti_tensor *tutti__with_zeros(tutti_tensor *x, int rows, int columns)
{
    static const tutti__move_op op = {
        .name = "with_zeros", .shape = zeros_shape, .block = zeros_block};
    const int more[2] = {rows, columns};

    if (!x || x->poison != TUTTI_OK || x->shape.n != 4 || (rows == 0 && columns == 0))
        return x;
    return tutti__move_run(&op, &x, 1, more, sizeof more);
}
