/* softmax.c -- softmax and log-softmax over the last dimension.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"
#include "base/real.h"

#include <math.h>

/* log of the sum of exp(x), without overflow */
static double log_sum_exp(const float *x, int64_t n)
{
    float largest = x[0];
    double sum = 0;

    for (int64_t i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < n; i++)
        sum += tutti__exp((double)(x[i] - largest));
    return (double)largest + tutti__log(sum);
}

tutti_status tutti__reference_softmax_forward(tutti_tensor *y, tutti_tensor *x, bool log)
{
    int64_t width = x->shape.d[x->shape.n - 1], count = tutti_shape_count(x->shape);

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    for (int64_t at = 0; at < count; at += width) {
        const float *x_row = (const float *)x->data + at;
        float *y_row = (float *)y->data + at;
        double total = log_sum_exp(x_row, width);

        for (int64_t i = 0; i < width; i++) {
            double value = (double)x_row[i] - total;

            y_row[i] = (float)(log ? value : tutti__exp(value));
        }
    }
    return TUTTI_OK;
}

/* softmax: dx = y * (dy - sum dy*y).   log-softmax: dx = dy - exp(y) * sum dy */
tutti_status tutti__reference_softmax_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y,
                                               bool log)
{
    int64_t width = y->shape.d[y->shape.n - 1], count = tutti_shape_count(y->shape);

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int64_t at = 0; at < count; at += width) {
        const float *y_row = (const float *)y->data + at, *dy_row = (const float *)dy->data + at;
        float *dx_row = (float *)dx->data + at;
        double sum = 0;

        for (int64_t i = 0; i < width; i++)
            sum += (double)dy_row[i] * (log ? 1 : (double)y_row[i]);
        for (int64_t i = 0; i < width; i++) {
            double d = (double)dy_row[i], v = (double)y_row[i];

            dx_row[i] = (float)(log ? d - tutti__exp(v) * sum : v * (d - sum));
        }
    }
    return TUTTI_OK;
}
