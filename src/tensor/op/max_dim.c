/* max_dim.c -- the largest and smallest elements along one dimension, and where they are: the first of several.
 * SPDX-License-Identifier: MIT
 * A NaN counts as the largest and as the smallest, as in PyTorch. */
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

/* ---- The operations --------------------------------------------------------------------------- */

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

#define VALUE(called)                                                                              \
    {                                                                                              \
        .name = called, .shape = tutti__reduction_shape_some, .forward = value_forward,            \
        .backward = value_backward, .backward_reads = 1 << 0 | TUTTI_OP_RESULT, .activations = 1   \
    }
#define INDEX(called)                                                                              \
    {                                                                                              \
        .name = called, .shape = index_shape, .forward = index_forward, .no_grad = true,           \
        .activations = 1                                                                           \
    }

tutti_tensor *tutti_max_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti__op op = {.plain = VALUE("max_dim")};

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, 1});
}

tutti_tensor *tutti_min_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti__op op = {.plain = VALUE("min_dim")};

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, -1});
}

tutti_tensor *tutti_argmax(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = INDEX("argmax");

    return tutti_op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, 1},
                        sizeof(tutti__reduction));
}

tutti_tensor *tutti_argmin(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = INDEX("argmin");

    return tutti_op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, -1},
                        sizeof(tutti__reduction));
}
