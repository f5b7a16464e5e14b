/* linear.c -- y = x w^T + b over the last dimension.   SPDX-License-Identifier: MIT
 *   x [..,K]   w [M,K]   b [M] or NULL   ->   y [..,M]
 * Kernels get two dimensions: the leading ones are folded into rows. */
#include "tensor/op/linear.h"

static bool fits_flattened(tutti_shape x, int64_t features)
{
    return x.n > 2 && x.d[0] > 0 && tutti_shape_count(x) / x.d[0] == features;
}

tutti_status tutti__linear_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x, w;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "weight", "[M,K]", TUTTI_F32));
    x = p->sources[0]->shape;
    w = p->sources[1]->shape;
    if (x.n < 1 || x.d[x.n - 1] != w.d[1])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but weight is %s%s", tutti__shape_text(x),
                           tutti__shape_text(w),
                           fits_flattened(x, w.d[1]) ? "; tutti_flatten(x) would fit" : "");
    if (p->sources[2] && (p->sources[2]->shape.n != 1 || p->sources[2]->shape.d[0] != w.d[0]))
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s", tutti__shape_text(w),
                           tutti__shape_text(p->sources[2]->shape));
    *y = x;
    y->d[x.n - 1] = w.d[0];
    return TUTTI_OK;
}

/* Moves the elements of the folded tensor `twin` to dst, which has no data. */
static tutti_status unfold(tutti_tensor *dst, tutti_tensor *twin)
{
    const void *p;

    if (dst == twin)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_row_major(twin, &p));
    dst->data = (void *)p;
    return TUTTI_OK;
}

static tutti_tensor *twin_of(tutti_tensor *dst)
{
    return dst->shape.n == 2
               ? dst
               : tutti__tensor_new(dst->cx, tutti__shape_rows(dst->shape), dst->dtype);
}

tutti_status tutti__linear_into(tutti_tensor *to, tutti_tensor *x, tutti_tensor *weight,
                                tutti_tensor *bias)
{
    tutti_tensor *rows = tutti__tensor_rows(x), *y = twin_of(to);

    if (!rows || !y)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(to->cx->kernels->linear_forward(y, rows, weight, bias));
    return unfold(to, y);
}

static tutti_status linear_forward(tutti__node *n)
{
    return tutti__linear_into(n->dst, n->src[0], n->src[1], n->src[2]);
}

tutti_status tutti__linear_backward(tutti__node *n)
{
    const tutti__kernels *kernels = n->dst->cx->kernels;
    tutti_tensor *dy = tutti__tensor_rows(n->dst->grad), *x = tutti__tensor_rows(n->src[0]), *dx,
                 *dw, *db, *dx_rows;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    if (!dy || !x)
        return TUTTI_ERR_MEMORY;
    if (dw || db) {
        TUTTI_TRY(kernels->linear_backward_weights(dw, db, dy, x));
        tutti__weights_done(n);
    }
    if (!dx)
        return TUTTI_OK;
    dx_rows = twin_of(dx);
    if (!dx_rows)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(kernels->linear_backward_data(dx_rows, dy, n->src[1]));
    return unfold(dx, dx_rows);
}

double tutti__linear_flops(const tutti__node *n)
{
    return 2.0 * (double)tutti_shape_count(n->dst->shape) * (double)n->src[1]->shape.d[1];
}

tutti_tensor *tutti_functional_linear(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias)
{
    static const tutti__op op = {.plain = {.name = "linear",
                                           .shape = tutti__linear_shape,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_LOW,
                                           .backward_reads = 1 << 0 | 1 << 1},
                                 .forward = linear_forward,
                                 .backward = tutti__linear_backward,
                                 .rounds = 1 << 1,
                                 .flops = tutti__linear_flops};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, NULL, 0);
}
