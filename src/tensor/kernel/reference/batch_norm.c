/* batch_norm.c -- batch normalisation over N, H, W, with residual and relu in the same pass.
 * SPDX-License-Identifier: MIT
 *
 *   xhat = (x - mean) * inv_std          y = [relu](xhat * w + b [+ residual])
 *   g    = dy where y > 0 (with relu)    db = sum g    dw = sum g * xhat    dresidual = g
 *   dx   = w * inv_std * (g - db / n - xhat * dw / n)      n = N*H*W, sums over this batch only
 * Over several ranks, mean, n and the sums in dx are those of all their batches; dw and db stay this one's. */
#include "tensor/kernel/reference/reference.h"

#include <math.h>
#include <string.h>

/* The elements of channel c are in N runs of `plane`, starting at (n * C + c) * plane. */
typedef struct geometry {
    int64_t N, C, plane;
} geometry;

static geometry geometry_of(const tutti_tensor *x)
{
    return (geometry){x->shape.d[0], x->shape.d[1], x->shape.d[2] * x->shape.d[3]};
}

/* The mean of channel c and its sum of squared deviations. */
static void moments(const geometry *g, const float *x, int64_t c, double *mean_p, double *squares_p)
{
    double sum = 0, squares = 0, mean;

    for (int64_t n = 0; n < g->N; n++)
        for (int64_t k = 0; k < g->plane; k++)
            sum += (double)x[(n * g->C + c) * g->plane + k];
    mean = sum / (double)(g->N * g->plane);
    for (int64_t n = 0; n < g->N; n++) {
        for (int64_t k = 0; k < g->plane; k++) {
            double d = (double)x[(n * g->C + c) * g->plane + k] - mean;

            squares += d * d;
        }
    }
    *mean_p = mean;
    *squares_p = squares;
}

static void blend(float *running, double value, float momentum)
{
    *running = (float)((1 - (double)momentum) * (double)*running + (double)momentum * value);
}

tutti_status tutti__reference_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                                 tutti_tensor *b, tutti_tensor *residual,
                                                 tutti_tensor *running_mean,
                                                 tutti_tensor *running_var,
                                                 const tutti__batch_norm *a,
                                                 tutti__batch_norm_saved *saved)
{
    geometry g = geometry_of(x);
    const float *x_data = x->data, *extra = residual ? residual->data : NULL;
    float *mean_of = running_mean->data, *var_of = running_var->data, *y_data;
    double *means = tutti__step_alloc(x->cx, 2 * (size_t)g.C * sizeof *means),
           *squares = means + g.C;

    if (!means)
        return TUTTI_ERR_MEMORY;
    memset(means, 0, 2 * (size_t)g.C * sizeof *means);
    for (int64_t c = 0; c < g.C && a->training && g.N > 0; c++) {
        moments(&g, x_data, c, &means[c], &squares[c]);
        saved->mean[c] = (float)means[c];
    }
    if (a->peers)
        TUTTI_TRY(tutti__peers_moments(a, saved, squares, running_mean, running_var));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    y_data = y->data;
    for (int64_t c = 0; c < g.C; c++) {
        double mean = (double)mean_of[c], var = (double)var_of[c];
        float scale, shift;

        if (a->training) {
            mean = a->peers ? (double)saved->mean[c] : means[c];
            var = squares[c] / saved->count;
        }
        if (a->training && !a->peers) {
            blend(&mean_of[c], mean, a->momentum);
            blend(&var_of[c], squares[c] / (saved->count - 1), a->momentum);
        }
        saved->mean[c] = (float)mean;
        saved->inv_std[c] = (float)(1 / sqrt(var + (double)a->eps));
        scale = ((const float *)w->data)[c] * saved->inv_std[c];
        shift = ((const float *)b->data)[c];
        for (int64_t n = 0; n < g.N; n++) {
            int64_t at = (n * g.C + c) * g.plane;

            for (int64_t k = at; k < at + g.plane; k++) {
                float value = (x_data[k] - saved->mean[c]) * scale + shift + (extra ? extra[k] : 0);

                y_data[k] = a->relu && value < 0 ? 0 : value;
            }
        }
    }
    return TUTTI_OK;
}

/* g: dy, or 0 where the relu's output is 0 */
static inline float behind_relu(float dy, float y, bool relu)
{
    return relu && y <= 0 ? 0 : dy;
}

static void store(tutti_tensor *dst, int64_t c, double value)
{
    float *p = dst->data;

    p[c] = (float)(dst->accumulate ? (double)p[c] + value : value);
}

/* For channel c: the sums of g and of g * xhat; dresidual = g. */
static void sums(const geometry *g, const float *x, const float *y, const float *dy,
                 float *dresidual, int64_t c, bool relu, const tutti__batch_norm_saved *saved,
                 double *sum_p, double *sum_xhat_p)
{
    float mean = saved->mean[c], inv_std = saved->inv_std[c];
    double sum = 0, sum_xhat = 0;

    for (int64_t n = 0; n < g->N; n++) {
        for (int64_t k = (n * g->C + c) * g->plane, end = k + g->plane; k < end; k++) {
            float d = behind_relu(dy[k], y[k], relu);

            sum += (double)d;
            sum_xhat += (double)d * (double)((x[k] - mean) * inv_std);
            if (dresidual)
                dresidual[k] = d;
        }
    }
    *sum_p = sum;
    *sum_xhat_p = sum_xhat;
}

tutti_status tutti__reference_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw,
                                                  tutti_tensor *db, tutti_tensor *dresidual,
                                                  tutti_tensor *dy, tutti_tensor *y,
                                                  tutti_tensor *x, tutti_tensor *w,
                                                  const tutti__batch_norm *a,
                                                  const tutti__batch_norm_saved *saved)
{
    geometry g = geometry_of(x);
    const float *x_data = x->data, *y_data = y->data, *dy_data = dy->data, *w_data = w->data;
    double *sum = tutti__step_alloc(x->cx, 2 * (size_t)g.C * sizeof *sum), *sum_xhat = sum + g.C;

    if (!sum)
        return TUTTI_ERR_MEMORY;
    if (dx)
        TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    if (dresidual)
        TUTTI_TRY(tutti__tensor_alloc(dresidual, NULL));
    for (int64_t c = 0; c < g.C; c++) {
        sums(&g, x_data, y_data, dy_data, dresidual ? dresidual->data : NULL, c, a->relu, saved,
             &sum[c], &sum_xhat[c]);
        if (dw)
            store(dw, c, sum_xhat[c]);
        if (db)
            store(db, c, sum[c]);
    }
    if (a->peers)
        TUTTI_TRY(tutti__peers_sums(x->cx, a->peers, g.C, sum, sum_xhat));
    for (int64_t c = 0; c < g.C && dx; c++) {
        float mean = saved->mean[c], inv_std = saved->inv_std[c], factor = w_data[c] * inv_std;
        float of_sum = (float)(sum[c] / saved->count), slope = (float)(sum_xhat[c] / saved->count);

        for (int64_t n = 0; n < g.N; n++) {
            for (int64_t k = (n * g.C + c) * g.plane, end = k + g.plane; k < end; k++) {
                float d = behind_relu(dy_data[k], y_data[k], a->relu),
                      xhat = (x_data[k] - mean) * inv_std;

                ((float *)dx->data)[k] = factor * (d - of_sum - xhat * slope);
            }
        }
    }
    return TUTTI_OK;
}
