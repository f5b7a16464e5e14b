/* onednn_winograd.c -- 3x3 convolutions of stride 1 and 2 by our own kernels: activations in oneDNN's blocked layouts, weights
 * row-major.
 * SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

/* Channels of x in memory, in whole blocks. */
static int64_t padded(const tutti__isa *isa, int64_t channels)
{
    return (channels + isa->lanes - 1) / isa->lanes * isa->lanes;
}

static tutti__conv_shape shape_of(const tutti__isa *isa, tutti_shape x, tutti_shape w,
                                  tutti_shape y, const tutti__conv2d *a)
{
    return (tutti__conv_shape){.n = x.d[0],
                               .in_c = padded(isa, x.d[1]),
                               .own_in_c = x.d[1],
                               .out_c = y.d[1],
                               .in_h = x.d[2],
                               .in_w = x.d[3],
                               .out_h = y.d[2],
                               .out_w = y.d[3],
                               .kernel = w.d[2],
                               .stride = a->stride[0],
                               .padding = a->padding[0]};
}

bool tutti__winograd_can(tutti_ctx *cx, tutti_shape x, tutti_shape w)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;

    return 3 * padded(isa, x.d[1]) <= 4 * x.d[1] && w.d[0] % isa->lanes == 0;
}

/* A norm has no numbers for the channels that fill up a block. */
static tutti_status source_of(tutti_tensor *x, const tutti__layout *layout, void **data_p,
                              const tutti__channel_norm **norm_p)
{
    const tutti__isa *isa = ((const tutti__onednn *)x->cx->kernel_state)->isa;

    if (x->shape.d[1] % isa->lanes == 0)
        return tutti__onednn_in_norm(x, layout, data_p, norm_p);
    *norm_p = NULL;
    return tutti__onednn_in(x, layout, data_p);
}

tutti_status tutti__winograd_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                     tutti_tensor *b, const tutti__conv2d *a)
{
    const tutti__isa *isa = ((const tutti__onednn *)y->cx->kernel_state)->isa;
    const tutti__conv_shape s = shape_of(isa, x->shape, w->shape, y->shape, a);
    const tutti__layout *x_layout, *y_layout;
    const tutti__channel_norm *norm;
    void *x_data, *w_data, *b_data = NULL, *work;

    TUTTI_TRY(tutti__onednn_blocked(y->cx, x->shape, &x_layout));
    TUTTI_TRY(tutti__onednn_blocked(y->cx, y->shape, &y_layout));
    TUTTI_TRY(source_of(x, x_layout, &x_data, &norm));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(y, y_layout));
    TUTTI_TRY(tutti__onednn_scratch(y->cx, isa->winograd_work(y->cx, &s, TUTTI__FORWARD), &work));
    isa->winograd_forward(y->cx, &s, y->data, x_data, norm, w_data, b_data, work);
    return TUTTI_OK;
}

tutti_status tutti__winograd_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                           const tutti__conv2d *a)
{
    const tutti__isa *isa = ((const tutti__onednn *)dx->cx->kernel_state)->isa;
    const tutti__conv_shape s = shape_of(isa, dx->shape, w->shape, dy->shape, a);
    const tutti__layout *dx_layout, *dy_layout;
    void *dy_data, *w_data, *work;

    TUTTI_TRY(tutti__onednn_blocked(dx->cx, dx->shape, &dx_layout));
    TUTTI_TRY(tutti__onednn_blocked(dx->cx, dy->shape, &dy_layout));
    TUTTI_TRY(tutti__onednn_in(dy, dy_layout, &dy_data));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, dx_layout));
    TUTTI_TRY(
        tutti__onednn_scratch(dx->cx, isa->winograd_work(dx->cx, &s, TUTTI__BACKWARD_DATA), &work));
    isa->winograd_data(dx->cx, &s, dx->data, dy_data, w_data, work);
    return TUTTI_OK;
}

tutti_status tutti__winograd_backward_weights(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *x,
                                              const tutti__conv2d *a)
{
    tutti_ctx *cx = dw->cx;
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    const tutti__conv_shape s = shape_of(isa, x->shape, dw->shape, dy->shape, a);
    const tutti__layout *x_layout, *dy_layout;
    const tutti__channel_norm *norm;
    void *dy_data, *x_data, *work;

    TUTTI_TRY(tutti__onednn_blocked(cx, x->shape, &x_layout));
    TUTTI_TRY(tutti__onednn_blocked(cx, dy->shape, &dy_layout));
    TUTTI_TRY(source_of(x, x_layout, &x_data, &norm));
    TUTTI_TRY(tutti__onednn_in(dy, dy_layout, &dy_data));
    TUTTI_TRY(
        tutti__onednn_scratch(cx, isa->winograd_work(cx, &s, TUTTI__BACKWARD_WEIGHTS), &work));
    isa->winograd_weights(cx, &s, dw->data, dw->accumulate, dy_data, x_data, norm, work);
    return TUTTI_OK;
}
