/* adaptive_pool.c -- average and maximum over windows that divide an image into a given number of rows and columns.
 * SPDX-License-Identifier: MIT
 *   x [N,C,H,W]  ->  y [N,C,h,w]; row i of y is of rows floor(i H / h) to ceil((i + 1) H / h) - 1 of x
 * If h divides H and w divides W, windows do not overlap and are equal: then it is a pool (pool.c), whose kernels are faster. */
#include "tensor/each.h"
#include "tensor/op/window.h"

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

static tutti__each_job planes_of(const tutti_op_args *p, tutti__job_kind kind)
{
    const int64_t *x = p->sources[0]->shape.d, *y = p->shape.d;
    tutti__each_job job = {kind,
                           {.images = {.H = x[2],
                                       .W = x[3],
                                       .h = y[2],
                                       .w = y[3],
                                       .dy = p->dy,
                                       .to = p->dsrc ? p->dsrc[0] : p->y,
                                       .kept = (int32_t *)p->kept}}};

    job.of.images.x = p->src[0];
    return job;
}

/* The larger of x and y. */
static int64_t larger_count(const tutti_op_args *p)
{
    const int64_t x = tutti_shape_count(p->sources[0]->shape);

    return x > p->count ? x : p->count;
}

/* Each element of y in forward, of dx in backward. */
static void on_host(const tutti_op_args *p, tutti__job_kind kind)
{
    const tutti__each_job job = planes_of(p, kind);
    const int64_t n = p->dsrc ? tutti_shape_count(p->sources[0]->shape) : p->count;

    tutti__each_on_host(p, &job, n, n > 0 ? 1 + larger_count(p) / n : 1);
}

static tutti_status on_device(const tutti_op_args *p, tutti__job_kind kind)
{
    const tutti__each_job job = planes_of(p, kind);

    return tutti__each_on_device(p, &job,
                                 p->dsrc ? tutti_shape_count(p->sources[0]->shape) : p->count);
}

#define FUNCTIONS(name, job)                                                                       \
    static void name(const tutti_op_args *p)                                                       \
    {                                                                                              \
        on_host(p, TUTTI__JOB_##job);                                                              \
    }                                                                                              \
    static tutti_status device_##name(const tutti_op_args *p)                                      \
    {                                                                                              \
        return on_device(p, TUTTI__JOB_##job);                                                     \
    }

FUNCTIONS(average_forward, adaptive_average)
FUNCTIONS(average_backward, adaptive_average_gradient)
FUNCTIONS(maximum_forward, adaptive_maximum)
FUNCTIONS(maximum_backward, adaptive_maximum_gradient)

/* Where in its plane of x each element of y is: an int32_t in the place of each float. */
static int64_t maximum_keeps(const tutti_op_args *p)
{
    return p->count;
}

#define average_keeps NULL

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

#define POOL(called, prefix)                                                                       \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = adaptive_shape,                                                         \
                  .forward = prefix##_forward,                                                     \
                  .backward = prefix##_backward,                                                   \
                  .activations = 1,                                                                \
                  .keeps = prefix##_keeps},                                                        \
        .device_forward = device_##prefix##_forward, .device_backward = device_##prefix##_backward \
    }

static tutti_tensor *average(bool is_row, tutti_tensor *x, attributes a)
{
    static const tutti__op of_images = POOL("adaptive_avg_pool2d", average),
                           of_rows = POOL("adaptive_avg_pool1d", average);
    tutti_pool_opts pool;

    if (!is_pool(x, a, &pool))
        return tutti__op_run(is_row ? &of_rows : &of_images, &x, 1, &a, sizeof a);
    return a.size[0] == 1 && a.size[1] == 1 ? tutti_global_avg_pool2d(x)
                                            : tutti_avg_pool2d(x, pool);
}

static tutti_tensor *maximum(bool is_row, tutti_tensor *x, attributes a)
{
    static const tutti__op of_images = POOL("adaptive_max_pool2d", maximum),
                           of_rows = POOL("adaptive_max_pool1d", maximum);
    tutti_pool_opts pool;

    return is_pool(x, a, &pool)
               ? tutti_max_pool2d(x, pool)
               : tutti__op_run(is_row ? &of_rows : &of_images, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_adaptive_avg_pool2d(tutti_tensor *x, int64_t height, int64_t width)
{
    return average(false, x, (attributes){{height, width}});
}

tutti_tensor *tutti_adaptive_max_pool2d(tutti_tensor *x, int64_t height, int64_t width)
{
    return maximum(false, x, (attributes){{height, width}});
}

tutti_tensor *tutti_adaptive_avg_pool1d(tutti_tensor *x, int64_t length)
{
    static const char name[] = "adaptive_avg_pool1d";

    x = tutti__with_row(x, name, "x", "[N,C,L]");
    return tutti__without_row(average(true, x, (attributes){{0, length}}));
}

tutti_tensor *tutti_adaptive_max_pool1d(tutti_tensor *x, int64_t length)
{
    static const char name[] = "adaptive_max_pool1d";

    x = tutti__with_row(x, name, "x", "[N,C,L]");
    return tutti__without_row(maximum(true, x, (attributes){{0, length}}));
}
