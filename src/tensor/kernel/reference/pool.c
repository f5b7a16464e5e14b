/* pool.c -- max, average and global average pooling, a plane at a time.
 * SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

#include <math.h>
#include <string.h>

typedef struct geometry {
    int64_t planes, H, W, out_h, out_w;
} geometry;

static geometry geometry_of(const tutti_tensor *x, const tutti_tensor *y)
{
    const int64_t *xd = x->shape.d, *yd = y->shape.d;

    return (geometry){xd[0] * xd[1], xd[2], xd[3], yd[2], yd[3]};
}

/* The part of a window inside the image: rows from top, before bottom, and so on; and its number of pixels for an average. */
typedef struct window {
    int64_t top, bottom, left, right;
    int64_t count;
} window;

/* [*from, *to): the part inside the image of window o, in dimension d. Returns its size with padding. */
static int64_t side(const tutti__pool *a, int d, int64_t o, int64_t in, int64_t *from, int64_t *to)
{
    const int64_t at = o * a->stride[d] - a->padding[d];
    const int64_t end = at + (int64_t)(a->kernel[d] - 1) * a->dilation[d] + 1;
    const int64_t padded = in + a->padding[d];

    *from = at < 0 ? (-at + a->dilation[d] - 1) / a->dilation[d] * a->dilation[d] + at : at;
    *to = end < in ? end : in;
    return (end < padded ? end : padded) - at;
}

static window window_at(const geometry *g, const tutti__pool *a, int64_t h, int64_t w)
{
    window v;
    const int64_t high = side(a, 0, h, g->H, &v.top, &v.bottom);
    const int64_t wide = side(a, 1, w, g->W, &v.left, &v.right);

    v.count = a->divisor           ? a->divisor
              : a->exclude_padding ? (v.bottom - v.top) * (v.right - v.left)
                                   : high * wide;
    return v;
}

/* Of equal values the first in row-major order wins, and NaN wins over all, as in PyTorch. -1: the window is beside the image. */
static int32_t argmax(const float *x, const geometry *g, const tutti__pool *a, window v)
{
    int64_t best = v.top * g->W + v.left;

    if (v.top >= v.bottom || v.left >= v.right)
        return -1;
    for (int64_t i = v.top; i < v.bottom; i += a->dilation[0])
        for (int64_t j = v.left; j < v.right; j += a->dilation[1])
            if (x[i * g->W + j] > x[best] || isnan(x[i * g->W + j]))
                best = i * g->W + j;
    return (int32_t)best;
}

tutti_status tutti__reference_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                               const tutti__pool *a, void **saved)
{
    geometry g = geometry_of(x, y);
    const float *x_data = x->data;
    int32_t *index =
        tutti__step_memory(y->cx, (size_t)(g.planes * g.out_h * g.out_w) * sizeof *index);
    float *y_data;

    TUTTI_TRY(index ? TUTTI_OK : TUTTI_ERR_MEMORY);
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    *saved = index;
    y_data = y->data;
    for (int64_t p = 0; p < g.planes; p++) {
        for (int64_t h = 0; h < g.out_h; h++) {
            for (int64_t w = 0; w < g.out_w; w++) {
                int64_t at = (p * g.out_h + h) * g.out_w + w;

                index[at] = argmax(x_data + p * g.H * g.W, &g, a, window_at(&g, a, h, w));
                y_data[at] = index[at] < 0 ? -INFINITY : x_data[p * g.H * g.W + index[at]];
            }
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                                const tutti__pool *a, void *saved)
{
    geometry g = geometry_of(x, dy);
    const float *dy_data = dy->data;
    const int32_t *index = saved;

    (void)a;
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    memset(dx->data, 0, tutti__tensor_bytes(dx));
    for (int64_t p = 0; p < g.planes; p++) {
        float *dx_plane = (float *)dx->data + p * g.H * g.W;

        for (int64_t at = p * g.out_h * g.out_w; at < (p + 1) * g.out_h * g.out_w; at++)
            if (index[at] >= 0)
                dx_plane[index[at]] += dy_data[at];
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_avg_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                               const tutti__pool *a)
{
    geometry g = geometry_of(x, y);
    float *y_data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t p = 0; p < g.planes; p++) {
        const float *plane = (const float *)x->data + p * g.H * g.W;

        for (int64_t h = 0; h < g.out_h; h++) {
            for (int64_t w = 0; w < g.out_w; w++) {
                window v = window_at(&g, a, h, w);
                double sum = 0;

                for (int64_t i = v.top; i < v.bottom; i++)
                    for (int64_t j = v.left; j < v.right; j++)
                        sum += (double)plane[i * g.W + j];
                y_data[(p * g.out_h + h) * g.out_w + w] = (float)(sum / (double)v.count);
            }
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                                const tutti__pool *a)
{
    geometry g = geometry_of(dx, dy);
    const float *dy_data = dy->data;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    memset(dx->data, 0, tutti__tensor_bytes(dx));
    for (int64_t p = 0; p < g.planes; p++) {
        float *plane = (float *)dx->data + p * g.H * g.W;

        for (int64_t h = 0; h < g.out_h; h++) {
            for (int64_t w = 0; w < g.out_w; w++) {
                window v = window_at(&g, a, h, w);
                float share = dy_data[(p * g.out_h + h) * g.out_w + w] / (float)v.count;

                for (int64_t i = v.top; i < v.bottom; i++)
                    for (int64_t j = v.left; j < v.right; j++)
                        plane[i * g.W + j] += share;
            }
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x)
{
    geometry g = geometry_of(x, y);
    const float *x_data = x->data;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    for (int64_t p = 0; p < g.planes; p++) {
        double sum = 0;

        for (int64_t k = 0; k < g.H * g.W; k++)
            sum += (double)x_data[p * g.H * g.W + k];
        ((float *)y->data)[p] = (float)(sum / (double)(g.H * g.W));
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy)
{
    geometry g = geometry_of(dx, dy);
    const float *dy_data = dy->data;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int64_t p = 0; p < g.planes; p++) {
        float share = dy_data[p] / (float)(g.H * g.W);

        for (int64_t k = 0; k < g.H * g.W; k++)
            ((float *)dx->data)[p * g.H * g.W + k] = share;
    }
    return TUTTI_OK;
}
