/* linear.c -- y = x w^T + b by rows.   SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

tutti_status tutti__reference_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             tutti_tensor *b)
{
    int64_t R = x->shape.d[0], K = x->shape.d[1], M = w->shape.d[0];
    const float *x_data = x->data, *w_data = w->data, *bias = b ? b->data : NULL;
    float *y_data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t r = 0; r < R; r++)
        for (int64_t m = 0; m < M; m++)
            y_data[r * M + m] =
                tutti__dot(x_data + r * K, w_data + m * K, K) + (bias ? bias[m] : 0);
    return TUTTI_OK;
}

tutti_status tutti__reference_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                   tutti_tensor *w)
{
    int64_t R = dx->shape.d[0], K = dx->shape.d[1], M = w->shape.d[0];
    const float *dy_data = dy->data, *w_data = w->data;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    memset(dx->data, 0, tutti__tensor_bytes(dx));
    for (int64_t r = 0; r < R; r++)
        for (int64_t m = 0; m < M; m++)
            tutti__axpy((float *)dx->data + r * K, dy_data[r * M + m], w_data + m * K, K);
    return TUTTI_OK;
}

tutti_status tutti__reference_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                      tutti_tensor *dy, tutti_tensor *x)
{
    int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    const float *dy_data = dy->data, *x_data = x->data;

    if (dw) {
        if (!dw->accumulate)
            memset(dw->data, 0, tutti__tensor_bytes(dw));
        for (int64_t m = 0; m < M; m++)
            for (int64_t r = 0; r < R; r++)
                tutti__axpy((float *)dw->data + m * K, dy_data[r * M + m], x_data + r * K, K);
    }
    if (db) {
        float *db_data = db->data;

        for (int64_t m = 0; m < M; m++) {
            double sum = db->accumulate ? (double)db_data[m] : 0;

            for (int64_t r = 0; r < R; r++)
                sum += (double)dy_data[r * M + m];
            db_data[m] = (float)sum;
        }
    }
    return TUTTI_OK;
}
