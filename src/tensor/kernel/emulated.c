/* emulated.c -- 16-bit activations by kernels that support F32 only.   SPDX-License-Identifier: MIT
 *
 * Inputs are rounded to 16 bit and widened, the F32 kernel runs, outputs are rounded. A product of two 16-bit numbers is
 * exact in F32, so this equals hardware that multiplies in 16 bit and sums in F32, up to the order of the sums: it is the
 * oracle for such kernels, and replaces them for operations that are not worth one. Results are row-major. */
#include "tensor/kernel.h"

#include <string.h>

static const tutti__kernels *f32_of(const tutti_tensor *t)
{
    return t->cx->f32_kernels;
}

/* t as a row-major F32 tensor, which the caller releases; NULL stays NULL. */
static tutti_status wide(tutti_tensor *t, tutti_tensor **wide_p)
{
    *wide_p = NULL;
    if (!t)
        return TUTTI_OK;
    *wide_p = tutti__tensor_new(t->cx, t->shape, TUTTI_F32);
    return *wide_p ? tutti__cast_row_major(*wide_p, t) : TUTTI_ERR_MEMORY;
}

/* The values of F32 weights, rounded to dtype. */
static tutti_status rounded(tutti_tensor *w, tutti_dtype dtype, tutti_tensor **rounded_p)
{
    tutti_tensor *half = tutti__tensor_new(w->cx, w->shape, dtype);

    if (!half)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__cast_row_major(half, w));
    TUTTI_TRY(wide(half, rounded_p));
    tutti__tensor_release(half);
    return TUTTI_OK;
}

/* An F32 tensor without data, to be rounded to dst later; NULL stays NULL. */
static tutti_status blank(const tutti_tensor *dst, tutti_tensor **blank_p)
{
    *blank_p = dst ? tutti__tensor_new(dst->cx, dst->shape, TUTTI_F32) : NULL;
    return !dst || *blank_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* dst = from, rounded; releases from's memory. */
static tutti_status take(tutti_tensor *dst, tutti_tensor *from)
{
    if (!dst)
        return TUTTI_OK;
    TUTTI_TRY(tutti__cast_row_major(dst, from));
    tutti__tensor_release(from);
    return TUTTI_OK;
}

static void release(tutti_tensor *t)
{
    if (t)
        tutti__tensor_release(t);
}

/* ---- Products ---- */

static tutti_status conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b, const tutti__conv2d *a)
{
    tutti_tensor *y32, *x32, *w32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(rounded(w, y->dtype, &w32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->conv2d_forward(y32, x32, w32, b, a));
    release(x32);
    release(w32);
    return take(y, y32);
}

static tutti_status conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                         tutti_tensor *b, const tutti__conv2d *a)
{
    tutti_tensor *dx32, *dy32, *w32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(rounded(w, dy->dtype, &w32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(f32_of(dx)->conv2d_backward_data(dx32, dy32, w32, b, a));
    release(dy32);
    release(w32);
    return take(dx, dx32);
}

static tutti_status conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x, const tutti__conv2d *a)
{
    tutti_tensor *dy32, *x32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(f32_of(dy)->conv2d_backward_weights(dw, db, dy32, x32, a));
    release(dy32);
    release(x32);
    return TUTTI_OK;
}

static tutti_status linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b)
{
    tutti_tensor *y32, *x32, *w32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(rounded(w, y->dtype, &w32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->linear_forward(y32, x32, w32, b));
    release(x32);
    release(w32);
    return take(y, y32);
}

static tutti_status linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w)
{
    tutti_tensor *dx32, *dy32, *w32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(rounded(w, dy->dtype, &w32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(f32_of(dx)->linear_backward_data(dx32, dy32, w32));
    release(dy32);
    release(w32);
    return take(dx, dx32);
}

static tutti_status linear_backward_weights(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x)
{
    tutti_tensor *dy32, *x32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(f32_of(dy)->linear_backward_weights(dw, db, dy32, x32));
    release(dy32);
    release(x32);
    return TUTTI_OK;
}

static tutti_status matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                           const tutti__matmul *m)
{
    tutti_tensor *c32, *a32, *b32;

    TUTTI_TRY(wide(a, &a32));
    TUTTI_TRY(wide(b, &b32));
    if (c->dtype == TUTTI_F32) {
        TUTTI_TRY(f32_of(c)->matmul(c, a32, b32, m));
    } else {
        TUTTI_TRY(blank(c, &c32));
        TUTTI_TRY(f32_of(c)->matmul(c32, a32, b32, m));
        TUTTI_TRY(take(c, c32));
    }
    release(a32);
    release(b32);
    return TUTTI_OK;
}

/* ---- Batch norm ---- */

static tutti_status batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                       tutti_tensor *b, tutti_tensor *residual,
                                       tutti_tensor *running_mean, tutti_tensor *running_var,
                                       const tutti__batch_norm *a, tutti__batch_norm_saved *saved)
{
    tutti_tensor *y32, *x32, *residual32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(wide(residual, &residual32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->batch_norm_forward(y32, x32, w, b, residual32, running_mean, running_var,
                                            a, saved));
    TUTTI_TRY(take(y, y32)); /* may be lazy, and is then computed from x32 */
    release(x32);
    release(residual32);
    return TUTTI_OK;
}

static tutti_status batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                        tutti_tensor *dresidual, tutti_tensor *dy, tutti_tensor *y,
                                        tutti_tensor *x, tutti_tensor *w,
                                        const tutti__batch_norm *a,
                                        const tutti__batch_norm_saved *saved)
{
    tutti_tensor *dx32, *dresidual32, *dy32, *y32, *x32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(wide(y, &y32));
    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(blank(dresidual, &dresidual32));
    TUTTI_TRY(
        f32_of(dy)->batch_norm_backward(dx32, dw, db, dresidual32, dy32, y32, x32, w, a, saved));
    release(dy32);
    release(y32);
    release(x32);
    TUTTI_TRY(take(dresidual, dresidual32));
    return take(dx, dx32);
}

