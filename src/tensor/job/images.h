/* images.h -- planes of another size: adaptive pools, interpolation.   SPDX-License-Identifier: MIT
 * x [planes][H][W], y [planes][h][w], row-major */
#ifndef TUTTI_TENSOR_JOB_IMAGES_H
#define TUTTI_TENSOR_JOB_IMAGES_H

#include "base/real.h"

#include <stdbool.h>

/* Pixel i of y is at `low` and the one after it, whose share is `share`. In the place of three floats. */
typedef struct tutti__pixel_position {
    int32_t low, step; /* step: 1, or 0 at the end */
    float share;
} tutti__pixel_position;

typedef struct tutti__job_images {
    int64_t H, W, h, w;
    const float *x, *dy;
    float *to;
    int32_t *kept; /* maximum: where in its plane of x each element of y is */
    const tutti__pixel_position *row, *column; /* interpolation: [h], [w]; `low` grows */
    bool linear;                               /* interpolation; else the nearest */
} tutti__job_images;

/* ---- Adaptive pools ------------------------------------------------------------------------------------ */

/* Element i of `out` is of elements tutti__window_begin to tutti__window_end - 1 of `in`; with the two exchanged, these are the windows
 * that element i is in. */
TUTTI__FORMULA int64_t tutti__window_begin(int64_t i, int64_t in, int64_t out)
{
    return i * in / out;
}

TUTTI__FORMULA int64_t tutti__window_end(int64_t i, int64_t in, int64_t out)
{
    return ((i + 1) * in + out - 1) / out;
}

TUTTI__FORMULA void tutti__do_adaptive_average(const tutti__job_images *c, int64_t at)
{
    const int64_t i = at / c->w % c->h, j = at % c->w;
    const int64_t top = tutti__window_begin(i, c->H, c->h), end = tutti__window_end(i, c->H, c->h);
    const int64_t left = tutti__window_begin(j, c->W, c->w);
    const int64_t right = tutti__window_end(j, c->W, c->w);
    const float *x = c->x + at / (c->h * c->w) * c->H * c->W;
    double sum = 0;

    for (int64_t r = top; r < end; r++)
        for (int64_t s = left; s < right; s++)
            sum += (double)x[r * c->W + s];
    c->to[at] = (float)(sum / (double)((end - top) * (right - left)));
}

/* The elements of a window. */
TUTTI__FORMULA int64_t tutti__window_count(const tutti__job_images *c, int64_t i, int64_t j)
{
    return (tutti__window_end(i, c->H, c->h) - tutti__window_begin(i, c->H, c->h)) *
           (tutti__window_end(j, c->W, c->w) - tutti__window_begin(j, c->W, c->w));
}

TUTTI__FORMULA void tutti__do_adaptive_average_gradient(const tutti__job_images *c, int64_t at)
{
    const int64_t r = at / c->W % c->H, s = at % c->W;
    const float *dy = c->dy + at / (c->H * c->W) * c->h * c->w;
    float sum = 0;

    for (int64_t i = tutti__window_begin(r, c->h, c->H); i < tutti__window_end(r, c->h, c->H); i++)
        for (int64_t j = tutti__window_begin(s, c->w, c->W); j < tutti__window_end(s, c->w, c->W);
             j++)
            sum += dy[i * c->w + j] / (float)tutti__window_count(c, i, j);
    c->to[at] = sum;
}

/* Of equal values the first in row-major order wins, and NaN wins over all. */
TUTTI__FORMULA void tutti__do_adaptive_maximum(const tutti__job_images *c, int64_t at)
{
    const int64_t i = at / c->w % c->h, j = at % c->w;
    const int64_t top = tutti__window_begin(i, c->H, c->h), end = tutti__window_end(i, c->H, c->h);
    const int64_t left = tutti__window_begin(j, c->W, c->w);
    const int64_t right = tutti__window_end(j, c->W, c->w);
    const float *x = c->x + at / (c->h * c->w) * c->H * c->W;
    int64_t best = top * c->W + left;

    for (int64_t r = top; r < end; r++)
        for (int64_t s = left; s < right; s++) {
            const float v = x[r * c->W + s];

            if (v > x[best] || v != v)
                best = r * c->W + s;
        }
    c->to[at] = x[best];
    c->kept[at] = (int32_t)best;
}

