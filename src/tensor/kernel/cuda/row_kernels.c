/* row_kernels.c -- softmax, norms, losses and embedding by our own kernels; row-major, F32.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/cuda_kernels.h"

/* How many rows t [..,width] has. */
static int64_t rows_of(const tutti_tensor *t)
{
    return tutti_shape_count(t->shape) / t->shape.d[t->shape.n - 1];
}

tutti_status tutti__cuda_softmax_forward(tutti_tensor *y, tutti_tensor *x, bool log)
{
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(x, &p));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    TUTTI__CUDA(y->cx, own, softmax, y->data, p, rows_of(x), x->shape.d[x->shape.n - 1], log);
    return TUTTI_OK;
}

tutti_status tutti__cuda_softmax_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y,
                                          bool log)
{
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(dy, &p));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    TUTTI__CUDA(dx->cx, own, softmax_backward, dx->data, p, y->data, rows_of(y),
                y->shape.d[y->shape.n - 1], log);
    return TUTTI_OK;
}

static tutti__cuda_norm norm_of(const tutti__row_norm *a, const void *x, const tutti_tensor *w,
                                const float *moments)
{
    return (tutti__cuda_norm){.rows = a->rows,
                              .width = a->width,
                              .groups = a->groups,
                              .length = a->length,
                              .eps = a->eps,
                              .centred = a->centred,
                              .x = x,
                              .weight = w ? w->data : NULL,
                              .moments = (float *)(uintptr_t)moments};
}

tutti_status tutti__cuda_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                      tutti_tensor *b, const tutti__row_norm *a, float *moments)
{
    tutti__cuda_norm c;
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(x, &p));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    c = norm_of(a, p, w, moments);
    TUTTI__CUDA(y->cx, own, norm, &c, y->data, b ? b->data : NULL);
    return TUTTI_OK;
}

/* dw and db are sums over samples and over the neighbours that have a weight in common. */
tutti_status tutti__cuda_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                       tutti_tensor *dy, tutti_tensor *x, tutti_tensor *w,
                                       const tutti__row_norm *a, const float *moments)
{
    tutti_ctx *cx = x->cx;
    const int64_t weights = a->groups * (a->width / a->length);
    const tutti__cuda_fold f = tutti__cuda_fold_of(
        TUTTI_SHAPE(1, weights, 1), TUTTI_SHAPE(a->rows / a->groups, weights, a->length));
    const size_t bytes = ((size_t)(a->rows * a->width) * sizeof(float) + 15) / 16 * 16;
    const void *x_data, *dy_data;
    tutti__cuda_norm c;
    void *scratch;

    TUTTI_TRY(tutti__tensor_row_major(x, &x_data));
    TUTTI_TRY(tutti__tensor_row_major(dy, &dy_data));
    c = norm_of(a, x_data, w, moments);
    if (dx) {
        TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
        TUTTI__CUDA(cx, own, norm_backward, &c, dx->data, dy_data);
    }
    TUTTI_TRY(
        tutti__cuda_scratch(cx, bytes + tutti__cuda_state_of(cx)->own->fold_scratch(&f), &scratch));
    if (dw) {
        TUTTI_TRY(tutti__tensor_alloc(dw, NULL));
        TUTTI__CUDA(cx, own, norm_products, &c, scratch, dy_data);
        TUTTI__CUDA(cx, own, fold, ((tutti__cuda_array){dw->data, TUTTI_F32}),
                    ((tutti__cuda_array){scratch, TUTTI_F32}), &f, (char *)scratch + bytes);
    }
    if (db) {
        TUTTI_TRY(tutti__tensor_alloc(db, NULL));
        TUTTI__CUDA(cx, own, fold, ((tutti__cuda_array){db->data, TUTTI_F32}),
                    ((tutti__cuda_array){(void *)(uintptr_t)dy_data, TUTTI_F32}), &f,
                    (char *)scratch + bytes);
    }
    return TUTTI_OK;
}

static tutti__cuda_cross_entropy geometry_of(const tutti_tensor *logits,
                                             const tutti__cross_entropy *a)
{
    return (tutti__cuda_cross_entropy){logits->shape.d[0], logits->shape.d[1], a->label_smoothing,
                                       a->ignore_index};
}

