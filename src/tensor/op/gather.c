/* gather.c -- elements at indices along a dimension.   SPDX-License-Identifier: MIT
 *   y[i][j][k] = x[i][index[i][j][k]][k], for dim 1 */
#include "tensor/move.h"
#include "tensor/op/lines.h"

#include <string.h>

typedef struct attributes {
    int dim;
    bool from_the_end; /* negative indices count from the end */
} attributes;

static tutti_status gather_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    TUTTI_TRY(tutti_op_check_source(
        p, 0, "x", NULL,
        p->sources[0] && p->sources[0]->dtype == TUTTI_I64 ? TUTTI_I64 : TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "index", NULL, TUTTI_I64));
    *dtype = p->sources[0]->dtype;
    *y = p->sources[1]->shape;
    return tutti__lines_check(a->dim, p->sources[0], p->sources[1], p->sources[1], a->from_the_end);
}

typedef struct work {
    const tutti_op_args *p;
    tutti__lines lines;
    int64_t wrap; /* added to negative indices */
} work;

static work work_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape, index = p->sources[1]->shape;
    const int dim = tutti__dim_index(a->dim, x.n);

    return (work){p, tutti__lines_of(dim, x, index, index),
                  !a->from_the_end ? 0
                  : x.n            ? x.d[dim]
                                   : 1};
}

static int64_t place_of(const work *w, int64_t index, int64_t k)
{
    return (index + (index < 0 ? w->wrap : 0)) * w->lines.step + k * w->lines.last;
}

#define TAKE(type, to)                                                                             \
    do {                                                                                           \
        const type *x = (const type *)p->src[0] + r.large;                                         \
        type *y = (to) + r.small;                                                                  \
                                                                                                   \
        for (int64_t k = 0; k < r.n; k++)                                                          \
            y[k] = x[place_of(w, index[k], k)];                                                    \
    } while (0)

static void forward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti_op_args *p = w->p;
    const tutti__lines *l = &w->lines;
    const int64_t rows = tutti__lines_rows(l, job);

    for (int64_t i = 0; i < rows; i++) {
        const tutti__lines_run r = tutti__lines_row(l, job, i);
        const int64_t *index = (const int64_t *)p->src[1] + r.index;

        if (p->y)
            TAKE(float, p->y);
        else
            TAKE(int64_t, p->indices);
    }
}

static void backward_job(void *arg, int64_t job)
{
    const work *w = arg;
    const tutti_op_args *p = w->p;
    const tutti__lines *l = &w->lines;
    const int64_t rows = tutti__lines_rows(l, job);

    for (int64_t i = 0; i < rows; i++) {
        const tutti__lines_run r = tutti__lines_row(l, job, i);
        const int64_t *index = (const int64_t *)p->src[1] + r.index;
        float *dx = p->dsrc[0] + r.large;

        for (int64_t k = 0; k < r.n; k++)
            dx[place_of(w, index[k], k)] += p->dy[r.small + k];
    }
}

static void forward(const tutti_op_args *p)
{
    work w = work_of(p);

    tutti_op_parallel(p, forward_job, &w, tutti__lines_jobs(&w.lines));
}

static void backward(const tutti_op_args *p)
{
    work w = work_of(p);

    memset(p->dsrc[0], 0, (size_t)tutti_shape_count(p->sources[0]->shape) * sizeof(float));
    tutti_op_parallel(p, backward_job, &w, tutti__lines_jobs(&w.lines));
}

/* ---- On a device ------------------------------------------------------------------------------ */

/* large: x, or in backward dx */
static tutti__each_job places_of(const tutti_op_args *p, tutti__job_kind kind, int64_t *lines_p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape, index = p->sources[1]->shape;
    tutti__each_job job = {kind, {{0}}};

    job.of.places = tutti__job_places_of(a->dim, x, index, index, p->src[1], lines_p);
    job.of.places.wrap = work_of(p).wrap;
    job.of.places.is_i64 = p->sources[0]->dtype == TUTTI_I64;
    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    int64_t lines;
    tutti__each_job job = places_of(p, TUTTI__JOB_take, &lines);

    job.of.places.large = (void *)(uintptr_t)p->src[0];
    job.of.places.small = p->indices ? (void *)p->indices : p->y;
    return tutti__each_on_device(p, &job, p->count);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const size_t bytes = (size_t)tutti_shape_count(p->sources[0]->shape) * sizeof(float);
    int64_t lines;
    tutti__each_job job = places_of(p, TUTTI__JOB_put, &lines);

    job.of.places.large = p->dsrc[0];
    job.of.places.small = (void *)(uintptr_t)p->dy;
    job.of.places.add = true;
    TUTTI_TRY(p->cx->device_ops->zero(p->cx->stream, p->dsrc[0], bytes));
    return tutti__each_on_device(p, &job, lines);
}

#define GATHER(called)                                                                             \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = gather_shape,                                                           \
                  .forward = forward,                                                              \
                  .backward = backward,                                                            \
                  .backward_reads = 1 << 1,                                                        \
                  .activations = 1},                                                               \
        .device_forward = device_forward, .device_backward = device_backward                       \
    }

static tutti_tensor *run(tutti_tensor *x, tutti_tensor *index, const attributes *a)
{
    static const tutti__op gather = GATHER("gather"), along = GATHER("take_along_dim");

    return tutti__op_run(a->from_the_end ? &along : &gather, (tutti_tensor *[]){x, index}, 2, a,
                         sizeof *a);
}

tutti_tensor *tutti_functional_gather(tutti_tensor *x, int dim, tutti_tensor *index)
{
    return run(x, index, &(attributes){.dim = dim});
}

/* t with dimensions of size 1, but for dim, as often as `other` has elements in them. */
static tutti_tensor *broadcast(tutti_tensor *t, const tutti_tensor *other, int dim)
{
    tutti_shape times = t->shape;
    bool any = false;

    for (int i = 0; i < times.n; i++) {
        times.d[i] = i != dim && t->shape.d[i] == 1 ? other->shape.d[i] : 1;
        any |= times.d[i] != 1;
    }
    return any ? tutti_repeat(t, times) : t;
}

tutti_tensor *tutti_take_along_dim(tutti_tensor *x, tutti_tensor *index, int dim)
{
    const attributes a = {dim, true};

    if (x && index && x->poison == TUTTI_OK && index->poison == TUTTI_OK &&
        x->shape.n == index->shape.n && x->shape.n > 0 && dim >= -x->shape.n && dim < x->shape.n) {
        const int at = tutti__dim_index(dim, x->shape.n);
        tutti_tensor *wide = broadcast(x, index, at);

        index = broadcast(index, x, at);
        x = wide;
    }
    return run(x, index, &a);
}
