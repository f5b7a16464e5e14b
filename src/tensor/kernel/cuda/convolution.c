/* convolution.c -- convolutions, channels last, by cuDNN.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W]   w [M,C,kh,kw]   b [M] or NULL   ->   y [N,M,H',W'] */
#include "tensor/kernel/cuda/glue.h"

#include <stdio.h>
#include <string.h>

static tutti__cuda_convolution describe(tutti__cuda_direction direction, const tutti_tensor *x,
                                        tutti_shape w, const tutti_tensor *y,
                                        const tutti__conv2d *a)
{
    tutti__cuda_convolution c = {.direction = direction, .dtype = y->dtype};

    memcpy(c.x, x->shape.d, sizeof c.x);
    memcpy(c.w, w.d, sizeof c.w);
    memcpy(c.y, y->shape.d, sizeof c.y);
    for (int d = 0; d < 2; d++) {
        c.stride[d] = a->stride[d];
        c.padding[d] = a->padding[d];
        c.dilation[d] = a->dilation[d];
    }
    return c;
}

static bool is_empty(const tutti__cuda_convolution *c)
{
    return c->x[0] == 0 || c->x[1] == 0 || c->w[0] == 0;
}

static tutti_status convolve(tutti_ctx *cx, const tutti__cuda_convolution *c, const void *x,
                             const void *w, const void *y)
{
    static const char *const names[] = {[TUTTI__CUDA_FORWARD] = "forward",
                                        [TUTTI__CUDA_BACKWARD_DATA] = "gradient of x",
                                        [TUTTI__CUDA_BACKWARD_WEIGHTS] = "gradient of weight"};
    const tutti__cuda_products *products = tutti__cuda_state_of(cx)->products;
    /* The direction determines which of them is written. */
    const tutti_status status =
        products->convolution(tutti__cuda_products_handle(cx), c, (void *)(uintptr_t)x,
                              (void *)(uintptr_t)w, (void *)(uintptr_t)y);
    char what[240];

    if (status == TUTTI_OK)
        return status;
    snprintf(
        what, sizeof what,
        "%s, x %s, weight %s, stride %lldx%lld, padding %lldx%lld, dilation %lldx%lld, %s",
        names[c->direction], tutti__shape_text(TUTTI_SHAPE(c->x[0], c->x[1], c->x[2], c->x[3])),
        tutti__shape_text(TUTTI_SHAPE(c->w[0], c->w[1], c->w[2], c->w[3])), (long long)c->stride[0],
        (long long)c->stride[1], (long long)c->padding[0], (long long)c->padding[1],
        (long long)c->dilation[0], (long long)c->dilation[1], tutti_dtype_name(c->dtype));
    return tutti__cuda_check(cx, status, what);
}

tutti_status tutti__cuda_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                        tutti_tensor *b, const tutti__conv2d *a)
{
    const tutti__cuda_convolution c = describe(TUTTI__CUDA_FORWARD, x, w->shape, y, a);
    const void *x_data, *w_data;

    TUTTI_TRY(tutti__cuda_alloc(y));
    if (is_empty(&c)) {
        TUTTI_TRY(tutti__cuda_sum_of_nothing(y));
    } else {
        TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
        TUTTI_TRY(tutti__cuda_weights(w, y->dtype, true, &w_data));
        TUTTI_TRY(convolve(y->cx, &c, x_data, w_data, y->data));
    }
    return b ? tutti__cuda_add_bias(y, b) : TUTTI_OK;
}

tutti_status tutti__cuda_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                              tutti_tensor *b, const tutti__conv2d *a)
{
    const tutti__cuda_convolution c = describe(TUTTI__CUDA_BACKWARD_DATA, dx, w->shape, dy, a);
    const void *dy_data, *w_data;

    TUTTI_TRY(tutti__cuda_alloc(dx));
    if (is_empty(&c)) {
        TUTTI_TRY(tutti__cuda_sum_of_nothing(dx));
    } else {
        TUTTI_TRY(tutti__cuda_nhwc(dy, &dy_data));
        TUTTI_TRY(tutti__cuda_weights(w, dx->dtype, true, &w_data));
        TUTTI_TRY(convolve(dx->cx, &c, dx->data, w_data, dy_data));
    }
    return b ? tutti__cuda_add_bias(dx, b) : TUTTI_OK;
}

tutti_status tutti__cuda_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                 tutti_tensor *dy, tutti_tensor *x,
                                                 const tutti__conv2d *a)
{
    tutti__cuda_convolution c;
    const void *x_data, *dy_data;
    void *staging;

    if (db)
        TUTTI_TRY(tutti__cuda_bias_gradient(db, dy));
    if (!dw)
        return TUTTI_OK;
    c = describe(TUTTI__CUDA_BACKWARD_WEIGHTS, x, dw->shape, dy, a);
    if (is_empty(&c))
        return tutti__cuda_sum_of_nothing(dw);
    TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
    TUTTI_TRY(tutti__cuda_nhwc(dy, &dy_data));
    TUTTI_TRY(tutti__cuda_staging(
        dw->cx, (size_t)tutti_shape_count(dw->shape) * tutti_dtype_size(dy->dtype), &staging));
    TUTTI_TRY(convolve(dw->cx, &c, x_data, staging, dy_data));
    return tutti__cuda_weight_gradient(dw, staging, dy->dtype);
}
