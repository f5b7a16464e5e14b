/* elementwise.c -- reorder, cast, move, fill, relu, add, dropout.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/cuda_kernels.h"

#include <string.h>

static tutti__cuda_array array_of(const tutti_tensor *t)
{
    return (tutti__cuda_array){t->data, t->dtype};
}

/* to = from (or +=), of one shape: one channels last, the other row-major. */
static tutti_status exchange(const tutti_tensor *to, const tutti_tensor *from, bool add)
{
    const int64_t *d = to->shape.d, plane = d[2] * d[3];

    if (to->layout)
        TUTTI__CUDA(to->cx, own, transpose, array_of(to), array_of(from), d[0], d[1], plane, add);
    else
        TUTTI__CUDA(to->cx, own, transpose, array_of(to), array_of(from), d[0], plane, d[1], add);
    return TUTTI_OK;
}

tutti_status tutti__cuda_reorder(tutti_tensor *dst, tutti_tensor *src)
{
    if (dst->accumulate)
        return tutti__cuda_add_to(dst, src);
    if (src->layout)
        return exchange(dst, src, false);
    return tutti__copy(dst->cx->stream, dst->data, src->data, tutti__tensor_bytes(src));
}

tutti_status tutti__cuda_cast(tutti_tensor *dst, tutti_tensor *src)
{
    TUTTI_TRY(tutti__cuda_alloc(dst));
    if (dst->layout && !src->layout)
        return exchange(dst, src, false);
    TUTTI__CUDA(dst->cx, own, cast, array_of(dst), array_of(src), tutti_shape_count(dst->shape));
    return TUTTI_OK;
}

/* Pairs of elements that lie side by side in both memories become one of twice the size, up to 16 bytes. */
static void widen(tutti__cuda_moved *b, const void *to, const void *from)
{
    const int last = b->n - 1;

    while (b->element < 16 && b->to_stride[last] == 1 && b->from_stride[last] == 1) {
        bool even = (((uintptr_t)to | (uintptr_t)from) & (uintptr_t)(2 * b->element - 1)) == 0 &&
                    b->size[last] % 2 == 0;

        for (int i = 0; i < last; i++)
            even = even && b->to_stride[i] % 2 == 0 && b->from_stride[i] % 2 == 0;
        if (!even)
            return;
        for (int i = 0; i < last; i++) {
            b->to_stride[i] /= 2;
            b->from_stride[i] /= 2;
        }
        b->size[last] /= 2;
        b->element *= 2;
    }
}

tutti_status tutti__cuda_move(tutti_ctx *cx, const tutti__move *c)
{
    tutti__cuda_moved b = {.n = c->n, .element = (int)c->element, .add = c->add};

    memcpy(b.size, c->size, sizeof b.size);
    memcpy(b.to_stride, c->to_stride, sizeof b.to_stride);
    memcpy(b.from_stride, c->from_stride, sizeof b.from_stride);
    if (!c->add)
        widen(&b, c->to, c->from);
    TUTTI__CUDA(cx, own, move, c->to, c->from, &b);
    return TUTTI_OK;
}

tutti_status tutti__cuda_fill(tutti_tensor *t, float value)
{
    TUTTI__CUDA(t->cx, own, fill, array_of(t), value, tutti_shape_count(t->shape));
    return TUTTI_OK;
}

tutti_status tutti__cuda_relu_forward(tutti_tensor *y, tutti_tensor *x)
{
    TUTTI_TRY(tutti__tensor_alloc(y, x->layout));
    TUTTI__CUDA(y->cx, own, relu, y->dtype, y->data, x->data, tutti_shape_count(x->shape));
    return TUTTI_OK;
}

/* Two tensors of one shape in the same layout: their own, or channels last. *layout_p: that layout. */
static tutti_status alike(tutti_tensor *a, tutti_tensor *b, const void **a_p, const void **b_p,
                          const tutti__layout **layout_p)
{
    *layout_p = a->layout;
    *a_p = a->data;
    *b_p = b->data;
    if (a->layout == b->layout)
        return TUTTI_OK;
    TUTTI_TRY(tutti__cuda_nhwc_layout(a->cx, a->shape, a->dtype, layout_p));
    TUTTI_TRY(tutti__cuda_nhwc(a, a_p));
    return tutti__cuda_nhwc(b, b_p);
}

tutti_status tutti__cuda_relu_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y)
{
    const void *dy_data, *y_data;
    const tutti__layout *layout;

    TUTTI_TRY(alike(dy, y, &dy_data, &y_data, &layout));
    TUTTI_TRY(tutti__tensor_alloc(dx, layout));
    TUTTI__CUDA(dx->cx, own, relu_backward, dx->dtype, dx->data, dy_data, y_data,
                tutti_shape_count(y->shape));
    return TUTTI_OK;
}

tutti_status tutti__cuda_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b)
{
    const void *a_data, *b_data;
    const tutti__layout *layout;

    TUTTI_TRY(alike(a, b, &a_data, &b_data, &layout));
    TUTTI_TRY(tutti__tensor_alloc(y, layout));
    TUTTI__CUDA(y->cx, own, add, y->dtype, y->data, a_data, b_data, tutti_shape_count(y->shape));
    return TUTTI_OK;
}

tutti_status tutti__cuda_add_to(tutti_tensor *dst, tutti_tensor *src)
{
    dst->kernel_cache_step = 0; /* invalidates copies of it in another layout */
    if (dst->layout != src->layout)
        return exchange(dst, src, true);
    TUTTI__CUDA(dst->cx, own, add, dst->dtype, dst->data, dst->data, src->data,
                tutti_shape_count(dst->shape));
    return TUTTI_OK;
}

tutti_status tutti__cuda_dropout(tutti_tensor *y, tutti_tensor *x, float p, uint32_t call)
{
    const tutti_ctx *cx = y->cx;
    const int64_t n = tutti_shape_count(x->shape), *d = x->shape.d;
    const tutti__cuda_mask c = {.key = cx->seed,
                                .step = (uint32_t)cx->step,
                                .shard = (uint32_t)cx->shard,
                                .call = call,
                                .p = p,
                                .channels = x->layout ? d[1] : 1,
                                .plane = x->layout ? d[2] * d[3] : n};

    TUTTI_TRY(tutti__tensor_alloc(y, x->layout));
    TUTTI__CUDA(cx, own, dropout, y->dtype, y->data, x->data, n, &c);
    return TUTTI_OK;
}
