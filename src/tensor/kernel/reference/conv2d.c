/* conv2d.c -- direct convolution, a row of the image at a time.   SPDX-License-Identifier: MIT
 *
 * All three directions loop over the same pairs: weight (m, c, i, j) connects row h of y with row
 * h * stride + i * dilation - padding of x, over the span of columns inside the image. With stride 1 both rows are contiguous. */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

typedef struct geometry {
    int64_t N, C, H, W, M, kh, kw, out_h, out_w; /* x [N,C,H,W], y [N,M,out_h,out_w] */
    int64_t in_c, out_c;                         /* channels of x and of y per group */
    int64_t stride[2], padding[2], dilation[2];
} geometry;

static geometry geometry_of(const tutti_tensor *x, tutti_shape w, const tutti_tensor *y,
                            const tutti__conv2d *a)
{
    const int64_t *xd = x->shape.d, *yd = y->shape.d;

    return (geometry){.N = xd[0],
                      .C = xd[1],
                      .H = xd[2],
                      .W = xd[3],
                      .M = yd[1],
                      .kh = w.d[2],
                      .kw = w.d[3],
                      .out_h = yd[2],
                      .out_w = yd[3],
                      .in_c = xd[1] / a->groups,
                      .out_c = yd[1] / a->groups,
                      .stride = {a->stride[0], a->stride[1]},
                      .padding = {a->padding[0], a->padding[1]},
                      .dilation = {a->dilation[0], a->dilation[1]}};
}

/* The rows of y whose row i of the window is in the image, and the columns for j. */
static tutti__span rows_of(const geometry *g, int64_t i)
{
    return tutti__span_of(g->out_h, g->H, i * g->dilation[0], g->stride[0], g->padding[0]);
}

static tutti__span columns_of(const geometry *g, int64_t j)
{
    return tutti__span_of(g->out_w, g->W, j * g->dilation[1], g->stride[1], g->padding[1]);
}

/* Where row i, column j of the window at row h, column 0 of y is in a plane of x. */
static int64_t at_of(const geometry *g, int64_t h, int64_t i, int64_t j)
{
    return (h * g->stride[0] + i * g->dilation[0] - g->padding[0]) * g->W + j * g->dilation[1] -
           g->padding[1];
}

/* plane y += w[i,j] * plane x, for every (i, j) of one filter */
static void plane_forward(const geometry *g, float *y, const float *x, const float *w)
{
    for (int64_t i = 0; i < g->kh; i++) {
        const tutti__span rows = rows_of(g, i);

        for (int64_t j = 0; j < g->kw; j++) {
            const tutti__span span = columns_of(g, j);
            float weight = w[i * g->kw + j];

            for (int64_t h = rows.low; h < rows.high; h++) {
                const float *x_row = x + at_of(g, h, i, j);
                float *y_row = y + h * g->out_w;

                if (g->stride[1] == 1)
                    tutti__axpy(y_row + span.low, weight, x_row + span.low, span.high - span.low);
                else
                    for (int64_t k = span.low; k < span.high; k++)
                        y_row[k] += weight * x_row[k * g->stride[1]];
            }
        }
    }
}

/* plane dx += w[i,j] * plane dy */
static void plane_backward_data(const geometry *g, float *dx, const float *dy, const float *w)
{
    for (int64_t i = 0; i < g->kh; i++) {
        const tutti__span rows = rows_of(g, i);

        for (int64_t j = 0; j < g->kw; j++) {
            const tutti__span span = columns_of(g, j);
            float weight = w[i * g->kw + j];

            for (int64_t h = rows.low; h < rows.high; h++) {
                float *dx_row = dx + at_of(g, h, i, j);
                const float *dy_row = dy + h * g->out_w;

                if (g->stride[1] == 1)
                    tutti__axpy(dx_row + span.low, weight, dy_row + span.low, span.high - span.low);
                else
                    for (int64_t k = span.low; k < span.high; k++)
                        dx_row[k * g->stride[1]] += weight * dy_row[k];
            }
        }
    }
}

