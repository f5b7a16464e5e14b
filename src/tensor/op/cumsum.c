/* cumsum.c -- running sums and products along a dimension.   SPDX-License-Identifier: MIT
 *   cumsum: y_k = x_0 + ... + x_k         dx_k = dy_k + dy_k+1 + ...
 *   cumprod: y_k = x_0 ... x_k            dx_k = (dy_k y_k + dy_k+1 y_k+1 + ...) / x_k before the first zero; of that one, the sum of
 *                                         dy_i times the product of all others up to i; behind it 0 */
#include "tensor/each.h"
#include "tensor/op/reduction.h"

#define TOGETHER 8

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    return tutti__dim_index(*(const int *)p->attributes, y->n) < 0 ? TUTTI_ERR_ARG : TUTTI_OK;
}

/* ---- Lines along the dimension: up to TUTTI__COLUMNS side by side ------------------------------------ */

typedef struct lines {
    const tutti_op_args *p;
    tutti__extent e;
    int64_t chunks;
    void (*function)(const struct lines *l, int64_t at, int64_t columns);
} lines;

static void lines_job(void *arg, int64_t i)
{
    const lines *l = arg;
    const int64_t from = i % l->chunks * TUTTI__COLUMNS, left = l->e.inner - from;

    l->function(l, i / l->chunks * l->e.n * l->e.inner + from,
                left < TUTTI__COLUMNS ? left : TUTTI__COLUMNS);
}

static void each_line(const tutti_op_args *p,
                      void (*function)(const lines *l, int64_t at, int64_t columns))
{
    lines l = {.p = p,
               .e = tutti__extent_of_dim(p->shape, *(const int *)p->attributes),
               .function = function};

    l.chunks = (l.e.inner + TUTTI__COLUMNS - 1) / TUTTI__COLUMNS;
    tutti_op_parallel(p, lines_job, &l, l.e.outer * l.chunks);
}

/* ---- Sums ------------------------------------------------------------------------------------------ */

/* step: from one element of a line to the next one, negative to go backwards */
TUTTI__CLONES static void run_sums(float *restrict y, const float *restrict x, int64_t n,
                                   int64_t step, int64_t columns)
{
    double total[TUTTI__COLUMNS] = {0};

    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < columns; i++) {
            total[i] += (double)x[k * step + i];
            y[k * step + i] = (float)total[i];
        }
}

static void sum_forward_lines(const lines *l, int64_t at, int64_t columns)
{
    run_sums(l->p->y + at, (const float *)l->p->src[0] + at, l->e.n, l->e.inner, columns);
}

static void sum_backward_lines(const lines *l, int64_t at, int64_t columns)
{
    const int64_t last = at + (l->e.n - 1) * l->e.inner;

    run_sums(l->p->dsrc[0] + last, l->p->dy + last, l->e.n, -l->e.inner, columns);
}

/* Lines whose elements lie side by side: several at once, since each addition waits for the one before. */
static void run_rows(float *restrict y, const float *restrict x, int64_t n, int64_t step,
                     int64_t apart)
{
    double t[TOGETHER] = {0};

    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < TOGETHER; i++) {
            t[i] += (double)x[k * step + i * apart];
            y[k * step + i * apart] = (float)t[i];
        }
}

static void rows_job(void *arg, int64_t job)
{
    const lines *l = arg;
    const tutti_op_args *p = l->p;
    const int64_t n = l->e.n, first = job * TOGETHER, left = l->e.outer - first;
    const int64_t at = first * n + (p->dsrc ? n - 1 : 0), step = p->dsrc ? -1 : 1;
    const float *from = p->dsrc ? p->dy : p->src[0];
    float *to = p->dsrc ? p->dsrc[0] : p->y;

    if (left >= TOGETHER)
        run_rows(to + at, from + at, n, step, n);
    for (int64_t i = 0; left < TOGETHER && i < left; i++)
        run_sums(to + at + i * n, from + at + i * n, n, step, 1);
}

