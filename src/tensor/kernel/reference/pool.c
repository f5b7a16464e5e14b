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

/* The part of a window inside the image. */
typedef struct window {
    int64_t top, bottom, left, right;
} window;

static window window_at(const geometry *g, const tutti__pool *a, int64_t h, int64_t w)
{
    int64_t top = h * a->stride - a->padding, left = w * a->stride - a->padding;
    int64_t bottom = top + a->kernel, right = left + a->kernel;

    return (window){top < 0 ? 0 : top, bottom < g->H ? bottom : g->H, left < 0 ? 0 : left,
                    right < g->W ? right : g->W};
}

/* Of equal values the first in row-major order wins, and NaN wins over all, as in PyTorch. */
static int32_t argmax(const float *x, const geometry *g, window v)
{
    int64_t best = v.top * g->W + v.left;

    for (int64_t i = v.top; i < v.bottom; i++)
        for (int64_t j = v.left; j < v.right; j++)
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

                index[at] = argmax(x_data + p * g.H * g.W, &g, window_at(&g, a, h, w));
                y_data[at] = x_data[p * g.H * g.W + index[at]];
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
                y_data[(p * g.out_h + h) * g.out_w + w] =
                    (float)(sum / ((double)a->kernel * a->kernel));
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
                float share = dy_data[(p * g.out_h + h) * g.out_w + w] /
                              ((float)a->kernel * (float)a->kernel);

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