tutti_status tutti__cuda_cross_entropy_forward(tutti_tensor *loss, tutti_tensor *logits,
                                               tutti_tensor *labels, const tutti__cross_entropy *a,
                                               void **saved)
{
    const tutti__cuda_cross_entropy c = geometry_of(logits, a);

    *saved = tutti__step_memory(loss->cx, (size_t)(3 * c.N + 1) * sizeof(float));
    if (!*saved)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(loss, NULL));
    TUTTI__CUDA(loss->cx, own, cross_entropy, &c, loss->data, logits->data, labels->data, *saved);
    return TUTTI_OK;
}

tutti_status tutti__cuda_cross_entropy_backward(tutti_tensor *dx, tutti_tensor *dloss,
                                                tutti_tensor *logits, tutti_tensor *labels,
                                                const tutti__cross_entropy *a, void *saved)
{
    const tutti__cuda_cross_entropy c = geometry_of(logits, a);

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    TUTTI__CUDA(dx->cx, own, cross_entropy_backward, &c, dx->data, dloss->data, logits->data,
                labels->data, saved);
    return TUTTI_OK;
}

tutti_status tutti__cuda_label_rows(tutti_tensor *logits, const int64_t *labels, float *loss,
                                    const tutti__label_rows *a)
{
    const tutti__cuda_cross_entropy c = {a->rows, a->classes, a->label_smoothing, a->ignore_index};
    const tutti__cuda_parts parts = {a->first, a->all_classes, a->ranks, a->rank,
                                     (const double *)a->sums};

    TUTTI__CUDA(logits->cx, own, label_rows, &c, ((tutti__cuda_array){logits->data, logits->dtype}),
                labels, loss, a->gradients, a->divisor, &parts);
    return TUTTI_OK;
}

tutti_status tutti__cuda_label_sums(tutti_tensor *logits, const int64_t *labels,
                                    tutti__row_sums *sums, const tutti__label_rows *a)
{
    const tutti__cuda_cross_entropy c = {a->rows, a->classes, a->label_smoothing, a->ignore_index};

    TUTTI__CUDA(logits->cx, own, label_sums, &c, ((tutti__cuda_array){logits->data, logits->dtype}),
                labels, a->first, (double *)sums);
    return TUTTI_OK;
}

tutti_status tutti__cuda_mse_forward(tutti_tensor *loss, tutti_tensor *x, tutti_tensor *target)
{
    const int64_t n = tutti_shape_count(x->shape);
    const void *x_data, *target_data;
    void *scratch;

    TUTTI_TRY(tutti__tensor_row_major(x, &x_data));
    TUTTI_TRY(tutti__tensor_row_major(target, &target_data));
    TUTTI_TRY(tutti__cuda_scratch(loss->cx, tutti__cuda_state_of(loss->cx)->own->mse_scratch(n),
                                  &scratch));
    TUTTI_TRY(tutti__tensor_alloc(loss, NULL));
    TUTTI__CUDA(loss->cx, own, mse, loss->data, x_data, target_data, n, scratch);
    return TUTTI_OK;
}

tutti_status tutti__cuda_mse_backward(tutti_tensor *dx, tutti_tensor *dloss, tutti_tensor *x,
                                      tutti_tensor *target)
{
    const void *x_data, *target_data;

    TUTTI_TRY(tutti__tensor_row_major(x, &x_data));
    TUTTI_TRY(tutti__tensor_row_major(target, &target_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    TUTTI__CUDA(dx->cx, own, mse_backward, dx->data, dloss->data, x_data, target_data,
                tutti_shape_count(x->shape));
    return TUTTI_OK;
}

tutti_status tutti__cuda_embedding_forward(tutti_tensor *y, tutti_tensor *w, tutti_tensor *indices)
{
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    TUTTI__CUDA(y->cx, own, embedding, y->data, w->data, indices->data,
                tutti_shape_count(indices->shape), w->shape.d[1]);
    return TUTTI_OK;
}

tutti_status tutti__cuda_embedding_backward(tutti_tensor *dw, tutti_tensor *dy,
                                            tutti_tensor *indices)
{
    tutti_stream *stream = dw->cx->stream;

    if (!dw->accumulate)
        TUTTI_TRY(stream->ops->zero(stream, dw->data, tutti__tensor_bytes(dw)));
    TUTTI__CUDA(dw->cx, own, embedding_backward, dw->data, dy->data, indices->data,
                tutti_shape_count(indices->shape), dw->shape.d[1]);
    return TUTTI_OK;
}