/* dw[i,j] += <plane dy, plane x> */
static void plane_backward_weights(const geometry *g, float *dw, const float *dy, const float *x)
{
    for (int64_t i = 0; i < g->kh; i++) {
        const tutti__span rows = rows_of(g, i);

        for (int64_t j = 0; j < g->kw; j++) {
            const tutti__span span = columns_of(g, j);
            double sum = 0;

            for (int64_t h = rows.low; h < rows.high; h++) {
                const float *x_row = x + at_of(g, h, i, j);
                const float *dy_row = dy + h * g->out_w;

                if (g->stride[1] == 1)
                    sum += (double)tutti__dot(dy_row + span.low, x_row + span.low,
                                              span.high - span.low);
                else
                    for (int64_t k = span.low; k < span.high; k++)
                        sum += (double)(dy_row[k] * x_row[k * g->stride[1]]);
            }
            dw[i * g->kw + j] += (float)sum;
        }
    }
}

tutti_status tutti__reference_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             tutti_tensor *b, const tutti__conv2d *a)
{
    geometry g = geometry_of(x, w->shape, y, a);
    int64_t x_plane = g.H * g.W, y_plane = g.out_h * g.out_w, filter = g.kh * g.kw;
    const float *x_data = x->data, *w_data = w->data, *bias = b ? b->data : NULL;

    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    for (int64_t n = 0; n < g.N; n++) {
        for (int64_t m = 0; m < g.M; m++) {
            float *out = (float *)y->data + (n * g.M + m) * y_plane;

            for (int64_t k = 0; k < y_plane; k++)
                out[k] = bias ? bias[m] : 0;
            for (int64_t c = 0; c < g.in_c; c++)
                plane_forward(&g, out, x_data + (n * g.C + m / g.out_c * g.in_c + c) * x_plane,
                              w_data + (m * g.in_c + c) * filter);
        }
    }
    return TUTTI_OK;
}

tutti_status tutti__reference_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                   tutti_tensor *w, tutti_tensor *b,
                                                   const tutti__conv2d *a)
{
    geometry g = geometry_of(dx, w->shape, dy, a);
    int64_t x_plane = g.H * g.W, y_plane = g.out_h * g.out_w, filter = g.kh * g.kw;
    const float *dy_data = dy->data, *w_data = w->data, *bias = b ? b->data : NULL;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int64_t n = 0; n < g.N; n++) {
        for (int64_t c = 0; c < g.C; c++) {
            const int64_t first = c / g.in_c * g.out_c; /* of the group's channels of y */
            float *to = (float *)dx->data + (n * g.C + c) * x_plane;

            for (int64_t k = 0; k < x_plane; k++)
                to[k] = bias ? bias[c] : 0;
            for (int64_t m = first; m < first + g.out_c; m++)
                plane_backward_data(&g, to, dy_data + (n * g.M + m) * y_plane,
                                    w_data + (m * g.in_c + c % g.in_c) * filter);
        }
    }
    return TUTTI_OK;
}

static void bias_backward(float *db, const float *dy, const geometry *g)
{
    int64_t plane = g->out_h * g->out_w;

    for (int64_t m = 0; m < g->M; m++) {
        double sum = 0;

        for (int64_t n = 0; n < g->N; n++)
            for (int64_t k = 0; k < plane; k++)
                sum += (double)dy[(n * g->M + m) * plane + k];
        db[m] += (float)sum;
    }
}

tutti_status tutti__reference_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                      tutti_tensor *dy, tutti_tensor *x,
                                                      const tutti__conv2d *a)
{
    const float *x_data = x->data, *dy_data = dy->data;

    if (db) {
        geometry g = geometry_of(x, db->shape, dy, a);

        if (!db->accumulate)
            memset(db->data, 0, tutti__tensor_bytes(db));
        bias_backward(db->data, dy_data, &g);
    }
    if (dw) {
        geometry g = geometry_of(x, dw->shape, dy, a);
        int64_t x_plane = g.H * g.W, y_plane = g.out_h * g.out_w, filter = g.kh * g.kw;

        if (!dw->accumulate)
            memset(dw->data, 0, tutti__tensor_bytes(dw));
        for (int64_t n = 0; n < g.N; n++)
            for (int64_t m = 0; m < g.M; m++)
                for (int64_t c = 0; c < g.in_c; c++)
                    plane_backward_weights(&g, (float *)dw->data + (m * g.in_c + c) * filter,
                                           dy_data + (n * g.M + m) * y_plane,
                                           x_data + (n * g.C + m / g.out_c * g.in_c + c) * x_plane);
    }
    return TUTTI_OK;
}
