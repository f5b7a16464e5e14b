/* formula.c -- elementwise operations of op/elementwise.def, in any layout, with broadcasting.   SPDX-License-Identifier: MIT
 *
 * The result is channels last if a source of its shape is, and the others can be read so; else all are row-major. A gradient of a
 * source that is broadcast is computed in the result's shape, then summed. */
#include "tensor/kernel/cuda/cuda_kernels.h"
#include <tutti/op.h>

#include <string.h>

static tutti__cuda_array array_of(const void *p, tutti_dtype dtype)
{
    return (tutti__cuda_array){(void *)(uintptr_t)p, dtype};
}

/* ---- Layouts ----------------------------------------------------------------------------------- */

/* t's sizes, with leading ones, in the order in memory. */
static tutti_shape ordered(tutti_shape t, int n, bool channels_last)
{
    tutti_shape s = {.n = n};

    for (int i = 0; i < n; i++)
        s.d[i] = i < n - t.n ? 1 : t.d[i - (n - t.n)];
    if (channels_last) {
        const int64_t channels = s.d[1];

        s.d[1] = s.d[2];
        s.d[2] = s.d[3];
        s.d[3] = channels;
    }
    return s;
}

/* Whether t, broadcast to four dimensions, can be read channels last. */
static bool can_be_last(const tutti_tensor *t)
{
    const tutti_shape s = ordered(t->shape, 4, false);

    return t->shape.n == 4 || s.d[1] == 1 || s.d[2] * s.d[3] == 1;
}

static bool channels_last(const tutti_tensor *y, const tutti_tensor *dy,
                          const tutti__formula_args *a)
{
    bool any = dy && dy->layout;

    if (y->shape.n != 4)
        return false;
    for (int i = 0; i < a->n_src; i++) {
        if (!a->src[i])
            continue;
        if (!can_be_last(a->src[i]))
            return false;
        any |= a->src[i]->layout && tutti_shape_equal(a->src[i]->shape, y->shape);
    }
    return any;
}

static tutti_status read_as(tutti_tensor *t, bool last, const void **p)
{
    return last ? tutti__cuda_nhwc(t, p) : tutti__tensor_row_major(t, p);
}

static tutti_status alloc_as(tutti_tensor *t, bool last)
{
    return last ? tutti__cuda_alloc(t) : tutti__tensor_alloc(t, NULL);
}

/* ---- Strides ----------------------------------------------------------------------------------- */

/* Strides of s in memory, 0 where it is broadcast to `wide`. */
static void strides_in(tutti_shape s, tutti_shape wide, int64_t *stride)
{
    int64_t at = 1;

    for (int i = s.n - 1; i >= 0; i--) {
        stride[i] = s.d[i] == 1 && wide.d[i] != 1 ? 0 : at;
        at *= s.d[i];
    }
}

/* Appends a dimension of the result, or continues the last one. */
static void append(tutti__cuda_elements *e, int64_t size, int64_t (*stride)[TUTTI_MAX_DIMS], int at)
{
    const int last = e->n_dims - 1;
    bool continues = last >= 0;

    if (size == 1)
        return;
    for (int k = 0; continues && k < TUTTI__CUDA_MAX_SOURCES; k++)
        continues = e->stride[k][last] == stride[k][at] * size;
    if (!continues)
        e->n_dims++;
    e->size[e->n_dims - 1] = continues ? e->size[last] * size : size;
    for (int k = 0; k < TUTTI__CUDA_MAX_SOURCES; k++)
        e->stride[k][e->n_dims - 1] = stride[k][at];
}

/* The sources in `reads`, in memory of y's order. */
static tutti_status elements_of(const tutti_tensor *y, const tutti__formula_args *a, unsigned reads,
                                bool last, tutti__cuda_elements *e)
{
    const tutti_shape wide = ordered(y->shape, y->shape.n, last);
    int64_t stride[TUTTI__CUDA_MAX_SOURCES][TUTTI_MAX_DIMS] = {{0}};

    *e = (tutti__cuda_elements){
        .formula = a->formula, .n = tutti_shape_count(y->shape), .flat = true};
    if (a->constants)
        memcpy(e->constants, a->constants, sizeof e->constants);
    for (int i = 0; i < a->n_src; i++) {
        const void *p;

        if (!a->src[i] || !(reads >> i & 1))
            continue;
        TUTTI_TRY(read_as(a->src[i], last, &p));
        e->src[i] = array_of(p, a->src[i]->dtype);
        strides_in(ordered(a->src[i]->shape, wide.n, last), wide, stride[i]);
        e->flat = e->flat && tutti_shape_count(a->src[i]->shape) == e->n;
    }
    for (int i = 0; i < wide.n; i++)
        append(e, wide.d[i], stride, i);
    return TUTTI_OK;
}

tutti_status tutti__cuda_elementwise_forward(tutti_tensor *y, const tutti__formula_args *a)
{
    const bool last = channels_last(y, NULL, a);
    tutti__cuda_elements e;

    TUTTI_TRY(elements_of(y, a, ~0u, last, &e));
    TUTTI_TRY(alloc_as(y, last));
    TUTTI__CUDA(y->cx, own, formula, array_of(y->data, y->dtype), &e);
    return TUTTI_OK;
}

