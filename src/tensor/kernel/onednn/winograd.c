/* winograd.c -- 3x3 convolutions of stride 1 by our own kernels, in oneDNN's blocked layouts.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/state.h"

typedef struct layouts {
    const tutti__layout *x, *w, *y; /* of w: outputs last, or for data inputs last */
} layouts;

static tutti__conv_shape shape_of(tutti_shape x, tutti_shape w, tutti_shape y,
                                  const tutti__conv2d *a)
{
    return (tutti__conv_shape){.n = x.d[0],
                               .in_c = x.d[1],
                               .out_c = y.d[1],
                               .in_h = x.d[2],
                               .in_w = x.d[3],
                               .out_h = y.d[2],
                               .out_w = y.d[3],
                               .kernel = w.d[2],
                               .stride = a->stride,
                               .padding = a->padding};
}

static tutti_status layouts_of(tutti_ctx *cx, tutti_shape x, tutti_shape w, tutti_shape y,
                               bool turned, layouts *l)
{
    const tutti__onednn *od = cx->kernel_state;
    const bool wide = od->isa->lanes == 16;

    TUTTI_TRY(tutti__onednn_tagged(cx, x, wide ? dnnl_nChw16c : dnnl_nChw8c, &l->x));
    TUTTI_TRY(tutti__onednn_tagged(cx, y, wide ? dnnl_nChw16c : dnnl_nChw8c, &l->y));
    return tutti__onednn_tagged(cx, w,
                                turned ? (wide ? dnnl_OIhw16o16i : dnnl_OIhw8o8i)
                                       : (wide ? dnnl_OIhw16i16o : dnnl_OIhw8i8o),
                                &l->w);
}

bool tutti__winograd_can(tutti_ctx *cx, tutti_shape x, tutti_shape w)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;

    return isa->lanes >= 8 && x.d[1] % isa->lanes == 0 && w.d[0] % isa->lanes == 0;
}

tutti_status tutti__winograd_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                     tutti_tensor *b, const tutti__conv2d *a)
{
    const tutti__isa *isa = ((const tutti__onednn *)y->cx->kernel_state)->isa;
    const tutti__conv_shape s = shape_of(x->shape, w->shape, y->shape, a);
    layouts l;
    void *x_data, *w_data, *b_data = NULL, *work;

    TUTTI_TRY(layouts_of(y->cx, x->shape, w->shape, y->shape, false, &l));
    TUTTI_TRY(tutti__onednn_in(x, l.x, &x_data));
    TUTTI_TRY(tutti__onednn_in(w, l.w, &w_data));
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(y, l.y));
    TUTTI_TRY(tutti__onednn_scratch(y->cx, isa->winograd_work(y->cx, &s, TUTTI__FORWARD), &work));
    isa->winograd_forward(y->cx, &s, y->data, x_data, w_data, b_data, work);
    return TUTTI_OK;
}

tutti_status tutti__winograd_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                           const tutti__conv2d *a)
{
    const tutti__isa *isa = ((const tutti__onednn *)dx->cx->kernel_state)->isa;
    const tutti__conv_shape s = shape_of(dx->shape, w->shape, dy->shape, a);
    layouts l;
    void *dy_data, *w_data, *work;

    TUTTI_TRY(layouts_of(dx->cx, dx->shape, w->shape, dy->shape, true, &l));
    TUTTI_TRY(tutti__onednn_in(dy, l.y, &dy_data));
    TUTTI_TRY(tutti__onednn_in(w, l.w, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, l.x));
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
    const tutti__conv_shape s = shape_of(x->shape, dw->shape, dy->shape, a);
    layouts l;
    void *dy_data, *x_data, *dw_data, *work;

    TUTTI_TRY(layouts_of(cx, x->shape, dw->shape, dy->shape, false, &l));
    TUTTI_TRY(tutti__onednn_in(x, l.x, &x_data));
    TUTTI_TRY(tutti__onednn_in(dy, l.y, &dy_data));
    TUTTI_TRY(tutti__onednn_staging(cx, l.w->bytes, &dw_data));
    TUTTI_TRY(
        tutti__onednn_scratch(cx, isa->winograd_work(cx, &s, TUTTI__BACKWARD_WEIGHTS), &work));
    isa->winograd_weights(cx, &s, dw_data, dy_data, x_data, work);
    return tutti__onednn_reorder(cx, dw->shape, &(tutti__onednn_place){l.w, TUTTI_F32, dw_data},
                                 &(tutti__onednn_place){NULL, TUTTI_F32, dw->data}, dw->accumulate);
}
