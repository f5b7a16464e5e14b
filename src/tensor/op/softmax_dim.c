/* softmax_dim.c -- softmax and log-softmax over any dimension.   SPDX-License-Identifier: MIT
 * The last one is softmax.c's, which has kernels; on a device another one is transposed to be the last. On the host up to
 * TUTTI__COLUMNS neighbours of it are computed side by side. */
#include "tensor/op/reduction.h"

#include "base/real.h"

typedef struct attributes {
    int dim;
    bool log;
} attributes;

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    return tutti__dim_index(a->dim, y->n) < 0 ? TUTTI_ERR_ARG : TUTTI_OK;
}

/* n rows of `width` elements, each `stride` behind the one before; softmax along n. */
TUTTI__CLONES static void softmax_columns_forward(float *restrict y, const float *restrict x,
                                                  int64_t n, int64_t stride, int64_t width,
                                                  bool log)
{
    float largest[TUTTI__COLUMNS];
    double sum[TUTTI__COLUMNS] = {0};

    for (int64_t i = 0; i < width; i++)
        largest[i] = x[i];
    for (int64_t k = 1; k < n; k++)
        for (int64_t i = 0; i < width; i++)
            largest[i] = x[k * stride + i] > largest[i] ? x[k * stride + i] : largest[i];
    for (int64_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < width; i++)
            y[k * stride + i] = x[k * stride + i] - largest[i];
        if (log)
            for (int64_t i = 0; i < width; i++)
                sum[i] += tutti__exp_negative((double)y[k * stride + i]);
        else
            for (int64_t i = 0; i < width; i++) {
                const double e = tutti__exp_negative((double)y[k * stride + i]);

                sum[i] += e;
                y[k * stride + i] = (float)e;
            }
    }
    for (int64_t i = 0; i < width; i++)
        sum[i] = log ? tutti__log(sum[i]) : 1 / sum[i];
    for (int64_t k = 0; k < n; k++) {
        if (log)
            for (int64_t i = 0; i < width; i++)
                y[k * stride + i] = (float)((double)y[k * stride + i] - sum[i]);
        else
            for (int64_t i = 0; i < width; i++)
                y[k * stride + i] = (float)((double)y[k * stride + i] * sum[i]);
    }
}

TUTTI__CLONES static void softmax_columns_backward(float *restrict dx, const float *restrict y,
                                                   const float *restrict dy, int64_t n,
                                                   int64_t stride, int64_t width, bool log)
{
    double sum[TUTTI__COLUMNS] = {0};

    for (int64_t k = 0; k < n; k++, y += stride, dy += stride) {
        if (log)
            for (int64_t i = 0; i < width; i++)
                sum[i] += (double)dy[i];
        else
            for (int64_t i = 0; i < width; i++)
                sum[i] += (double)dy[i] * (double)y[i];
    }
    for (int64_t k = 0; k < n; k++, dx += stride) {
        const float *y_row = y + (k - n) * stride, *dy_row = dy + (k - n) * stride;

        if (log)
            for (int64_t i = 0; i < width; i++)
                dx[i] = (float)((double)dy_row[i] - tutti__exp_negative((double)y_row[i]) * sum[i]);
        else
            for (int64_t i = 0; i < width; i++)
                dx[i] = (float)((double)y_row[i] * ((double)dy_row[i] - sum[i]));
    }
}

typedef struct softmax_work {
    const tutti_op_args *p;
    tutti__extent e;
    int64_t chunks;
    bool log;
} softmax_work;

static void job(void *arg, int64_t i)
{
    const softmax_work *w = arg;
    const tutti_op_args *p = w->p;
    const int64_t from = i % w->chunks * TUTTI__COLUMNS, left = w->e.inner - from;
    const int64_t at = i / w->chunks * w->e.n * w->e.inner + from;
    const int64_t width = left < TUTTI__COLUMNS ? left : TUTTI__COLUMNS;

    if (p->dsrc)
        softmax_columns_backward(p->dsrc[0] + at, p->y + at, p->dy + at, w->e.n, w->e.inner, width,
                                 w->log);
    else
        softmax_columns_forward(p->y + at, (const float *)p->src[0] + at, w->e.n, w->e.inner, width,
                                w->log);
}

static void both(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    softmax_work w = {.p = p, .e = tutti__extent_of_dim(p->shape, a->dim), .log = a->log};

    w.chunks = (w.e.inner + TUTTI__COLUMNS - 1) / TUTTI__COLUMNS;
    if (p->count > 0)
        tutti_op_parallel(p, job, &w, w.e.outer * w.chunks);
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .name = called, .shape = shape, .forward = both, .backward = both,                         \
        .backward_reads = TUTTI_OP_RESULT, .activations = 1, .autocast = TUTTI_OP_F32              \
    }

static bool is_last(const tutti_tensor *x, int dim)
{
    return x && x->shape.n > 0 && (dim == -1 || dim == x->shape.n - 1);
}

/* Whether softmax over dim is computed by the kernel of the last one. */
static bool is_transposed(const tutti_tensor *x, int dim)
{
    return x && x->poison == TUTTI_OK && x->cx->f32_kernels->softmax_forward &&
           dim >= -x->shape.n && dim < x->shape.n;
}

tutti_tensor *tutti_softmax_dim(tutti_tensor *x, int dim)
{
    static const tutti_op op = OP("softmax_dim");

    if (!is_last(x, dim) && is_transposed(x, dim))
        return tutti_transpose(tutti_softmax(tutti_transpose(x, dim, -1)), dim, -1);
    return is_last(x, dim)
               ? tutti_softmax(x)
               : tutti_op_run(&op, &x, 1, &(attributes){dim, false}, sizeof(attributes));
}

tutti_tensor *tutti_log_softmax_dim(tutti_tensor *x, int dim)
{
    static const tutti_op op = OP("log_softmax_dim");

    if (!is_last(x, dim) && is_transposed(x, dim))
        return tutti_transpose(tutti_log_softmax(tutti_transpose(x, dim, -1)), dim, -1);
    return is_last(x, dim) ? tutti_log_softmax(x)
                           : tutti_op_run(&op, &x, 1, &(attributes){dim, true}, sizeof(attributes));
}

tutti_tensor *tutti_softmin(tutti_tensor *x, int dim)
{
    return tutti_softmax_dim(tutti_scale(x, -1), dim);
}
