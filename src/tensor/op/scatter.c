/* scatter.c -- elements put or added at indices along a dimension: scatter, scatter_add.   SPDX-License-Identifier: MIT
 *   y = x, but y[i][index[i][j][k]][k] = or += src[i][j][k], for dim 1 */
#include "tensor/op/lines.h"

#include <string.h>

typedef struct attributes {
    int dim;
    float value; /* instead of src, if there is none */
    bool add;
} attributes;

typedef struct work {
    const tutti_op_args *p;
    const attributes *a;
    tutti__lines lines;
    float *large; /* y; in backward dx, or memory of its size */
} work;

static work work_of(const tutti_op_args *p, float *large)
{
    const attributes *a = p->attributes;
    const tutti_shape index = p->sources[1]->shape;

    return (work){p, a,
                  tutti__lines_of(a->dim, p->sources[0]->shape, index,
                                  p->n_src == 3 ? p->sources[2]->shape : index),
                  large};
}

static tutti_status scatter_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "index", NULL, TUTTI_I64));
    if (p->n_src == 3)
        TUTTI_TRY(tutti_op_check_source(p, 2, "src", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    return tutti__lines_check(a->dim, p->sources[0], p->sources[1],
                              p->sources[p->n_src == 3 ? 2 : 1], false);
}

static void forward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti__lines *l = &w->lines;
    const int64_t rows = tutti__lines_rows(l, job);

    for (int64_t i = 0; i < rows; i++) {
        const tutti__lines_run r = tutti__lines_row(l, job, i);
        const int64_t *index = (const int64_t *)w->p->src[1] + r.index;
        const float *src = w->p->n_src == 3 ? (const float *)w->p->src[2] + r.small : NULL;
        float *y = w->large + r.large;

        if (!src)
            for (int64_t k = 0; k < r.n; k++)
                y[index[k] * l->step + k * l->last] = w->a->value;
        else if (w->a->add)
            for (int64_t k = 0; k < r.n; k++)
                y[index[k] * l->step + k * l->last] += src[k];
        else
            for (int64_t k = 0; k < r.n; k++)
                y[index[k] * l->step + k * l->last] = src[k];
    }
}

/* An element of src that was overwritten by a later one has no gradient: those are visited first, and leave 0. */
static void backward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti__lines *l = &w->lines;
    float *dsrc = w->p->n_src == 3 ? w->p->dsrc[2] : NULL;

    for (int64_t i = tutti__lines_rows(l, job) - 1; i >= 0; i--) {
        const tutti__lines_run r = tutti__lines_row(l, job, i);
        const int64_t *index = (const int64_t *)w->p->src[1] + r.index;
        float *large = w->large + r.large;

        for (int64_t k = r.n - 1; k >= 0; k--) {
            float *at = &large[index[k] * l->step + k * l->last];

            if (dsrc)
                dsrc[r.small + k] = *at;
            if (!w->a->add)
                *at = 0;
        }
    }
}

static void forward(const tutti_op_args *p)
{
    work w = work_of(p, p->y);

    memcpy(p->y, p->src[0], (size_t)p->count * sizeof *p->y);
    tutti_op_parallel(p, forward_job, &w, tutti__lines_jobs(&w.lines));
}

static void backward(const tutti_op_args *p)
{
    const size_t bytes = (size_t)p->count * sizeof(float);
    float *dsrc = p->n_src == 3 ? p->dsrc[2] : NULL;
    /* kept is the place for dx if that is not needed */
    work w = work_of(p, p->dsrc[0] ? p->dsrc[0] : p->kept);

    memcpy(w.large, p->dy, bytes);
    if (dsrc) /* may be larger than the index */
        memset(dsrc, 0, (size_t)tutti_shape_count(p->sources[2]->shape) * sizeof *dsrc);
    tutti_op_parallel(p, backward_job, &w, tutti__lines_jobs(&w.lines));
}

static int64_t keeps(const tutti_op_args *p)
{
    return p->sources[0]->needs_grad ? 0 : p->count;
}

/* ---- On a device ------------------------------------------------------------------------------ */

static tutti__each_job places_of(const tutti_op_args *p, tutti__job_kind kind, float *large,
                                 const float *small, int64_t *lines_p)
{
    const attributes *a = p->attributes;
    const tutti_shape index = p->sources[1]->shape;
    tutti__each_job job = {kind, {{0}}};

    job.of.places =
        tutti__job_places_of(a->dim, p->sources[0]->shape, index,
                             p->n_src == 3 ? p->sources[2]->shape : index, p->src[1], lines_p);
    job.of.places.large = large;
    job.of.places.small = (void *)(uintptr_t)small;
    job.of.places.add = a->add;
    job.of.places.value = a->value;
    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    int64_t lines;
    const tutti__each_job job =
        places_of(p, TUTTI__JOB_put, p->y, p->n_src == 3 ? p->src[2] : NULL, &lines);

    TUTTI_TRY(tutti__copy(p->cx->stream, p->y, p->src[0], (size_t)p->count * sizeof *p->y));
    return tutti__each_on_device(p, &job, lines);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    tutti_stream *stream = p->cx->stream;
    float *dsrc = p->n_src == 3 ? p->dsrc[2] : NULL;
    float *large = p->dsrc[0] ? p->dsrc[0] : p->kept;
    int64_t lines;
    const tutti__each_job job =
        places_of(p, a->add ? TUTTI__JOB_take : TUTTI__JOB_take_back, large, dsrc, &lines);

    TUTTI_TRY(tutti__copy(stream, large, p->dy, (size_t)p->count * sizeof *large));
    if (dsrc)
        TUTTI_TRY(stream->ops->zero(
            stream, dsrc, (size_t)tutti_shape_count(p->sources[2]->shape) * sizeof *dsrc));
    if (!a->add)
        return tutti__each_on_device(p, &job, lines);
    return dsrc ? tutti__each_on_device(p, &job, tutti_shape_count(p->sources[1]->shape))
                : TUTTI_OK;
}

#define SCATTER(called)                                                                            \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = scatter_shape,                                                          \
                  .forward = forward,                                                              \
                  .backward = backward,                                                            \
                  .backward_reads = 1 << 1,                                                        \
                  .activations = 1 << 0 | 1 << 2,                                                  \
                  .autocast = TUTTI_OP_WIDEST,                                                     \
                  .keeps = keeps},                                                                 \
        .device_forward = device_forward, .device_backward = device_backward                       \
    }

static tutti_tensor *run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                         const attributes *a)
{
    return tutti__op_run(op, src, n_src, a, sizeof *a);
}

tutti_tensor *tutti_functional_scatter(tutti_tensor *x, int dim, tutti_tensor *index,
                                       tutti_tensor *src)
{
    static const tutti__op op = SCATTER("scatter");

    return run(&op, (tutti_tensor *[]){x, index, src}, 3, &(attributes){.dim = dim});
}

tutti_tensor *tutti_scatter_value(tutti_tensor *x, int dim, tutti_tensor *index, float value)
{
    static const tutti__op op = SCATTER("scatter_value");

    return run(&op, (tutti_tensor *[]){x, index}, 2, &(attributes){.dim = dim, .value = value});
}

tutti_tensor *tutti_scatter_add(tutti_tensor *x, int dim, tutti_tensor *index, tutti_tensor *src)
{
    static const tutti__op op = SCATTER("scatter_add");

    return run(&op, (tutti_tensor *[]){x, index, src}, 3, &(attributes){.dim = dim, .add = true});
}
