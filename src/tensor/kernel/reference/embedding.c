/* embedding.c -- copies rows out of a table, and adds gradients to it.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

tutti_status tutti__reference_embedding_forward(tutti_tensor *y, tutti_tensor *w,
                                                tutti_tensor *indices)
{
    const int64_t *index = indices->data, D = w->shape.d[1];

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    if (y->cx->device_ops->plans)
        return TUTTI_OK;
    for (int64_t i = 0; i < tutti_shape_count(indices->shape); i++)
        memcpy((float *)y->data + i * D, (const float *)w->data + index[i] * D,
               (size_t)D * sizeof(float));
    return TUTTI_OK;
}

tutti_status tutti__reference_embedding_backward(tutti_tensor *dw, tutti_tensor *dy,
                                                 tutti_tensor *indices)
{
    const int64_t *index = indices->data, D = dw->shape.d[1];

    if (dw->cx->device_ops->plans)
        return TUTTI_OK;
    if (!dw->accumulate)
        memset(dw->data, 0, tutti__tensor_bytes(dw));
    for (int64_t i = 0; i < tutti_shape_count(indices->shape); i++) {
        const float *from = (const float *)dy->data + i * D;
        float *to = (float *)dw->data + index[i] * D;

        for (int64_t d = 0; d < D; d++)
            to[d] += from[d];
    }
    return TUTTI_OK;
}
