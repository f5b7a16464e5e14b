/* adaptive_pool.c -- average and maximum over windows that divide an image into a given number of rows and columns.
 * SPDX-License-Identifier: MIT
 *   x [N,C,H,W]  ->  y [N,C,h,w]; row i of y is of rows floor(i H / h) to ceil((i + 1) H / h) - 1 of x
 * If h divides H and w divides W, windows do not overlap and are equal: then it is a pool (pool.c), whose kernels are faster. */
#include "tensor/op/window.h"

#include <math.h>
#include <string.h>

typedef struct attributes {
    int64_t size[2]; /* 0: that of x */
} attributes;

static tutti_status adaptive_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    *y = p->sources[0]->shape;
    if (a->size[0] < 0 || a->size[1] < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "height %lld and width %lld; expected at least 1, or 0 for that of x",
                           (long long)a->size[0], (long long)a->size[1]);
    for (int d = 0; d < 2; d++)
        if (a->size[d] > 0)
            y->d[2 + d] = a->size[d];
    return TUTTI_OK;
}

static int64_t from_of(int64_t i, int64_t in, int64_t out)
{
    return i * in / out;
}

static int64_t to_of(int64_t i, int64_t in, int64_t out)
{
    return ((i + 1) * in + out - 1) / out;
}

/* A call's sizes, and its planes. */
typedef struct call {
    const tutti_op_args *p;
    int64_t H, W, h, w;
} call;

static void each_plane(const tutti_op_args *p, void (*job)(void *arg, int64_t plane))
{
    const int64_t *x = p->sources[0]->shape.d;
    call c = {p, x[2], x[3], p->shape.d[2], p->shape.d[3]};

    tutti_op_parallel(p, job, &c, x[0] * x[1]);
}

/* ---- Average ------------------------------------------------------------------------------------ */

static void average_plane(void *arg, int64_t plane)
{
    const call *c = arg;
    const float *x = (const float *)c->p->src[0] + plane * c->H * c->W;
    float *y = c->p->y + plane * c->h * c->w;

    for (int64_t i = 0; i < c->h; i++) {
        const int64_t top = from_of(i, c->H, c->h), bottom = to_of(i, c->H, c->h);

        for (int64_t j = 0; j < c->w; j++) {
            const int64_t left = from_of(j, c->W, c->w), right = to_of(j, c->W, c->w);
            double sum = 0;

            for (int64_t r = top; r < bottom; r++)
                for (int64_t s = left; s < right; s++)
                    sum += (double)x[r * c->W + s];
            y[i * c->w + j] = (float)(sum / (double)((bottom - top) * (right - left)));
        }
    }
}

static void average_plane_backward(void *arg, int64_t plane)
{
    const call *c = arg;
    const float *dy = c->p->dy + plane * c->h * c->w;
    float *dx = c->p->dsrc[0] + plane * c->H * c->W;

    memset(dx, 0, (size_t)(c->H * c->W) * sizeof *dx);
    for (int64_t i = 0; i < c->h; i++) {
        const int64_t top = from_of(i, c->H, c->h), bottom = to_of(i, c->H, c->h);

        for (int64_t j = 0; j < c->w; j++) {
            const int64_t left = from_of(j, c->W, c->w), right = to_of(j, c->W, c->w);
            const float share = dy[i * c->w + j] / (float)((bottom - top) * (right - left));

            for (int64_t r = top; r < bottom; r++)
                for (int64_t s = left; s < right; s++)
                    dx[r * c->W + s] += share;
        }
    }
}

static void average_forward(const tutti_op_args *p)
{
    each_plane(p, average_plane);
}

static void average_backward(const tutti_op_args *p)
{
    each_plane(p, average_plane_backward);
}

/* ---- Maximum ------------------------------------------------------------------------------------ */

static int64_t keeps(const tutti_op_args *p)
{
    return p
        ->count; /* where in its plane of x each element of y is: an int32_t in the place of each float */
}

/* Of equal values the first in row-major order wins, and NaN wins over all. */
static int64_t argmax(const call *c, const float *x, int64_t i, int64_t j)
{
    const int64_t bottom = to_of(i, c->H, c->h), right = to_of(j, c->W, c->w);
    const int64_t top = from_of(i, c->H, c->h), left = from_of(j, c->W, c->w);
    int64_t best = top * c->W + left;

    for (int64_t r = top; r < bottom; r++)
        for (int64_t s = left; s < right; s++)
            if (x[r * c->W + s] > x[best] || isnan(x[r * c->W + s]))
                best = r * c->W + s;
    return best;
}

