/* elementwise.c -- reorder, relu, add, dropout.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

tutti_status tutti__reference_reorder(tutti_tensor *dst, tutti_tensor *src)
{
    if (dst->accumulate)
        return tutti__reference_add_to(dst, src);
    memcpy(dst->data, src->data, tutti__tensor_bytes(src));
    return TUTTI_OK;
}

tutti_status tutti__reference_relu_forward(tutti_tensor *y, tutti_tensor *x)
{
    const float *x_data = x->data;
    int64_t n = tutti_shape_count(x->shape);
    float *y_data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t i = 0; i < n; i++)
        y_data[i] = x_data[i] < 0 ? 0 : x_data[i]; /* NaN stays NaN */
    return TUTTI_OK;
}

tutti_status tutti__reference_relu_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y)
{
    const float *dy_data = dy->data, *y_data = y->data;
    int64_t n = tutti_shape_count(y->shape);
    float *dx_data;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    dx_data = dx->data;
    for (int64_t i = 0; i < n; i++) {
        float d = dy_data[i]; /* read in any case: no branch */

        dx_data[i] = y_data[i] <= 0 ? 0 : d;
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b)
{
    const float *a_data = a->data, *b_data = b->data;
    int64_t n = tutti_shape_count(y->shape);
    float *y_data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t i = 0; i < n; i++)
        y_data[i] = a_data[i] + b_data[i];
    return TUTTI_OK;
}

tutti_status tutti__reference_add_to(tutti_tensor *dst, tutti_tensor *src)
{
    tutti__axpy(dst->data, 1, src->data, tutti_shape_count(dst->shape));
    return TUTTI_OK;
}

tutti_status tutti__reference_dropout(tutti_tensor *y, tutti_tensor *x, float p, uint32_t call)
{
    const tutti_ctx *cx = y->cx;
    const float *x_data = x->data, scale = p < 1 ? 1 / (1 - p) : 0;
    int64_t n = tutti_shape_count(x->shape);
    float *y_data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t i = 0; i < n; i += 1024) {
        tutti__philox_counter counter = {
            {(uint32_t)cx->step, (uint32_t)cx->shard, call, (uint32_t)(i / 4)}};
        int64_t count = n - i < 1024 ? n - i : 1024;
        uint32_t words[1024];

        tutti__philox_fill(cx->seed, counter, 3, words, (size_t)count);
        for (int64_t k = 0; k < count; k++)
            y_data[i + k] = tutti__unit_float(words[k]) < p ? 0 : x_data[i + k] * scale;
    }
    return TUTTI_OK;
}
