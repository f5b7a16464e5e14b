/* conv2d.c -- two-dimensional convolution (cross-correlation, as everywhere in this field).
 * SPDX-License-Identifier: MIT
 *   x [N,C,H,W]   w [M,C,kh,kw]   b [M] or NULL   ->   y [N,M,H',W']
 *   H' = (H + 2 padding - kh) / stride + 1 */
#include "tensor/op.h"

static tutti_status conv2d_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__conv2d *a = p->attributes;
    tutti_shape x, w;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "weight", "[M,C,kh,kw]", TUTTI_F32));
    x = p->sources[0]->shape;
    w = p->sources[1]->shape;
    if (a->stride < 1 || a->padding < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "stride %d and padding %d; expected stride >= 1 and padding >= 0",
                           a->stride, a->padding);
    if (x.d[1] != w.d[1])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but weight is %s: %lld channels against %lld",
                           tutti__shape_text(x), tutti__shape_text(w), (long long)x.d[1],
                           (long long)w.d[1]);
    if (p->sources[2] && (p->sources[2]->shape.n != 1 || p->sources[2]->shape.d[0] != w.d[0]))
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s", tutti__shape_text(w),
                           tutti__shape_text(p->sources[2]->shape));
    *y = TUTTI_SHAPE(x.d[0], w.d[0], tutti__windows(x.d[2], w.d[2], a->stride, a->padding),
                     tutti__windows(x.d[3], w.d[3], a->stride, a->padding));
    if (y->d[2] < 1 || y->d[3] < 1)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s: with padding %d it is smaller than weight %s",
                           tutti__shape_text(x), a->padding, tutti__shape_text(w));
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
    return dx ? kernels->conv2d_backward_data(dx, dy, n->src[1], n->attributes) : TUTTI_OK;
}

/* As if computed directly, padding included. */
static double conv2d_flops(const tutti__node *n)
{
    const tutti_shape w = n->src[1]->shape;

    return 2.0 * (double)tutti_shape_count(n->dst->shape) * (double)(w.d[1] * w.d[2] * w.d[3]);
}

tutti_tensor *tutti_functional_conv2d(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                      tutti_conv2d_opts opts)
{
    static const tutti__op op = {.plain = {.name = "conv2d",
                                           .shape = conv2d_shape,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_LOW,
                                           .backward_reads = 1 << 0 | 1 << 1},
                                 .forward = conv2d_forward,
                                 .backward = conv2d_backward,
                                 .lazy = 1 << 0,
                                 .flops = conv2d_flops};
    const tutti__conv2d a = {opts.stride ? opts.stride : 1, opts.padding};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_conv2d_opts, &opts);

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &a, sizeof a);
}
