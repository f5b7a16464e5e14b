/* index_select.c -- slices of a dimension by index.   SPDX-License-Identifier: MIT
 * As a table [outer,size,inner]; on a GPU rows of a table are embedding's. */
#include "tensor/move.h"
#include "tensor/op/lines.h"

#include <string.h>

#define COLUMNS 1024 /* of inner per job, at most */

typedef struct work {
    const tutti_op_args *p;
    int64_t outer, size, n, inner, columns;
} work;

static work work_of(const tutti_op_args *p)
{
    const tutti_shape x = p->sources[0]->shape;
    const int dim = tutti__dim_index(*(const int *)p->attributes, x.n);
    work w = {.p = p,
              .outer = 1,
              .size = x.n ? x.d[dim] : 1,
              .n = tutti_shape_count(p->sources[1]->shape),
              .inner = 1};

    for (int i = 0; i < dim; i++)
        w.outer *= x.d[i];
    for (int i = dim + 1; i < x.n; i++)
        w.inner *= x.d[i];
    w.columns = (w.inner + COLUMNS - 1) / COLUMNS;
    return w;
}

static tutti_status index_select_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape index;
    char what[64];
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    TUTTI_TRY(tutti_op_check_source(p, 1, "index", NULL, TUTTI_I64));
    *y = p->sources[0]->shape;
    index = p->sources[1]->shape;
    dim = tutti__dim_index(*(const int *)p->attributes, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (index.n > 1 || (y->n == 0 && tutti_shape_count(index) != 1))
        return tutti__fail(TUTTI_ERR_ARG, "index is %s, expected [I]%s", tutti__shape_text(index),
                           y->n ? "" : " of one element for a scalar x");
    snprintf(what, sizeof what, "dim %d of x has %lld elements", dim,
             (long long)(y->n ? y->d[dim] : 1));
    TUTTI_TRY(tutti__check_indices(p->sources[1], "index", 0, y->n ? y->d[dim] : 1, what));
    if (y->n)
        y->d[dim] = tutti_shape_count(index);
    return TUTTI_OK;
}

static void forward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti_op_args *p = w->p;
    const int64_t o = job / w->columns, column = job % w->columns * COLUMNS, *index = p->src[1];
    const int64_t n = w->inner - column < COLUMNS ? w->inner - column : COLUMNS;
    const size_t element = p->y ? sizeof(float) : sizeof(int64_t);
    const char *x = (const char *)p->src[0] + (size_t)(o * w->size * w->inner + column) * element;
    char *y = (p->y ? (char *)p->y : (char *)p->indices) +
              (size_t)(o * w->n * w->inner + column) * element;

    for (int64_t i = 0; i < w->n; i++)
        memcpy(y + (size_t)(i * w->inner) * element, x + (size_t)(index[i] * w->inner) * element,
               (size_t)n * element);
}

static void backward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti_op_args *p = w->p;
    const int64_t o = job / w->columns, column = job % w->columns * COLUMNS, *index = p->src[1];
    const int64_t n = w->inner - column < COLUMNS ? w->inner - column : COLUMNS;
    float *dx = p->dsrc[0] + o * w->size * w->inner + column;
    const float *dy = p->dy + o * w->n * w->inner + column;

    for (int64_t i = 0; i < w->size; i++)
        memset(dx + i * w->inner, 0, (size_t)n * sizeof *dx);
    for (int64_t i = 0; i < w->n; i++, dy += w->inner)
        for (int64_t k = 0; k < n; k++)
            dx[index[i] * w->inner + k] += dy[k];
}

static void plain_forward(const tutti_op_args *p)
{
    work w = work_of(p);

    tutti_op_parallel(p, forward_job, &w, w.outer * w.columns);
}

static void plain_backward(const tutti_op_args *p)
{
    work w = work_of(p);

    tutti_op_parallel(p, backward_job, &w, w.outer * w.columns);
}

/* ---- On a device: rows of a table by embedding's kernels, others as places of [outer,size,inner] ------------ */

static tutti__each_job places_of(const tutti_op_args *p, tutti__job_kind kind)
{
    const work w = work_of(p);
    tutti__each_job job = {kind,
                           {.places = {.n = 3,
                                       .dim = 1,
                                       .size = {w.outer, w.n, w.inner},
                                       .index_stride = {0, 1, 0},
                                       .small_stride = {w.n * w.inner, w.inner, 1},
                                       .large_stride = {w.size * w.inner, w.inner, 1},
                                       .index = p->src[1],
                                       .is_i64 = p->sources[0]->dtype == TUTTI_I64}}};

    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    tutti__each_job job = places_of(p, TUTTI__JOB_take);

    job.of.places.large = (void *)(uintptr_t)p->src[0];
    job.of.places.small = p->indices ? (void *)p->indices : p->y;
    return tutti__each_on_device(p, &job, p->count);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const size_t bytes = (size_t)tutti_shape_count(p->sources[0]->shape) * sizeof(float);
    tutti__each_job job = places_of(p, TUTTI__JOB_put);

    job.of.places.large = p->dsrc[0];
    job.of.places.small = (void *)(uintptr_t)p->dy;
    job.of.places.add = true;
    TUTTI_TRY(p->cx->device_ops->zero(p->cx->stream, p->dsrc[0], bytes));
    return tutti__each_on_device(p, &job, job.of.places.size[0] * job.of.places.size[2]);
}

/* t as rows of a table; NULL if embedding's kernels do not have this. */
static tutti_tensor *table_of(const tutti__node *n, tutti_tensor *t)
{
    const tutti_shape x = n->src[0]->shape;

    if (n->cx->device_ops->is_host || x.n == 0 || n->src[0]->dtype != TUTTI_F32 ||
        tutti__dim_index(*(const int *)n->attributes, x.n) != 0 || x.d[0] == 0)
        return NULL;
    return tutti__tensor_view(t, TUTTI_SHAPE(t->shape.d[0], tutti_shape_count(x) / x.d[0]));
}

static tutti_status index_select_forward(tutti__node *n)
{
    tutti_tensor *x = table_of(n, n->src[0]);

    return x ? n->cx->kernels->embedding_forward(n->dst, x, n->src[1]) : tutti__plain_forward(n);
}

static tutti_status index_select_backward(tutti__node *n)
{
    tutti_tensor *dy = table_of(n, n->dst->grad), *dx, *rows;

    if (!dy)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    if (!dx)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    rows = table_of(n, dx);
    return rows ? n->cx->kernels->embedding_backward(rows, dy, n->src[1]) : TUTTI_ERR_MEMORY;
}

tutti_tensor *tutti_index_select(tutti_tensor *x, int dim, tutti_tensor *index)
{
    static const tutti__op op = {.plain = {.name = "index_select",
                                           .shape = index_select_shape,
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .backward_reads = 1 << 1,
                                           .activations = 1},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward,
                                 .forward = index_select_forward,
                                 .backward = index_select_backward};

    return tutti__op_run(&op, (tutti_tensor *[]){x, index}, 2, &dim, sizeof dim);
}
