/* pool.c -- pooling by our own kernels.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/cuda_kernels.h"

/* a NULL: over the whole image */
static tutti__cuda_windows geometry_of(const tutti_tensor *x, const tutti_tensor *y,
                                       const tutti__pool *a)
{
    const int64_t *xd = x->shape.d, *yd = y->shape.d;
    tutti__cuda_windows c = {.N = xd[0],
                             .C = xd[1],
                             .H = xd[2],
                             .W = xd[3],
                             .out_h = yd[2],
                             .out_w = yd[3],
                             .dtype = x->dtype};

    for (int d = 0; a && d < 2; d++) {
        c.kernel[d] = a->kernel[d];
        c.stride[d] = a->stride[d];
        c.padding[d] = a->padding[d];
        c.dilation[d] = a->dilation[d];
    }
    c.divisor = a ? a->divisor : 0;
    c.exclude_padding = a && a->exclude_padding;
    return c;
}

tutti_status tutti__cuda_max_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                          void **saved)
{
    const tutti__cuda_windows c = geometry_of(x, y, a);
    const void *x_data;

    *saved = tutti__step_memory(y->cx, (size_t)tutti_shape_count(y->shape) * sizeof(int32_t));
    if (!*saved)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
    TUTTI_TRY(tutti__cuda_alloc(y));
    TUTTI__CUDA(y->cx, own, max_pool, &c, y->data, x_data, *saved);
    return TUTTI_OK;
}

tutti_status tutti__cuda_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                           const tutti__pool *a, void *saved)
{
    const tutti__cuda_windows c = geometry_of(dx, dy, a);
    const void *dy_data;

    (void)x;
    TUTTI_TRY(tutti__cuda_nhwc(dy, &dy_data));
    TUTTI_TRY(tutti__cuda_alloc(dx));
    TUTTI__CUDA(dx->cx, own, max_pool_backward, &c, dx->data, dy_data, saved);
    return TUTTI_OK;
}

tutti_status tutti__cuda_avg_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a)
{
    const tutti__cuda_windows c = geometry_of(x, y, a);
    const void *x_data;

    TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
    TUTTI_TRY(tutti__cuda_alloc(y));
    TUTTI__CUDA(y->cx, own, avg_pool, &c, y->data, x_data);
    return TUTTI_OK;
}

tutti_status tutti__cuda_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy, const tutti__pool *a)
{
    const tutti__cuda_windows c = geometry_of(dx, dy, a);
    const void *dy_data;

    TUTTI_TRY(tutti__cuda_nhwc(dy, &dy_data));
    TUTTI_TRY(tutti__cuda_alloc(dx));
    TUTTI__CUDA(dx->cx, own, avg_pool_backward, &c, dx->data, dy_data);
    return TUTTI_OK;
}

tutti_status tutti__cuda_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x)
{
    const tutti__cuda_windows c = geometry_of(x, y, NULL);
    const void *x_data;

    TUTTI_TRY(tutti__cuda_nhwc(x, &x_data));
    TUTTI_TRY(tutti__cuda_alloc(y));
    TUTTI__CUDA(y->cx, own, global_avg_pool, &c, y->data, x_data);
    return TUTTI_OK;
}

tutti_status tutti__cuda_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy)
{
    const tutti__cuda_windows c = geometry_of(dx, dy, NULL);

    TUTTI_TRY(tutti__cuda_alloc(dx));
    TUTTI__CUDA(dx->cx, own, global_avg_pool_backward, &c, dx->data, dy->data);
    return TUTTI_OK;
}
