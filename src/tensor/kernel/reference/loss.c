/* loss.c -- cross entropy and mean squared error.   SPDX-License-Identifier: MIT
 *
 * Cross entropy of a row with label t among C classes, s the label smoothing, p the softmax:
 *   -(1 - s) * log p[t] - s / C * sum log p        gradient: p - (1 - s) * [c = t] - s / C
 * and the mean over the rows that are not ignored (0 / 0 where all are, as in PyTorch; their
 * gradient is 0). */
#include "tensor/kernel/reference/reference.h"
#include "base/real.h"

#include <math.h>

tutti_status tutti__reference_cross_entropy_forward(tutti_tensor *loss, tutti_tensor *logits,
                                                    tutti_tensor *labels,
                                                    const tutti__cross_entropy *a, void **saved)
{
    int64_t N = logits->shape.d[0], C = logits->shape.d[1];
    const int64_t *label = labels->data;
    tutti_tensor *log_p = tutti__tensor_new(logits->cx, logits->shape, TUTTI_F32);
    double sum = 0, counted = 0, smoothing = (double)a->label_smoothing;

    TUTTI_TRY(log_p ? TUTTI_OK : TUTTI_ERR_MEMORY);
    TUTTI_TRY(tutti__reference_softmax_forward(log_p, logits, true));
    TUTTI_TRY(tutti__tensor_alloc(loss, NULL));
    *saved = log_p->data;
    for (int64_t n = 0; n < N; n++) {
        const float *row = (const float *)log_p->data + n * C;
        double all = 0;

        if (label[n] == a->ignore_index)
            continue;
        for (int64_t c = 0; c < C && smoothing > 0; c++)
            all += (double)row[c];
        sum -= (1 - smoothing) * (double)row[label[n]] + smoothing / (double)C * all;
        counted++;
    }
    *(float *)loss->data = (float)(sum / counted);
    return TUTTI_OK;
}

tutti_status tutti__reference_cross_entropy_backward(tutti_tensor *dx, tutti_tensor *dloss,
                                                     tutti_tensor *logits, tutti_tensor *labels,
                                                     const tutti__cross_entropy *a, void *saved)
{
    int64_t N = logits->shape.d[0], C = logits->shape.d[1], counted = 0;
    const int64_t *label = labels->data;
    const float *log_p = saved;
    double smoothing = (double)a->label_smoothing, scale;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int64_t n = 0; n < N; n++)
        counted += label[n] != a->ignore_index;
    scale = counted ? (double)*(const float *)dloss->data / (double)counted : 0;
    for (int64_t n = 0; n < N; n++) {
        float *dx_row = (float *)dx->data + n * C;

        for (int64_t c = 0; c < C; c++) {
            double target = smoothing / (double)C + (c == label[n] ? 1 - smoothing : 0);
            double d = tutti__exp((double)log_p[n * C + c]) - target;

            dx_row[c] = label[n] == a->ignore_index ? 0 : (float)(d * scale);
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_mse_forward(tutti_tensor *loss, tutti_tensor *x, tutti_tensor *target)
{
    int64_t count = tutti_shape_count(x->shape);
    const float *x_data = x->data, *target_data = target->data;
    double sum = 0;

    TUTTI_TRY(tutti__tensor_alloc(loss, NULL));
    for (int64_t i = 0; i < count; i++) {
        double d = (double)x_data[i] - (double)target_data[i];

        sum += d * d;
    }
    *(float *)loss->data = (float)(sum / (double)count);
    return TUTTI_OK;
}

tutti_status tutti__reference_mse_backward(tutti_tensor *dx, tutti_tensor *dloss, tutti_tensor *x,
                                           tutti_tensor *target)
{
    int64_t count = tutti_shape_count(x->shape);
    const float *x_data = x->data, *target_data = target->data;
    float scale = 2 * *(const float *)dloss->data / (float)count, *dx_data;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    dx_data = dx->data;
    for (int64_t i = 0; i < count; i++)
        dx_data[i] = scale * (x_data[i] - target_data[i]);
    return TUTTI_OK;
}