static void sums(const tutti_op_args *p)
{
    lines l = {.p = p, .e = tutti__extent_of_dim(p->shape, *(const int *)p->attributes)};

    if (l.e.inner == 1)
        tutti_op_parallel(p, rows_job, &l, (l.e.outer + TOGETHER - 1) / TOGETHER);
    else
        each_line(p, p->dsrc ? sum_backward_lines : sum_forward_lines);
}

/* ---- Products -------------------------------------------------------------------------------------- */

TUTTI__CLONES static void run_products(float *restrict y, const float *restrict x, int64_t n,
                                       int64_t step, int64_t columns)
{
    double total[TUTTI__COLUMNS];

    for (int64_t i = 0; i < columns; i++)
        total[i] = 1;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < columns; i++) {
            total[i] *= (double)x[k * step + i];
            y[k * step + i] = (float)total[i];
        }
}

static void product_forward_lines(const lines *l, int64_t at, int64_t columns)
{
    run_products(l->p->y + at, (const float *)l->p->src[0] + at, l->e.n, l->e.inner, columns);
}

static void product_forward(const tutti_op_args *p)
{
    each_line(p, product_forward_lines);
}

/* Lines as jobs: of x, or in backward of dy. */
static tutti__each_job lines_of(const tutti_op_args *p, tutti__job_kind kind, int64_t *lines_p)
{
    const tutti__extent e = tutti__extent_of_dim(p->shape, *(const int *)p->attributes);
    tutti__each_job job = {kind, {.lines = {.n = e.n, .inner = e.inner, .dy = p->dy}}};

    job.of.lines.x = p->src[0];
    job.of.lines.to = p->dsrc ? p->dsrc[0] : p->y;
    *lines_p = e.outer * e.inner;
    return job;
}

static void product_backward(const tutti_op_args *p)
{
    int64_t n;
    const tutti__each_job job = lines_of(p, TUTTI__JOB_run_product_gradient, &n);

    tutti__each_on_host(p, &job, n, job.of.lines.n);
}

/* ---- On a device ----------------------------------------------------------------------------------- */

static tutti_status device_sums(const tutti_op_args *p)
{
    int64_t n;
    tutti__each_job job = lines_of(p, TUTTI__JOB_run_sum, &n);

    job.of.lines.backwards = p->dsrc != NULL;
    job.of.lines.x = p->dsrc ? p->dy : p->src[0];
    return tutti__each_on_device(p, &job, n);
}

static tutti_status device_product_forward(const tutti_op_args *p)
{
    int64_t n;
    const tutti__each_job job = lines_of(p, TUTTI__JOB_run_product, &n);

    return tutti__each_on_device(p, &job, n);
}

static tutti_status device_product_backward(const tutti_op_args *p)
{
    int64_t n;
    const tutti__each_job job = lines_of(p, TUTTI__JOB_run_product_gradient, &n);

    return tutti__each_on_device(p, &job, n);
}

/* ---- The operations -------------------------------------------------------------------------------- */

tutti_tensor *tutti_cumsum(tutti_tensor *x, int dim)
{
    static const tutti__op op = {.plain = {.name = "cumsum",
                                           .shape = shape,
                                           .forward = sums,
                                           .backward = sums,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = device_sums,
                                 .device_backward = device_sums};

    return tutti__op_run(&op, &x, 1, &dim, sizeof dim);
}

tutti_tensor *tutti_cumprod(tutti_tensor *x, int dim)
{
    static const tutti__op op = {.plain = {.name = "cumprod",
                                           .shape = shape,
                                           .forward = product_forward,
                                           .backward = product_backward,
                                           .backward_reads = 1 << 0,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = device_product_forward,
                                 .device_backward = device_product_backward};

    return tutti__op_run(&op, &x, 1, &dim, sizeof dim);
}
