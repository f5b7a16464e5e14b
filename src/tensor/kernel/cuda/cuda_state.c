/* cuda_state.c -- state of a context's CUDA kernels: layouts, copies of tensors in another layout, scratch memory.
 * SPDX-License-Identifier: MIT */
#include "device/cuda/cuda.h"
#include "tensor/kernel/cuda/cuda_kernels.h"

#include <stdlib.h>

struct tutti__cuda_layout_entry {
    tutti__layout layout;
    struct tutti__cuda_layout_entry *next;
};

tutti_status tutti__cuda_open(tutti_ctx *cx)
{
    tutti__cuda_state *state = tutti__alloc(sizeof *state);
    tutti_status status;

    if (!state)
        return TUTTI_ERR_MEMORY;
    state->module = tutti__cuda_module();
    state->own = state->module->own;
    state->products = state->module->products;
    state->device = cx->device.index;
    state->stream = tutti__cuda_native(cx->stream);
    cx->kernel_state = state;
    status = tutti__cuda_products_open(cx);
    if (status != TUTTI_OK)
        tutti__cuda_close(cx);
    return status;
}

void tutti__cuda_close(tutti_ctx *cx)
{
    tutti__cuda_state *state = cx->kernel_state;

    if (!state)
        return;
    tutti__cuda_products_close(cx);
    cx->device_ops->free(cx->device, state->scratch);
    while (state->layouts) {
        struct tutti__cuda_layout_entry *next = state->layouts->next;

        free(state->layouts);
        state->layouts = next;
    }
    free(state);
    cx->kernel_state = NULL;
}

tutti_status tutti__cuda_check(const tutti_ctx *cx, tutti_status status, const char *what)
{
    return tutti__cuda_done(cx->device, status, what);
}

tutti_status tutti__cuda_scratch(tutti_ctx *cx, size_t bytes, void **p)
{
    tutti__cuda_state *state = cx->kernel_state;

    if (bytes > state->scratch_bytes) {
        cx->device_ops->free(cx->device, state->scratch);
        state->scratch_bytes = 0;
        state->scratch = cx->device_ops->alloc(cx->device, bytes, false);
        cx->kernel_allocations++;
        if (!state->scratch)
            return TUTTI_ERR_MEMORY;
        state->scratch_bytes = bytes;
    }
    *p = state->scratch;
    return TUTTI_OK;
}

/* ---- Layouts ---- */

/* Layouts differ only in size: the order of dimensions follows from the shape. */
tutti_status tutti__cuda_nhwc_layout(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype,
                                     const tutti__layout **layout_p)
{
    tutti__cuda_state *state = cx->kernel_state;
    const size_t bytes = (size_t)tutti_shape_count(shape) * tutti_dtype_size(dtype);
    struct tutti__cuda_layout_entry *e;

    *layout_p = NULL;
    if (shape.n != 4 || shape.d[1] == 1 || shape.d[2] * shape.d[3] == 1)
        return TUTTI_OK;
    for (e = state->layouts; e && e->layout.bytes != bytes; e = e->next)
        continue;
    if (!e) {
        e = tutti__alloc(sizeof *e);
        if (!e)
            return TUTTI_ERR_MEMORY;
        e->layout.bytes = bytes;
        e->next = state->layouts;
        state->layouts = e;
        cx->kernel_allocations++;
    }
    *layout_p = &e->layout;
    return TUTTI_OK;
}

tutti_status tutti__cuda_alloc(tutti_tensor *t)
{
    const tutti__layout *layout;

    TUTTI_TRY(tutti__cuda_nhwc_layout(t->cx, t->shape, t->dtype, &layout));
    return tutti__tensor_alloc(t, layout);
}

/* ---- Copies of a tensor, kept with it ---- */

typedef struct copy {
    struct copy *next;
    tutti_dtype dtype;
    bool channels_last;
    void *data;
} copy;

/* Views t as [first][rest][second]: the first dimensions of its shape as one, the second as another, the rest as one. */
static tutti_status fill(const tutti_tensor *t, copy *c)
{
    const int64_t n = tutti_shape_count(t->shape), *d = t->shape.d;
    const tutti__cuda_array to = {c->data, c->dtype}, from = {t->data, t->dtype};

    if (!c->channels_last)
        TUTTI__CUDA(t->cx, own, cast, to, from, n);
    else
        TUTTI__CUDA(t->cx, own, transpose, to, from, d[0], d[1], d[2] * d[3], false);
    return TUTTI_OK;
}

/* t's elements, which are row-major, in dtype and the other layout. */
static tutti_status copied(tutti_tensor *t, tutti_dtype dtype, bool channels_last, const void **p)
{
    tutti_ctx *cx = t->cx;
    copy *c;

    if (t->kernel_cache_step != cx->round)
        t->kernel_cache = NULL;
    t->kernel_cache_step = cx->round;
    for (c = t->kernel_cache; c && (c->dtype != dtype || c->channels_last != channels_last);)
        c = c->next;
    if (!c) {
        c = tutti__step_alloc(cx, sizeof *c);
        if (!c)
            return TUTTI_ERR_MEMORY;
        *c = (copy){
            t->kernel_cache, dtype, channels_last,
            tutti__step_memory(cx, (size_t)tutti_shape_count(t->shape) * tutti_dtype_size(dtype))};
        if (!c->data)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(fill(t, c));
        t->kernel_cache = c;
    }
    *p = c->data;
    return TUTTI_OK;
}

/* Whether the order of t's elements depends on the position of the channels. */
static bool has_planes(const tutti_tensor *t)
{
    return t->shape.n == 4 && t->shape.d[1] != 1 && t->shape.d[2] * t->shape.d[3] != 1;
}

tutti_status tutti__cuda_nhwc(tutti_tensor *t, const void **p)
{
    *p = t->data;
    return t->layout || !has_planes(t) ? TUTTI_OK : copied(t, t->dtype, true, p);
}

tutti_status tutti__cuda_weights(tutti_tensor *w, tutti_dtype dtype, bool channels_last,
                                 const void **p)
{
    channels_last = channels_last && has_planes(w);
    *p = w->data;
    return dtype == w->dtype && !channels_last ? TUTTI_OK : copied(w, dtype, channels_last, p);
}

tutti_status tutti__cuda_weight_gradient(tutti_tensor *dw, const void *from, tutti_dtype dtype)
{
    const int64_t *d = dw->shape.d;

    TUTTI__CUDA(dw->cx, own, transpose, ((tutti__cuda_array){dw->data, dw->dtype}),
                ((tutti__cuda_array){(void *)(uintptr_t)from, dtype}), d[0], d[2] * d[3], d[1],
                dw->accumulate);
    return TUTTI_OK;
}

tutti_status tutti__cuda_bias_gradient(tutti_tensor *db, tutti_tensor *dy)
{
    const tutti__cuda_own *own = tutti__cuda_state_of(db->cx)->own;
    const int64_t channels = db->shape.d[0], rows = tutti_shape_count(dy->shape) / channels;
    const void *p = dy->data;
    void *scratch;

    if (dy->shape.n == 4)
        TUTTI_TRY(tutti__cuda_nhwc(dy, &p));
    TUTTI_TRY(tutti__cuda_scratch(db->cx, own->batch_norm_scratch(rows, channels), &scratch));
    TUTTI__CUDA(db->cx, own, sum_rows, dy->dtype, db->data, p, rows, channels, db->accumulate,
                scratch);
    return TUTTI_OK;
}
