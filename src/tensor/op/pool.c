/* pool.c -- max, average and global average pooling.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W]  ->  y [N,C,H',W'], or [N,C,1,1] if global
 *   H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded up with ceil_mode if the last window starts before the
 *   padding at the end */
#include "tensor/op/window.h"

typedef struct attributes {
    tutti__pool pool; /* the first member: what kernels get */
    bool ceil;
} attributes;

static tutti_status pool_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *t = p->attributes;
    const tutti__pool *a = &t->pool;
    tutti_shape x;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    x = *y = p->sources[0]->shape;
    for (int d = 0; d < 2; d++) {
        const int64_t extent = tutti__window_extent(a->kernel[d], a->dilation[d]);
        int64_t n;

        if (a->kernel[d] < 1 || a->stride[d] < 1 || a->dilation[d] < 1 || a->padding[d] < 0 ||
            a->padding[d] > a->kernel[d] / 2)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "kernel %d, stride %d, padding %d, dilation %d; expected padding from 0 to half of "
                "the kernel and the others >= 1",
                a->kernel[d], a->stride[d], a->padding[d], a->dilation[d]);
        n = tutti__windows(x.d[2 + d] + (t->ceil ? a->stride[d] - 1 : 0), extent, a->stride[d],
                           a->padding[d]);
        if (t->ceil && n > 1 && (n - 1) * a->stride[d] >= x.d[2 + d] + a->padding[d])
            n--;
        if (n < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "x is %s: with padding %d it is smaller than the window of %lld",
                               tutti__shape_text(x), a->padding[d], (long long)extent);
        y->d[2 + d] = n;
    }
    return TUTTI_OK;
}

static attributes attributes_of(const tutti_pool_opts *o)
{
    const int stride = o->stride ? o->stride : o->kernel, dilation = o->dilation ? o->dilation : 1;
    const int kernel_w = tutti__of_columns(o->kernel_w, o->kernel);

    return (attributes){
        .pool = {.kernel = {o->kernel, kernel_w},
                 .stride = {stride, tutti__of_columns(o->stride_w, o->stride ? stride : kernel_w)},
                 .padding = {o->padding, tutti__of_columns(o->padding_w, o->padding)},
                 .dilation = {dilation, tutti__of_columns(o->dilation_w, dilation)},
                 .exclude_padding = o->exclude_padding,
                 .divisor = o->divisor},
        .ceil = o->ceil_mode};
}

static tutti_status check_options(const tutti_pool_opts *o, bool max)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_pool_opts, o));
    if (max && (o->exclude_padding || o->divisor))
        return tutti__fail(TUTTI_ERR_ARG, "exclude_padding and divisor are options of averages");
    if (!max && (o->dilation || o->dilation_w))
        return tutti__fail(TUTTI_ERR_ARG, "dilation is an option of maxima");
    return TUTTI_OK;
}

static tutti_tensor *run_pool(const tutti__op *op, bool max, tutti_tensor *x,
                              const tutti_pool_opts *opts)
{
    const attributes a = attributes_of(opts);
    const tutti_status status = check_options(opts, max);

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx,
                               tutti__fail(status, "%s: %s", op->plain.name, tutti_last_error()));
    return tutti__op_run(op, &x, 1, &a, sizeof a);
}

/* Over L of [N,C,L]. */
static tutti_tensor *run_pool1d(const tutti__op *op, bool max, tutti_tensor *x,
                                const tutti_pool_opts *opts)
{
    const char *name = op->plain.name;
    attributes a = attributes_of(opts);
    tutti_status status = check_options(opts, max);

    if (opts->kernel_w || opts->stride_w || opts->padding_w || opts->dilation_w)
        status = tutti__fail(TUTTI_ERR_ARG,
                             "kernel_w %d, stride_w %d, padding_w %d, dilation_w %d; expected 0: "
                             "there are no columns besides L",
                             opts->kernel_w, opts->stride_w, opts->padding_w, opts->dilation_w);
    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, tutti__fail(status, "%s: %s", name, tutti_last_error()));
    a.pool.kernel[0] = a.pool.stride[0] = a.pool.dilation[0] = 1;
    a.pool.padding[0] = 0;
    x = tutti__with_row(x, name, "x", "[N,C,L]");
    return tutti__without_row(tutti__op_run(op, &x, 1, &a, sizeof a));
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

#define MAX(called)                                                                                \
    {                                                                                              \
        .plain = {.name = called, .shape = pool_shape, .activations = 1},                          \
        .forward = max_pool2d_forward, .backward = max_pool2d_backward                             \
    }

tutti_tensor *tutti_max_pool2d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = MAX("max_pool2d");

    return run_pool(&op, true, x, &opts);
}

tutti_tensor *tutti_max_pool1d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = MAX("max_pool1d");

    return run_pool1d(&op, true, x, &opts);
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

#define AVERAGE(called)                                                                            \
    {                                                                                              \
        .plain = {.name = called, .shape = pool_shape, .activations = 1},                          \
        .forward = avg_pool2d_forward, .backward = avg_pool2d_backward                             \
    }

tutti_tensor *tutti_avg_pool2d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = AVERAGE("avg_pool2d");

    return run_pool(&op, false, x, &opts);
}

tutti_tensor *tutti_avg_pool1d(tutti_tensor *x, tutti_pool_opts opts)
{
    static const tutti__op op = AVERAGE("avg_pool1d");

    return run_pool1d(&op, false, x, &opts);
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
