/* softmax.c -- softmax and log-softmax over the last dimension.   SPDX-License-Identifier: MIT
 * One implementation; the attribute says whether it is log-softmax. */
#include "base/base.h"
#include "base/real.h"
#include "tensor/op.h"
#include "tensor/op/softmax.h"

static tutti_status softmax_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    if (y->n < 1)
        return tutti__fail(TUTTI_ERR_ARG, "x is a scalar, expected at least one dimension");
    return TUTTI_OK;
}

static bool is_log(const void *attributes)
{
    return *(const bool *)attributes;
}

static int64_t width_of(const tutti_op_args *p)
{
    return p->shape.d[p->shape.n - 1];
}

/* ---- Rows, in lanes that vectorise ----------------------------------------------------------------- */

#define LANES 32    /* more than gcc unrolls before it vectorises */
#define JOB   16384 /* elements of a job, at least, of whole rows */

TUTTI__CLONES static float largest_of(const float *x, int64_t n)
{
    float lane[LANES], largest = x[0];
    int64_t i = 0;

    for (int k = 0; k < LANES; k++)
        lane[k] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int k = 0; k < LANES; k++)
        largest = lane[k] > largest ? lane[k] : largest;
    return largest;
}

float tutti__largest_of(const float *x, int64_t n)
{
    return largest_of(x, n);
}

/* y = exp(x - largest); returns its sum */
TUTTI__CLONES static double softmax_exponentials(float *restrict y, const float *restrict x,
                                                 int64_t n, float largest)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double e = tutti__exp_negative((double)x[i + k] - (double)largest);

            y[i + k] = (float)e;
            lane[k] += e;
        }
    for (; i < n; i++) {
        const double e = tutti__exp_negative((double)x[i] - (double)largest);

        y[i] = (float)e;
        sum += e;
    }
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

TUTTI__CLONES static void forward_row(float *restrict y, const float *restrict x, int64_t n,
                                      bool log)
{
    const float largest = tutti__largest_of(x, n);
    const double sum = softmax_exponentials(y, x, n, largest), factor = 1 / sum;
    const double log_sum = log ? tutti__log(sum) : 0;

    if (log)
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((double)x[i] - (double)largest - log_sum);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)((double)y[i] * factor);
}

/* softmax: dx = y * (dy - sum dy*y).   log-softmax: dx = dy - exp(y) * sum dy */
TUTTI__CLONES static void backward_row(float *restrict dx, const float *restrict y,
                                       const float *restrict dy, int64_t n, bool log)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; log && i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)dy[i + k];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)dy[i + k] * (double)y[i + k];
    for (; i < n; i++)
        sum += (double)dy[i] * (log ? 1 : (double)y[i]);
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    if (log)
        for (i = 0; i < n; i++)
            dx[i] = (float)((double)dy[i] - tutti__exp_negative((double)y[i]) * sum);
    else
        for (i = 0; i < n; i++)
            dx[i] = (float)((double)y[i] * ((double)dy[i] - sum));
}

static int64_t rows_of_job(const tutti_op_args *p)
{
    return JOB / width_of(p) + 1;
}

static void rows_job(void *arg, int64_t job)
{
    const tutti_op_args *p = arg;
    const int64_t width = width_of(p), rows = rows_of_job(p), end = (job + 1) * rows * width;

    for (int64_t at = job * rows * width; at < end && at < p->count; at += width) {
        if (p->dsrc)
            backward_row(p->dsrc[0] + at, p->y + at, p->dy + at, width, is_log(p->attributes));
        else
            forward_row(p->y + at, (const float *)p->src[0] + at, width, is_log(p->attributes));
    }
}

static void plain(const tutti_op_args *p)
{
    tutti_op_args args = *p;
    const int64_t rows = p->count / width_of(p), together = rows_of_job(p);

    tutti_op_parallel(p, rows_job, &args, (rows + together - 1) / together);
}

static tutti_status softmax_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->softmax_forward ? k->softmax_forward(n->dst, n->src[0], is_log(n->attributes))
                              : tutti__plain_forward(n);
}

static tutti_status softmax_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->softmax_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->softmax_backward(dx, n->dst->grad, n->dst, is_log(n->attributes));
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = softmax_shape,                                                          \
                  .forward = plain,                                                                \
                  .backward = plain,                                                               \
                  .backward_reads = TUTTI_OP_RESULT,                                               \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_F32},                                                       \
        .forward = softmax_forward, .backward = softmax_backward                                   \
    }

tutti_tensor *tutti_softmax(tutti_tensor *x)
{
    static const tutti__op op = OP("softmax");

    return tutti__op_run(&op, &x, 1, &(bool){false}, sizeof(bool));
}

tutti_tensor *tutti_log_softmax(tutti_tensor *x)
{
    static const tutti__op op = OP("log_softmax");

    return tutti__op_run(&op, &x, 1, &(bool){true}, sizeof(bool));
}