/* ---- Backward ---------------------------------------------------------------------------------- */

/* Appends a dimension to those kept or folded, or continues the last one. */
static void append_to_fold(int *n, int64_t *size, int64_t *stride, int64_t d, int64_t s)
{
    if (*n > 0 && stride[*n - 1] == d * s) {
        size[*n - 1] *= d;
        stride[*n - 1] = s;
        return;
    }
    size[*n] = d;
    stride[(*n)++] = s;
}

tutti__cuda_fold tutti__cuda_fold_of(tutti_shape narrow, tutti_shape wide)
{
    tutti__cuda_fold f = {.kind = TUTTI__FOLD_SUM, .divisor = 1, .kept = 1, .folded = 1};
    int64_t stride[TUTTI_MAX_DIMS];

    strides_in(wide, wide, stride);
    for (int i = 0; i < wide.n; i++) {
        if (wide.d[i] == 1)
            continue;
        if (narrow.d[i] != 1) {
            append_to_fold(&f.n_kept, f.kept_size, f.kept_stride, wide.d[i], stride[i]);
            f.kept *= wide.d[i];
        } else {
            append_to_fold(&f.n_folded, f.folded_size, f.folded_stride, wide.d[i], stride[i]);
            f.folded *= wide.d[i];
        }
    }
    return f;
}

/* dx, which is broadcast, = the sum of the gradients of y's elements. */
static tutti_status summed_gradient(tutti_tensor *dx, int source, tutti__cuda_array dy,
                                    tutti__cuda_array y, const tutti__cuda_elements *e,
                                    tutti_shape wide, bool last)
{
    const tutti__cuda_fold f = tutti__cuda_fold_of(ordered(dx->shape, wide.n, last), wide);
    const size_t bytes = ((size_t)e->n * sizeof(float) + 15) / 16 * 16;
    void *scratch;

    TUTTI_TRY(tutti__cuda_scratch(
        dx->cx, bytes + tutti__cuda_state_of(dx->cx)->own->fold_scratch(&f), &scratch));
    TUTTI__CUDA(dx->cx, own, formula_backward, array_of(scratch, TUTTI_F32), source, dy, y, e);
    TUTTI__CUDA(dx->cx, own, fold, array_of(dx->data, dx->dtype), array_of(scratch, TUTTI_F32), &f,
                (char *)scratch + bytes);
    return TUTTI_OK;
}

tutti_status tutti__cuda_elementwise_backward(tutti_tensor *const *dsrc, tutti_tensor *dy,
                                              tutti_tensor *y, const tutti__formula_args *a)
{
    const bool last = channels_last(y, dy, a);
    const tutti_shape wide = ordered(y->shape, y->shape.n, last);
    const void *dy_data, *y_data = NULL;
    tutti__cuda_elements e;

    TUTTI_TRY(elements_of(y, a, a->reads, last, &e));
    TUTTI_TRY(read_as(dy, last, &dy_data));
    if (a->reads & TUTTI_OP_RESULT)
        TUTTI_TRY(read_as(y, last, &y_data));
    for (int i = 0; i < a->n_src; i++) {
        if (!dsrc[i])
            continue;
        TUTTI_TRY(alloc_as(dsrc[i], last));
        if (tutti_shape_count(dsrc[i]->shape) == e.n)
            TUTTI__CUDA(y->cx, own, formula_backward, array_of(dsrc[i]->data, dsrc[i]->dtype), i,
                        array_of(dy_data, dy->dtype), array_of(y_data, y->dtype), &e);
        else
            TUTTI_TRY(summed_gradient(dsrc[i], i, array_of(dy_data, dy->dtype),
                                      array_of(y_data, y->dtype), &e, wide, last));
    }
    return TUTTI_OK;
}

tutti_status tutti__cuda_job(tutti_ctx *cx, const tutti__each_job *job, int64_t n)
{
    TUTTI__CUDA(cx, own, job, job, n);
    return TUTTI_OK;
}

tutti_status tutti__cuda_fold_tensor(tutti_tensor *y, tutti_tensor *x, const tutti__fold_args *a)
{
    tutti__cuda_fold f = tutti__cuda_fold_of(TUTTI_SHAPE(a->outer, 1, a->inner),
                                             TUTTI_SHAPE(a->outer, a->n, a->inner));
    const void *p;
    void *scratch;

    f.kind = a->kind;
    f.kept = a->outer * a->inner;
    f.folded = a->n;
    f.given = a->given;
    f.divisor = a->divisor;
    f.root = a->root;
    f.power = a->power;
    TUTTI_TRY(tutti__tensor_row_major(x, &p));
    TUTTI_TRY(tutti__cuda_scratch(x->cx, tutti__cuda_state_of(x->cx)->own->fold_scratch(&f) + 1,
                                  &scratch));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    TUTTI__CUDA(x->cx, own, fold, array_of(y->data, y->dtype), array_of(p, x->dtype), &f, scratch);
    return TUTTI_OK;
}
