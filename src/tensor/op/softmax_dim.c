/* softmax_dim.c -- softmax and log-softmax over any dimension.   SPDX-License-Identifier: MIT
 * The last one is softmax.c's, which has kernels. For another one, up to TUTTI__COLUMNS neighbours are computed side by side. */
#include "tensor/op/reduction.h"

#include "base/real.h"

#include <math.h>

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
    return tutti__reduced_dim(a->dim, y->n) < 0 ? TUTTI_ERR_ARG : TUTTI_OK;
}

/* e^x, x <= 0 */
static inline double exp_negative(double x)
{
    return tutti__exp_normal(x < -700 ? -700 : x);
}

/* Columns of n elements, each `stride` behind the one before. */
typedef struct columns {
    int64_t n, stride, width;
    bool log;
} columns;

TUTTI__CLONES static void column_forward(const columns *c, float *restrict y,
                                         const float *restrict x)
{
    const int64_t width = c->width;
    float largest[TUTTI__COLUMNS];
    double sum[TUTTI__COLUMNS] = {0};

    for (int64_t i = 0; i < width; i++)
        largest[i] = x[i];
    for (int64_t k = 1; k < c->n; k++)
        for (int64_t i = 0; i < width; i++)
            largest[i] = x[k * c->stride + i] > largest[i] ? x[k * c->stride + i] : largest[i];
    for (int64_t k = 0; k < c->n; k++)
        for (int64_t i = 0; i < width; i++) {
            const double d = (double)x[k * c->stride + i] - (double)largest[i], e = exp_negative(d);

            y[k * c->stride + i] = (float)(c->log ? d : e);
            sum[i] += e;
        }
    for (int64_t i = 0; i < width; i++)
        sum[i] = c->log ? tutti__log(sum[i]) : 1 / sum[i];
    for (int64_t k = 0; k < c->n; k++)
        for (int64_t i = 0; i < width; i++) {
            const double v = (double)y[k * c->stride + i];

            y[k * c->stride + i] = (float)(c->log ? v - sum[i] : v * sum[i]);
        }
}

TUTTI__CLONES static void column_backward(const columns *c, float *restrict dx,
                                          const float *restrict y, const float *restrict dy)
{
    const int64_t width = c->width;
    double sum[TUTTI__COLUMNS] = {0};

    for (int64_t k = 0; k < c->n; k++)
        for (int64_t i = 0; i < width; i++)
            sum[i] += (double)dy[k * c->stride + i] * (c->log ? 1 : (double)y[k * c->stride + i]);
    for (int64_t k = 0; k < c->n; k++)
        for (int64_t i = 0; i < width; i++) {
            const double d = (double)dy[k * c->stride + i], v = (double)y[k * c->stride + i];

            dx[k * c->stride + i] =
                (float)(c->log ? d - exp_negative(v) * sum[i] : v * (d - sum[i]));
        }
}

typedef struct work {
    const tutti_op_args *p;
    columns c;
    int64_t inner, chunks;
} work;

static void job(void *arg, int64_t i)
{
    const work *w = arg;
    const tutti_op_args *p = w->p;
    const int64_t from = i % w->chunks * TUTTI__COLUMNS, left = w->inner - from;
    const int64_t at = i / w->chunks * w->c.n * w->inner + from;
    columns c = w->c;

    c.width = left < TUTTI__COLUMNS ? left : TUTTI__COLUMNS;
    if (p->dsrc)
        column_backward(&c, p->dsrc[0] + at, p->y + at, p->dy + at);
    else
        column_forward(&c, p->y + at, (const float *)p->src[0] + at);
}

static void both(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti__extent e = tutti__extent_of_dim(p->shape, a->dim);
    work w = {.p = p,
              .c = {.n = e.n, .stride = e.inner, .log = a->log},
              .inner = e.inner,
              .chunks = (e.inner + TUTTI__COLUMNS - 1) / TUTTI__COLUMNS};

    if (p->count > 0)
        tutti_op_parallel(p, job, &w, e.outer * w.chunks);
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

tutti_tensor *tutti_softmax_dim(tutti_tensor *x, int dim)
{
    static const tutti_op op = OP("softmax_dim");

    return is_last(x, dim) ? tutti_softmax(x)
                           : tutti_op_run(&op, &x, 1, &(attributes){dim, false}, sizeof(attributes));
}

tutti_tensor *tutti_log_softmax_dim(tutti_tensor *x, int dim)
{
    static const tutti_op op = OP("log_softmax_dim");

    return is_last(x, dim) ? tutti_log_softmax(x)
                           : tutti_op_run(&op, &x, 1, &(attributes){dim, true}, sizeof(attributes));
}

tutti_tensor *tutti_softmin(tutti_tensor *x, int dim)
{
    return tutti_softmax_dim(tutti_scale(x, -1), dim);
}
