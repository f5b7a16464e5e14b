/* channels.h -- local response norm: x [N][channels][length], over the channels around an element.   SPDX-License-Identifier: MIT
 *   s_c = k + alpha / size * (sum of x_j^2 over the channels j from c - size / 2 on, `size` of them, that exist)
 *   y_c = x_c s_c^-beta,  dx_j = dy_j s_j^-beta - 2 alpha beta / size * x_j * (sum over c with j in its window: dy_c x_c s_c^(-beta - 1)) */
#ifndef TUTTI_TENSOR_JOB_CHANNELS_H
#define TUTTI_TENSOR_JOB_CHANNELS_H

#include "base/real.h"

#include <stdbool.h>

typedef struct tutti__job_channels {
    int64_t channels, length, size;
    float alpha, beta, k;
    const float *x, *dy;
    float *to, *kept; /* kept: s */
} tutti__job_channels;

TUTTI__FORMULA double tutti__response_power(float s, float by)
{
    return tutti__exp_normal((double)by * tutti__log_normal((double)s));
}

/* Whether channel j is in the window of c. */
TUTTI__FORMULA bool tutti__response_reads(const tutti__job_channels *l, int64_t c, int64_t j)
{
    return c - l->size / 2 <= j && j < c - l->size / 2 + l->size;
}

TUTTI__FORMULA void tutti__do_response_norm(const tutti__job_channels *l, int64_t i)
{
    const int64_t c = i / l->length % l->channels;
    const float *x = l->x + (i - c * l->length);
    double squares = 0;

    for (int64_t j = c - l->size / 2; j < c - l->size / 2 + l->size; j++)
        if (j >= 0 && j < l->channels)
            squares += (double)x[j * l->length] * (double)x[j * l->length];
    l->kept[i] = (float)((double)l->k + (double)l->alpha / (double)l->size * squares);
    l->to[i] = (float)((double)l->x[i] * tutti__response_power(l->kept[i], -l->beta));
}

TUTTI__FORMULA void tutti__do_response_norm_gradient(const tutti__job_channels *l, int64_t i)
{
    const int64_t j = i / l->length % l->channels, first = i - j * l->length;
    const double factor = 2 * (double)l->alpha * (double)l->beta / (double)l->size;
    double sum = 0;

    for (int64_t c = j - l->size; c <= j + l->size; c++) {
        const int64_t at = first + c * l->length;

        if (c >= 0 && c < l->channels && tutti__response_reads(l, c, j))
            sum += (double)l->dy[at] * (double)l->x[at] *
                   tutti__response_power(l->kept[at], -l->beta - 1);
    }
    l->to[i] = (float)((double)l->dy[i] * tutti__response_power(l->kept[i], -l->beta) -
                       factor * (double)l->x[i] * sum);
}

#endif
