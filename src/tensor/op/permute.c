/* permute.c -- the dimensions in another order: permute, movedim.   SPDX-License-Identifier: MIT */
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

/* ---- movedim --------------------------------------------------------------------------------------------- */

typedef struct moves {
    tutti_dims source, destination;
} moves;

/* Where each dimension of the result comes from; the others keep their order. */
static tutti_status order_of(const moves *m, int n, int *from)
{
    bool used[TUTTI_MAX_DIMS] = {false};
    int next = 0;

    for (int i = 0; i < n; i++)
        from[i] = -1;
    if (m->source.n != m->destination.n)
        return tutti__fail(TUTTI_ERR_ARG, "%d dims are moved to %d, expected as many", m->source.n,
                           m->destination.n);
    for (int i = 0; i < m->source.n; i++) {
        const int a = tutti__dim_index(m->source.d[i], n ? n : 1);
        const int b = a < 0 ? a : tutti__dim_index(m->destination.d[i], n ? n : 1);

        if (b < 0)
            return TUTTI_ERR_ARG;
        if (n > 0 && (used[a] || from[b] >= 0))
            return tutti__fail(TUTTI_ERR_ARG, "dim %d is %s twice", used[a] ? a : b,
                               used[a] ? "moved" : "a destination");
        if (n > 0) {
            used[a] = true;
            from[b] = a;
        }
    }
    for (int i = 0; i < n; i++) {
        if (from[i] >= 0)
            continue;
        while (used[next])
            next++;
        from[i] = next++;
    }
    return TUTTI_OK;
}

static tutti_status movedim_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    int from[TUTTI_MAX_DIMS];
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    TUTTI_TRY(order_of(p->attributes, x.n, from));
    y->n = x.n;
    for (int i = 0; i < x.n; i++)
        y->d[i] = x.d[from[i]];
    return TUTTI_OK;
}

static bool movedim_block(const tutti_op_args *p, int i, tutti__block *b)
{
    int from[TUTTI_MAX_DIMS];
    int64_t stride[TUTTI_MAX_DIMS];

    if (order_of(p->attributes, p->shape.n, from) != TUTTI_OK)
        return false;
    tutti__block_of_source(p, 0, b);
    tutti__strides(p->shape, stride);
    for (int k = 0; k < p->shape.n; k++)
        b->dst_stride[from[k]] = stride[k];
    return i == 0;
}

tutti_tensor *tutti_movedim(tutti_tensor *x, tutti_dims source, tutti_dims destination)
{
    static const tutti__move_op op = {
        .name = "movedim", .shape = movedim_shape, .block = movedim_block};

    return tutti__move_run(&op, &x, 1, &(moves){source, destination}, sizeof(moves));
}
