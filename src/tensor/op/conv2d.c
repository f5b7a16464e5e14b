/* conv2d.c -- convolution (cross-correlation, as everywhere in this field) in two dimensions, and in one as of an image of one
 * row.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W]   w [M,C/groups,kh,kw]   b [M] or NULL   ->   y [N,M,H',W']
 *   H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1
 * Output channels in group g of `groups` see the input channels in group g only. */
#include "tensor/op/convolve.h"

tutti_status tutti__convolve_check(const tutti_op_args *p, const tutti__conv2d *a,
                                   const char *weight, int dim, int times)
{
    tutti_shape w, b;

    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "weight", weight, TUTTI_F32));
    for (int d = 0; d < 2; d++)
        if (a->stride[d] < 1 || a->padding[d] < 0 || a->dilation[d] < 1 || a->groups < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "stride %d, padding %d, dilation %d and groups %d; expected padding "
                               ">= 0 and the others >= 1",
                               a->stride[d], a->padding[d], a->dilation[d], a->groups);
    if (!p->sources[2])
        return TUTTI_OK;
    TUTTI_TRY(tutti_op_check_source(p, 2, "bias", NULL, TUTTI_F32));
    w = p->sources[1]->shape;
    b = p->sources[2]->shape;
    if (b.n != 1 || b.d[0] != w.d[dim] * times)
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s, expected [%lld]",
                           tutti__shape_text(w), tutti__shape_text(b),
                           (long long)(w.d[dim] * times));
    return TUTTI_OK;
}

static tutti_status conv2d_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__conv2d *a = p->attributes;
    tutti_shape x, w;

    (void)dtype;
    TUTTI_TRY(tutti__convolve_check(p, a, "[M,C/groups,kh,kw]", 0, 1));
    x = p->sources[0]->shape;
    w = p->sources[1]->shape;
    if (x.d[1] != w.d[1] * a->groups)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s but weight is %s, groups %d: %lld channels against %lld",
                           tutti__shape_text(x), tutti__shape_text(w), a->groups, (long long)x.d[1],
                           (long long)(w.d[1] * a->groups));
    if (w.d[0] % a->groups != 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "weight is %s: its %lld output channels cannot be divided into %d groups",
            tutti__shape_text(w), (long long)w.d[0], a->groups);
    *y = TUTTI_SHAPE(x.d[0], w.d[0], 0, 0);
    for (int d = 0; d < 2; d++) {
        const int64_t extent = tutti__window_extent(w.d[2 + d], a->dilation[d]);

        y->d[2 + d] = tutti__windows(x.d[2 + d], extent, a->stride[d], a->padding[d]);
        if (y->d[2 + d] < 1)
            return tutti__fail(
                TUTTI_ERR_ARG, "x is %s: with padding %d it is smaller than weight %s, dilation %d",
                tutti__shape_text(x), a->padding[d], tutti__shape_text(w), a->dilation[d]);
    }
    return TUTTI_OK;
}

static tutti_status conv2d_forward(tutti__node *n)
{
    return n->dst->cx->kernels->conv2d_forward(n->dst, n->src[0], n->src[1], n->src[2],
                                               n->attributes);
}

static tutti_status conv2d_backward(tutti__node *n)
{
    const tutti__kernels *kernels = n->dst->cx->kernels;
    tutti_tensor *dy = n->dst->grad, *dx, *dw, *db;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    if (dw || db) {
        TUTTI_TRY(kernels->conv2d_backward_weights(dw, db, dy, n->src[0], n->attributes));
        tutti__weights_done(n);
    }
    return dx ? kernels->conv2d_backward_data(dx, dy, n->src[1], NULL, n->attributes) : TUTTI_OK;
}

/* As if computed directly, padding included. */
static double conv2d_flops(const tutti__node *n)
{
    const tutti_shape w = n->src[1]->shape;

    return 2.0 * (double)tutti_shape_count(n->dst->shape) * (double)(w.d[1] * w.d[2] * w.d[3]);
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = conv2d_shape,                                                           \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_LOW,                                                        \
                  .backward_reads = 1 << 0 | 1 << 1},                                              \
        .forward = conv2d_forward, .backward = conv2d_backward, .lazy = 1 << 0, .rounds = 1 << 1,  \
        .flops = conv2d_flops                                                                      \
    }

/* ---- Options --------------------------------------------------------------------------------- */

static tutti__conv2d attributes_of(const tutti_conv2d_opts *o)
{
    const int stride = o->stride ? o->stride : 1, dilation = o->dilation ? o->dilation : 1;

    return (tutti__conv2d){.stride = {stride, tutti__of_columns(o->stride_w, stride)},
                           .padding = {o->padding, tutti__of_columns(o->padding_w, o->padding)},
                           .dilation = {dilation, tutti__of_columns(o->dilation_w, dilation)},
                           .groups = o->groups ? o->groups : 1};
}

/* The padding with which y has the size of x. If it is odd in all, PyTorch's has one pixel more at the end: here both ends have
 * it, which adds one window at the start, odd[d]. */
static tutti_status set_same(const tutti_conv2d_opts *o, tutti_shape w, tutti__conv2d *a,
                             bool odd[2])
{
    if (o->padding || o->padding_w || a->stride[0] != 1 || a->stride[1] != 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "same, with stride %d and padding %d; expected stride 1 and no padding",
                           o->stride, o->padding);
    for (int d = 0; d < 2 && w.n == 4; d++) {
        const int64_t all = tutti__window_extent(w.d[2 + d], a->dilation[d]) - 1;

        a->padding[d] = (int)((all + 1) / 2);
        odd[d] = all % 2 != 0;
    }
    return TUTTI_OK;
}

static tutti_tensor *run(const tutti__op *op, tutti_tensor *x, tutti_tensor *weight,
                         tutti_tensor *bias, const tutti_conv2d_opts *opts, tutti__conv2d a)
{
    bool odd[2] = {false, false};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_conv2d_opts, opts);
    tutti_tensor *y;

    if (status == TUTTI_OK && opts->same && weight)
        status = set_same(opts, weight->shape, &a, odd);
    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx,
                               tutti__fail(status, "%s: %s", op->plain.name, tutti_last_error()));
    y = tutti__op_run(op, (tutti_tensor *[]){x, weight, bias}, 3, &a, sizeof a);
    for (int d = 0; d < 2; d++)
        if (odd[d])
            y = tutti_slice(y, 2 + d, 1, INT64_MAX, 1);
    return y;
}

tutti_tensor *tutti_functional_conv2d(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                      tutti_conv2d_opts opts)
{
    static const tutti__op op = OP("conv2d");

    return run(&op, x, weight, bias, &opts, attributes_of(&opts));
}

tutti_tensor *tutti_functional_conv1d(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                      tutti_conv2d_opts opts)
{
    static const tutti__op op = OP("conv1d");
    const tutti__conv2d a = tutti__of_row(attributes_of(&opts));

    if (x && (opts.stride_w || opts.padding_w || opts.dilation_w))
        return tutti__poisoned(x->cx,
                               tutti__fail(TUTTI_ERR_ARG,
                                           "conv1d: stride_w %d, padding_w %d, dilation_w %d; "
                                           "expected 0: there are no columns besides L",
                                           opts.stride_w, opts.padding_w, opts.dilation_w));
    return tutti__without_row(run(&op, tutti__with_row(x, "conv1d", "x", "[N,C,L]"),
                                  tutti__with_row(weight, "conv1d", "weight", "[M,C/groups,k]"),
                                  bias, &opts, a));
}
