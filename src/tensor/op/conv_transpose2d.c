/* conv_transpose2d.c -- transposed convolution: convolution's gradient of x as an operation of its own.
 * SPDX-License-Identifier: MIT
 *   x [N,M,H,W]   w [M,C/groups,kh,kw]   b [C] or NULL   ->   y [N,C,H',W']
 *   H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1
 * The kernels are those of a convolution from y to x. */
#include "tensor/op/convolve.h"

typedef struct attributes {
    tutti__conv2d a;
    int output_padding[2];
} attributes;

static tutti_status transpose_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *t = p->attributes;
    const tutti__conv2d *a = &t->a;
    tutti_shape x, w;

    (void)dtype;
    TUTTI_TRY(tutti__convolve_check(p, a, "[M,C/groups,kh,kw]", 1, a->groups));
    x = p->sources[0]->shape;
    w = p->sources[1]->shape;
    if (x.d[1] != w.d[0] || w.d[0] % a->groups != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s but weight is %s, groups %d; expected as many channels as "
                           "weights, and groups to divide them",
                           tutti__shape_text(x), tutti__shape_text(w), a->groups);
    *y = TUTTI_SHAPE(x.d[0], w.d[1] * a->groups, 0, 0);
    for (int d = 0; d < 2; d++) {
        const int more = t->output_padding[d];

        if (more < 0 || more >= a->stride[d])
            return tutti__fail(TUTTI_ERR_ARG,
                               "output_padding %d, stride %d, dilation %d; expected output_padding "
                               ">= 0 and below stride or dilation",
                               more, a->stride[d], a->dilation[d]);
        y->d[2 + d] = (x.d[2 + d] - 1) * a->stride[d] - 2 * (int64_t)a->padding[d] +
                      tutti__window_extent(w.d[2 + d], a->dilation[d]) + more;
        if (y->d[2 + d] < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "x is %s and weight %s: padding %d leaves nothing of the result",
                               tutti__shape_text(x), tutti__shape_text(w), a->padding[d]);
    }
    return TUTTI_OK;
}

static tutti_status transpose_forward(tutti__node *n)
{
    const attributes *t = n->attributes;

    return n->dst->cx->kernels->conv2d_backward_data(n->dst, n->src[0], n->src[1], n->src[2],
                                                     &t->a);
}

static tutti_status transpose_backward(tutti__node *n)
{
    const tutti__kernels *kernels = n->dst->cx->kernels;
    const tutti__conv2d *a = &((const attributes *)n->attributes)->a;
    tutti_tensor *dy = n->dst->grad, *dx, *dw, *db;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    if (dw)
        TUTTI_TRY(kernels->conv2d_backward_weights(dw, NULL, n->src[0], dy, a));
    if (db)
        TUTTI_TRY(kernels->conv2d_backward_weights(NULL, db, dy, dy, a));
    if (dw || db)
        tutti__weights_done(n);
    return dx ? kernels->conv2d_forward(dx, dy, n->src[1], NULL, a) : TUTTI_OK;
}

static double transpose_flops(const tutti__node *n)
{
    const tutti_shape w = n->src[1]->shape;

    return 2.0 * (double)tutti_shape_count(n->src[0]->shape) * (double)(w.d[1] * w.d[2] * w.d[3]);
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = transpose_shape,                                                        \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_LOW,                                                        \
                  .backward_reads = 1 << 0 | 1 << 1},                                              \
        .forward = transpose_forward, .backward = transpose_backward, .rounds = 1 << 1,            \
        .flops = transpose_flops                                                                   \
    }

static attributes attributes_of(const tutti_conv_transpose_opts *o)
{
    const int stride = o->stride ? o->stride : 1, dilation = o->dilation ? o->dilation : 1;

    return (attributes){
        .a = {.stride = {stride, tutti__of_columns(o->stride_w, stride)},
              .padding = {o->padding, tutti__of_columns(o->padding_w, o->padding)},
              .dilation = {dilation, tutti__of_columns(o->dilation_w, dilation)},
              .groups = o->groups ? o->groups : 1},
        .output_padding = {o->output_padding,
                           tutti__of_columns(o->output_padding_w, o->output_padding)}};
}

/* Output padding of whole strides, which dilation allows, is the same as zeros behind x; then x has as many pixels as y has
 * windows, which kernels rely on. */
static tutti_tensor *run(const tutti__op *op, tutti_tensor *x, tutti_tensor *weight,
                         tutti_tensor *bias, const tutti_conv_transpose_opts *opts, attributes t)
{
    const tutti_status status = TUTTI__CHECK_RESERVED(tutti_conv_transpose_opts, opts);
    int strides[2] = {0, 0};

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    for (int d = 0; d < 2; d++)
        if (t.a.stride[d] >= 1 && t.output_padding[d] >= t.a.stride[d] &&
            t.output_padding[d] < t.a.dilation[d]) {
            strides[d] = t.output_padding[d] / t.a.stride[d];
            t.output_padding[d] %= t.a.stride[d];
        }
    x = tutti__with_zeros(x, strides[0], strides[1]);
    return tutti__op_run(op, (tutti_tensor *[]){x, weight, bias}, 3, &t, sizeof t);
}

tutti_tensor *tutti_functional_conv_transpose2d(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias, tutti_conv_transpose_opts opts)
{
    static const tutti__op op = OP("conv_transpose2d");

    return run(&op, x, weight, bias, &opts, attributes_of(&opts));
}

tutti_tensor *tutti_functional_conv_transpose1d(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias, tutti_conv_transpose_opts opts)
{
    static const tutti__op op = OP("conv_transpose1d");
    attributes t = attributes_of(&opts);

    if (x && (opts.stride_w || opts.padding_w || opts.dilation_w || opts.output_padding_w))
        return tutti__poisoned(
            x->cx,
            tutti__fail(TUTTI_ERR_ARG,
                        "conv_transpose1d: stride_w %d, padding_w %d, output_padding_w %d, "
                        "dilation_w %d; expected 0: there are no columns besides L",
                        opts.stride_w, opts.padding_w, opts.output_padding_w, opts.dilation_w));
    t.a = tutti__of_row(t.a);
    t.output_padding[1] = t.output_padding[0];
    t.output_padding[0] = 0;
    return tutti__without_row(run(
        &op, tutti__with_row(x, "conv_transpose1d", "x", "[N,M,L]"),
        tutti__with_row(weight, "conv_transpose1d", "weight", "[M,C/groups,k]"), bias, &opts, t));
}
