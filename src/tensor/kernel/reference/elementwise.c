/* elementwise.c -- reorder and add.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

tutti_status tutti__reference_reorder(tutti_tensor *dst, tutti_tensor *src)
{
    if (dst->accumulate)
        return tutti__reference_add_to(dst, src);
    memcpy(dst->data, src->data, tutti__tensor_bytes(src));
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
