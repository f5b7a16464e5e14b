/* pool.c -- max, average and global average pooling.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W]  ->  y [N,C,H',W'], or [N,C,1,1] if global
 *   H' = (H + 2 padding - kernel) / stride + 1 */
#include "tensor/op.h"

static tutti_status pool_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__pool *a = p->attributes;
    tutti_shape x;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    x = p->sources[0]->shape;
    if (a->kernel < 1 || a->stride < 1 || a->padding < 0 || a->padding > a->kernel / 2)
        return tutti__fail(TUTTI_ERR_ARG,
                           "kernel %d, stride %d, padding %d; expected kernel and stride >= 1 and "
                           "padding from 0 to half of the kernel",
                           a->kernel, a->stride, a->padding);
    *y = TUTTI_SHAPE(x.d[0], x.d[1], tutti__windows(x.d[2], a->kernel, a->stride, a->padding),
                     tutti__windows(x.d[3], a->kernel, a->stride, a->padding));
    if (y->d[2] < 1 || y->d[3] < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s: with padding %d it is smaller than the window of %d",
                           tutti__shape_text(x), a->padding, a->kernel);
    return TUTTI_OK;
}

static tutti_tensor *run_pool(const tutti__op *op, tutti_tensor *x, tutti_pool_opts opts)
{
    const tutti__pool a = {opts.kernel, opts.stride ? opts.stride : opts.kernel, opts.padding};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_pool_opts, &opts);

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    return tutti__op_run(op, &x, 1, &a, sizeof a);
}

/* ---- max ---- */

static tutti_status max_pool2d_forward(tutti__node *n)
{
    return n->dst->cx->kernels->max_pool_forward(n->dst, n->src[0], n->attributes, &n->saved[0]);
}

static tutti_status max_pool2d_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->max_pool_backward(dx, n->dst->grad, n->src[0], n->attributes,
                                                  n->saved[0]);
}

tutti_tensor *tutti_max_pool2d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = {
        .plain = {.name = "max_pool2d", .shape = pool_shape, .activations = 1},
        .forward = max_pool2d_forward,
        .backward = max_pool2d_backward};

    return run_pool(&op, x, opts);
}

/* ---- average ---- */

static tutti_status avg_pool2d_forward(tutti__node *n)
{
    return n->dst->cx->kernels->avg_pool_forward(n->dst, n->src[0], n->attributes);
}

static tutti_status avg_pool2d_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->avg_pool_backward(dx, n->dst->grad, n->attributes);
}

tutti_tensor *tutti_avg_pool2d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = {
        .plain = {.name = "avg_pool2d", .shape = pool_shape, .activations = 1},
        .forward = avg_pool2d_forward,
        .backward = avg_pool2d_backward};

    return run_pool(&op, x, opts);
}

/* ---- global average ---- */

static tutti_status global_avg_pool2d_shape(const tutti_op_args *p, tutti_shape *y,
                                            tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    *y = TUTTI_SHAPE(p->sources[0]->shape.d[0], p->sources[0]->shape.d[1], 1, 1);
    return TUTTI_OK;
}

static tutti_status global_avg_pool2d_forward(tutti__node *n)
{
    return n->dst->cx->kernels->global_avg_pool_forward(n->dst, n->src[0]);
}

static tutti_status global_avg_pool2d_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->global_avg_pool_backward(dx, n->dst->grad);
}

tutti_tensor *tutti_global_avg_pool2d(tutti_tensor *x)
{
    static const tutti__op op = {
        .plain = {.name = "global_avg_pool2d", .shape = global_avg_pool2d_shape, .activations = 1},
        .forward = global_avg_pool2d_forward,
        .backward = global_avg_pool2d_backward};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