TUTTI__FORMULA void tutti__do_adaptive_maximum_gradient(const tutti__job_images *c, int64_t at)
{
    const int64_t r = at / c->W % c->H, s = at % c->W;
    const int64_t plane = at / (c->H * c->W) * c->h * c->w;
    float sum = 0;

    for (int64_t i = tutti__window_begin(r, c->h, c->H); i < tutti__window_end(r, c->h, c->H); i++)
        for (int64_t j = tutti__window_begin(s, c->w, c->W); j < tutti__window_end(s, c->w, c->W);
             j++)
            if (c->kept[plane + i * c->w + j] == r * c->W + s)
                sum += c->dy[plane + i * c->w + j];
    c->to[at] = sum;
}

/* ---- Interpolation --------------------------------------------------------------------------------------- */

TUTTI__FORMULA void tutti__do_interpolate(const tutti__job_images *c, int64_t at)
{
    const tutti__pixel_position r = c->row[at / c->w % c->h], q = c->column[at % c->w];
    const float *a = c->x + (at / (c->h * c->w) * c->H + r.low) * c->W, *b = a + r.step * c->W;
    const int64_t low = q.low, high = low + q.step;
    const float left = 1 - q.share;

    c->to[at] = !c->linear ? a[low]
                           : (1 - r.share) * (left * a[low] + q.share * a[high]) +
                                 r.share * (left * b[low] + q.share * b[high]);
}

/* The first of n positions whose `low` is at least this. */
TUTTI__FORMULA int64_t tutti__first_position(const tutti__pixel_position *p, int64_t n,
                                             int64_t least)
{
    int64_t begin = 0;

    while (begin < n) {
        const int64_t middle = begin + (n - begin) / 2;

        if (p[middle].low < least)
            begin = middle + 1;
        else
            n = middle;
    }
    return begin;
}

/* What dy at these positions adds to pixel (row, column), in the order of the host's loop. */
TUTTI__FORMULA float tutti__interpolate_share(float sum, tutti__pixel_position r,
                                              tutti__pixel_position q, int64_t row, int64_t column,
                                              float dy)
{
    const float left = 1 - q.share, above = (1 - r.share) * dy, below = r.share * dy;

    sum += r.low == row && q.low == column ? left * above : 0;
    sum += r.low == row && q.low + q.step == column ? q.share * above : 0;
    sum += r.low + r.step == row && q.low == column ? left * below : 0;
    sum += r.low + r.step == row && q.low + q.step == column ? q.share * below : 0;
    return sum;
}

TUTTI__FORMULA void tutti__do_interpolate_gradient(const tutti__job_images *c, int64_t at)
{
    const int64_t row = at / c->W % c->H, column = at % c->W;
    const int64_t end_row = tutti__first_position(c->row, c->h, row + 1);
    const int64_t first_column = tutti__first_position(c->column, c->w, column - c->linear);
    const int64_t end_column = tutti__first_position(c->column, c->w, column + 1);
    const float *dy = c->dy + at / (c->H * c->W) * c->h * c->w;
    float sum = 0;

    for (int64_t i = tutti__first_position(c->row, c->h, row - c->linear); i < end_row; i++)
        for (int64_t j = first_column; j < end_column; j++) {
            const float d = dy[i * c->w + j];

            sum = c->linear ? tutti__interpolate_share(sum, c->row[i], c->column[j], row, column, d)
                            : sum + d;
        }
    c->to[at] = sum;
}

#endif