/* ---- Elementwise ---- */

static tutti_status add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b)
{
    tutti_tensor *y32, *a32, *b32;

    TUTTI_TRY(wide(a, &a32));
    TUTTI_TRY(wide(b, &b32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->add_forward(y32, a32, b32));
    release(a32);
    release(b32);
    return take(y, y32);
}

static tutti_status add_to(tutti_tensor *dst, tutti_tensor *src)
{
    tutti_tensor *dst32, *src32;

    TUTTI_TRY(wide(dst, &dst32));
    TUTTI_TRY(wide(src, &src32));
    TUTTI_TRY(f32_of(dst)->add_to(dst32, src32));
    tutti__half_from_f32(dst->data, dst32->data, (size_t)tutti_shape_count(dst->shape), dst->dtype);
    release(dst32);
    release(src32);
    return TUTTI_OK;
}

static tutti_status reorder(tutti_tensor *dst, tutti_tensor *src)
{
    if (!tutti__is_half(src->dtype))
        return f32_of(dst)->reorder(dst, src);
    if (dst->accumulate)
        return add_to(dst, src);
    memcpy(dst->data, src->data, tutti__tensor_bytes(src));
    return TUTTI_OK;
}

/* ---- Pooling ---- */

tutti_status tutti__emulated_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                              const tutti__pool *a, void **saved)
{
    tutti_tensor *y32, *x32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->max_pool_forward(y32, x32, a, saved));
    release(x32);
    return take(y, y32);
}

/* Kernels use only x's shape, and what they saved. */
tutti_status tutti__emulated_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                               const tutti__pool *a, void *saved)
{
    tutti_tensor *dx32, *dy32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(f32_of(dx)->max_pool_backward(dx32, dy32, x, a, saved));
    release(dy32);
    return take(dx, dx32);
}

tutti_status tutti__emulated_avg_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                              const tutti__pool *a)
{
    tutti_tensor *y32, *x32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->avg_pool_forward(y32, x32, a));
    release(x32);
    return take(y, y32);
}

tutti_status tutti__emulated_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                               const tutti__pool *a)
{
    tutti_tensor *dx32, *dy32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(f32_of(dx)->avg_pool_backward(dx32, dy32, a));
    release(dy32);
    return take(dx, dx32);
}

tutti_status tutti__emulated_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x)
{
    tutti_tensor *y32, *x32;

    TUTTI_TRY(wide(x, &x32));
    TUTTI_TRY(blank(y, &y32));
    TUTTI_TRY(f32_of(y)->global_avg_pool_forward(y32, x32));
    release(x32);
    return take(y, y32);
}

tutti_status tutti__emulated_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy)
{
    tutti_tensor *dx32, *dy32;

    TUTTI_TRY(wide(dy, &dy32));
    TUTTI_TRY(blank(dx, &dx32));
    TUTTI_TRY(f32_of(dx)->global_avg_pool_backward(dx32, dy32));
    release(dy32);
    return take(dx, dx32);
}

/* Softmax and losses have F32 inputs only, embeddings only weights. */
const tutti__kernels tutti__kernels_emulated = {
    .name = "emulated",
    .reorder = reorder,
    .cast = tutti__cast_row_major,
    .move = tutti__move_row_major,
    .fill = tutti__fill_row_major,
    .conv2d_forward = conv2d_forward,
    .conv2d_backward_data = conv2d_backward_data,
    .conv2d_backward_weights = conv2d_backward_weights,
    .linear_forward = linear_forward,
    .linear_backward_data = linear_backward_data,
    .linear_backward_weights = linear_backward_weights,
    .matmul = matmul,
    .batch_norm_forward = batch_norm_forward,
    .batch_norm_backward = batch_norm_backward,
    .add_forward = add_forward,
    .add_to = add_to,
    .max_pool_forward = tutti__emulated_max_pool_forward,
    .max_pool_backward = tutti__emulated_max_pool_backward,
    .avg_pool_forward = tutti__emulated_avg_pool_forward,
    .avg_pool_backward = tutti__emulated_avg_pool_backward,
    .global_avg_pool_forward = tutti__emulated_global_avg_pool_forward,
    .global_avg_pool_backward = tutti__emulated_global_avg_pool_backward,
};
