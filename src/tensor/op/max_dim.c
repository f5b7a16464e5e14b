/* max_dim.c -- the largest and smallest elements along one dimension, and where they are: the first of several.
 * SPDX-License-Identifier: MIT
 * A NaN counts as the largest and as the smallest, as in PyTorch. */
#include "tensor/op/reduction.h"

#include <math.h>

/* ---- The search, in row order: at[columns], best[columns] ----------------------------------------- */

static inline bool better(float x, float than, float sign)
{
    return sign * x > sign * than || (x != x && than == than);
}

TUTTI__CLONES static void find(const tutti__slice *s, float sign, float *best, int32_t *at)
{
    const float *x = s->x;

    for (int64_t i = 0; i < s->columns; i++) {
        best[i] = x[i];
        at[i] = 0;
    }
    for (int64_t k = 1; k < s->n; k++) {
        x += s->stride;
        for (int64_t i = 0; i < s->columns; i++) {
            const bool is = better(x[i], best[i], sign);

            best[i] = is ? x[i] : best[i];
            at[i] = is ? (int32_t)k : at[i];
        }
    }
}

/* Parts of it, since positions in a part fit in 32 bits. */
static void find_all(const tutti__slice *s, float sign, float *best, int64_t *at)
{
    const int64_t most = 1 << 30;

    for (int64_t from = 0; from < s->n; from += most) {
        tutti__slice part = *s;
        float best_of_part[TUTTI__COLUMNS];
        int32_t at_of_part[TUTTI__COLUMNS];

        part.x += from * s->stride;
        part.n = s->n - from < most ? s->n - from : most;
        find(&part, sign, best_of_part, at_of_part);
        for (int64_t i = 0; i < s->columns; i++)
            if (from == 0 || better(best_of_part[i], best[i], sign)) {
                best[i] = best_of_part[i];
                at[i] = from + at_of_part[i];
            }
    }
}

static float sign_of(const tutti__slice *s)
{
    return (float)((const tutti__reduction *)s->p->attributes)->parameter;
}

static void value_slice(const tutti__slice *s, double *result)
{
    float best[TUTTI__COLUMNS];
    int64_t at[TUTTI__COLUMNS];

    find_all(s, sign_of(s), best, at);
    for (int64_t i = 0; i < s->columns; i++)
        result[i] = (double)best[i];
}

static void index_slice(const tutti__slice *s, double *result)
{
    float best[TUTTI__COLUMNS];

    (void)result;
    find_all(s, sign_of(s), best, s->p->indices + s->at);
}

static void gradient_slice(const tutti__slice *s, double *result)
{
    const tutti_op_args *p = s->p;
    float *dx = p->dsrc[0] + (s->x - (const float *)p->src[0]), best[TUTTI__COLUMNS];
    int64_t at[TUTTI__COLUMNS];

    (void)result;
    find_all(s, sign_of(s), best, at);
    for (int64_t k = 0; k < s->n; k++)
        for (int64_t i = 0; i < s->columns; i++)
            dx[k * s->stride + i] = at[i] == k ? p->dy[s->at + i] : 0;
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
        .backward = value_backward, .backward_reads = 1 << 0, .activations = 1                     \
    }
#define INDEX(called)                                                                              \
    {                                                                                              \
        .name = called, .shape = index_shape, .forward = index_forward, .no_grad = true,           \
        .activations = 1                                                                           \
    }

tutti_tensor *tutti_max_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti_op op = VALUE("max_dim");

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, 1});
}

tutti_tensor *tutti_min_dim(tutti_tensor *x, int dim, bool keepdim)
{
    static const tutti_op op = VALUE("min_dim");

    return tutti__reduction_run(&op, x, (tutti__reduction){TUTTI_DIMS(dim), keepdim, -1});
}

tutti_tensor *tutti_argmax(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = INDEX("argmax");

    return tutti_op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, 1}, sizeof(tutti__reduction));
}

tutti_tensor *tutti_argmin(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti_op op = INDEX("argmin");

    return tutti_op_run(&op, &x, 1, &(tutti__reduction){dims, keepdim, -1},
                        sizeof(tutti__reduction));
}
