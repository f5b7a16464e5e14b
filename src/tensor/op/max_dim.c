/* max_dim.c -- the largest and smallest elements along one dimension, and where they are: the first of several.
 * SPDX-License-Identifier: MIT
 * A NaN counts as the largest and as the smallest, as in PyTorch. */
#include "tensor/each.h"
#include "tensor/op/reduction.h"

#include <string.h>

/* The first of the elements that are `value`, or NaN if that is: at[columns]. */
static void find_first(const tutti__slice *s, const double *value, int64_t *at)
{
    for (int64_t i = 0; i < s->columns; i++)
        at[i] = -1;
    for (int64_t k = 0, missing = s->columns; k < s->n && missing > 0; k++)
        for (int64_t i = 0; i < s->columns; i++) {
            const double x = (double)s->x[k * s->stride + i];

            if (at[i] < 0 && (x == value[i] || x != x)) {
                at[i] = k;
                missing--;
            }
        }
}

static void value_slice(const tutti__slice *s, double *result)
{
    const tutti__reduction *r = s->p->attributes;

    (r->parameter > 0 ? tutti__max_slice : tutti__min_slice)(s, result);
}

static void index_slice(const tutti__slice *s, double *result)
{
    value_slice(s, result);
    find_first(s, result, s->p->indices + s->at);
}

static void gradient_slice(const tutti__slice *s, double *result)
{
    const tutti_op_args *p = s->p;
    float *dx = p->dsrc[0] + (s->x - (const float *)p->src[0]);
    int64_t at[TUTTI__COLUMNS];

    for (int64_t i = 0; i < s->columns; i++)
        result[i] = (double)p->y[s->at + i];
    find_first(s, result, at);
    for (int64_t k = 0; k < s->n; k++)
        memset(dx + k * s->stride, 0, (size_t)s->columns * sizeof *dx);
    for (int64_t i = 0; i < s->columns; i++)
        dx[at[i] * s->stride + i] = p->dy[s->at + i];
}

static void value_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, value_slice);
}

static void value_backward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, gradient_slice);
}

static void index_forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, index_slice);
}

static tutti_status index_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__reduction *r = p->attributes;

    TUTTI_TRY(tutti__reduction_shape_some(p, y, dtype));
    if (r->dims.n > 1)
        return tutti__fail(TUTTI_ERR_ARG, "%d dims are given, expected one, or none for all",
                           r->dims.n);
    *dtype = TUTTI_I64;
    return TUTTI_OK;
}

/* ---- On a device ------------------------------------------------------------------------------ */

static tutti_status device_value(const tutti_op_args *p, float *y)
{
    const tutti__reduction *r = p->attributes;
    const tutti__fold_args a = {.kind = r->parameter > 0 ? TUTTI__FOLD_MAX : TUTTI__FOLD_MIN};

    return tutti__fold_on_device(p, a, y, TUTTI_F32);
}

/* The first element of each line that is y. */
static tutti_status device_index(const tutti_op_args *p, const float *y, int64_t *index)
{
    return tutti__fold_on_device(p, (tutti__fold_args){.kind = TUTTI__FOLD_FIRST, .given = y},
                                 index, TUTTI_I64);
}

static tutti_status device_value_forward(const tutti_op_args *p)
{
    return device_value(p, p->y);
}

static tutti_status device_value_backward(const tutti_op_args *p)
{
    const tutti__extent e = tutti__extent_of(p);
    int64_t *index =
        tutti__operation_memory(p->cx, (size_t)(e.outer * e.inner) * sizeof *index + 1);
    const tutti__each_job job = {
        TUTTI__JOB_first_gradient,
        {.lines = {.n = e.n, .inner = e.inner, .dy = p->dy, .to = p->dsrc[0], .index = index}}};

    if (!index)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(device_index(p, p->y, index));
    return tutti__each_on_device(p, &job, e.outer * e.n * e.inner);
}

static tutti_status device_index_forward(const tutti_op_args *p)
{
    const tutti__extent e = tutti__extent_of(p);
    float *y = tutti__operation_memory(p->cx, (size_t)(e.outer * e.inner) * sizeof *y + 1);

    if (!y)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(device_value(p, y));
    return device_index(p, y, p->indices);
}

/* ---- The operations --------------------------------------------------------------------------- */

#define VALUE(called)                                                                              \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = tutti__reduction_shape_some,                                            \
                  .forward = value_forward,                                                        \
                  .backward = value_backward,                                                      \
                  .backward_reads = 1 << 0 | TUTTI_OP_RESULT,                                      \
                  .activations = 1},                                                               \
        .device_forward = device_value_forward, .device_backward = device_value_backward           \
    }
#define INDEX(called)                                                                              \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = index_shape,                                                            \
                  .forward = index_forward,                                                        \
                  .no_grad = true,                                                                 \
                  .activations = 1},                                                               \
        .device_forward = device_index_forward                                                     \
    }

tutti_tensor *tutti_max_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti__op op = VALUE("max_dim");

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, 1});
}

tutti_tensor *tutti_min_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti__op op = VALUE("min_dim");

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, -1});
}

tutti_tensor *tutti_argmax(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = INDEX("argmax");

    return tutti__op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, 1},
                         sizeof(tutti__reduction));
}

tutti_tensor *tutti_argmin(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = INDEX("argmin");

    return tutti__op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, -1},
                         sizeof(tutti__reduction));
}