static void maximum_plane(void *arg, int64_t plane)
{
    const call *c = arg;
    const float *x = (const float *)c->p->src[0] + plane * c->H * c->W;
    float *y = c->p->y + plane * c->h * c->w;
    int32_t *kept = (int32_t *)c->p->kept + plane * c->h * c->w;

    for (int64_t i = 0; i < c->h; i++)
        for (int64_t j = 0; j < c->w; j++) {
            const int64_t best = argmax(c, x, i, j);

            y[i * c->w + j] = x[best];
            kept[i * c->w + j] = (int32_t)best;
        }
}

static void maximum_plane_backward(void *arg, int64_t plane)
{
    const call *c = arg;
    const float *dy = c->p->dy + plane * c->h * c->w;
    const int32_t *kept = (const int32_t *)c->p->kept + plane * c->h * c->w;
    float *dx = c->p->dsrc[0] + plane * c->H * c->W;

    memset(dx, 0, (size_t)(c->H * c->W) * sizeof *dx);
    for (int64_t i = 0; i < c->h * c->w; i++)
        dx[kept[i]] += dy[i];
}

static void maximum_forward(const tutti_op_args *p)
{
    each_plane(p, maximum_plane);
}

static void maximum_backward(const tutti_op_args *p)
{
    each_plane(p, maximum_plane_backward);
}

/* ---- As a pool ---------------------------------------------------------------------------------- */

/* Whether windows are equal; then *opts_p describes them. */
static bool is_pool(const tutti_tensor *x, attributes a, tutti_pool_opts *opts_p)
{
    int64_t kernel[2];

    if (!x || x->poison != TUTTI_OK || x->shape.n != 4 || x->dtype == TUTTI_I64)
        return false;
    for (int d = 0; d < 2; d++) {
        const int64_t out = a.size[d] ? a.size[d] : x->shape.d[2 + d];

        if (out < 1 || x->shape.d[2 + d] % out != 0 || x->shape.d[2 + d] / out > INT32_MAX)
            return false;
        kernel[d] = x->shape.d[2 + d] / out;
    }
    *opts_p = (tutti_pool_opts){.kernel = (int)kernel[0], .kernel_w = (int)kernel[1]};
    return true;
}

static tutti_tensor *average(const char *name, tutti_tensor *x, attributes a)
{
    const tutti_op op = {.name = name,
                         .shape = adaptive_shape,
                         .forward = average_forward,
                         .backward = average_backward,
                         .activations = 1};
    tutti_pool_opts pool;

    if (!is_pool(x, a, &pool))
        return tutti_op_run(&op, &x, 1, &a, sizeof a);
    return a.size[0] == 1 && a.size[1] == 1 ? tutti_global_avg_pool2d(x)
                                            : tutti_avg_pool2d(x, pool);
}

static tutti_tensor *maximum(const char *name, tutti_tensor *x, attributes a)
{
    const tutti_op op = {.name = name,
                         .shape = adaptive_shape,
                         .forward = maximum_forward,
                         .backward = maximum_backward,
                         .activations = 1,
                         .keeps = keeps};
    tutti_pool_opts pool;

    return is_pool(x, a, &pool) ? tutti_max_pool2d(x, pool)
                                : tutti_op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_adaptive_avg_pool2d(tutti_tensor *x, int64_t height, int64_t width)
{
    return average("adaptive_avg_pool2d", x, (attributes){{height, width}});
}

tutti_tensor *tutti_adaptive_max_pool2d(tutti_tensor *x, int64_t height, int64_t width)
{
    return maximum("adaptive_max_pool2d", x, (attributes){{height, width}});
}

tutti_tensor *tutti_adaptive_avg_pool1d(tutti_tensor *x, int64_t length)
{
    static const char name[] = "adaptive_avg_pool1d";

    x = tutti__with_row(x, name, "x", "[N,C,L]");
    return tutti__without_row(average(name, x, (attributes){{0, length}}));
}

tutti_tensor *tutti_adaptive_max_pool1d(tutti_tensor *x, int64_t length)
{
    static const char name[] = "adaptive_max_pool1d";

    x = tutti__with_row(x, name, "x", "[N,C,L]");
    return tutti__without_row(maximum(name, x, (attributes){{0, length}}));
}
