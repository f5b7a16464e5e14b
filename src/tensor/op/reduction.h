/* reduction.h -- reductions over some of the dimensions.   SPDX-License-Identifier: MIT
 *
 * x is seen as [outer, n, inner], of which n are reduced; if the reduced dimensions do not lie side by side, x is permuted first, by
 * an operation of its own. A slice is one row (inner is 1), or up to TUTTI__COLUMNS neighbours along inner, which are reduced
 * together. Everything is summed in double, in lanes and segments that depend on shapes only: the same bits with any number of
 * threads and any width of vectors. */
#ifndef TUTTI_TENSOR_OP_REDUCTION_H
#define TUTTI_TENSOR_OP_REDUCTION_H

#include "base/base.h"
#include "tensor/move.h"
#include "tensor/op.h"

#define TUTTI__COLUMNS    256
#define TUTTI__FOLD_LANES 32 /* more than gcc unrolls before it vectorises */

/* The attributes of a reduction. */
typedef struct tutti__reduction {
    tutti_dims dims; /* none: all */
    bool keepdim;
    double parameter; /* a correction, the p of a norm */
} tutti__reduction;

typedef struct tutti__extent {
    int64_t outer, n, inner;
} tutti__extent;

/* ---- Shape ----------------------------------------------------------------------------------- */

/* The shape rule: of any x; and of reductions that have no value for no elements. */
tutti_status tutti__reduction_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype);
tutti_status tutti__reduction_shape_some(const tutti_op_args *p, tutti_shape *y,
                                         tutti_dtype *dtype);
/* Of source 0, in forward and backward. */
tutti__extent tutti__extent_of(const tutti_op_args *p);
/* The same for one dimension of a shape; -1 is the last. A scalar has one element in any. */
tutti__extent tutti__extent_of_dim(tutti_shape shape, int dim);
/* Runs op, whose shape is one of the above, on x. */
tutti_tensor *tutti__reduction_run(const tutti__op *op, tutti_tensor *x,
                                   tutti__reduction reduction);

/* ---- By kernels ------------------------------------------------------------------------------ */

/* Whether n is computed by these: in forward of a fold, whose outer, n, inner are set here, into *y_p or, if NULL, the result;
 * in backward dx = the formula of x, y, dy and kept (NULL: not read), k0 being its constant. */
bool tutti__can_fold(const tutti__node *n);
tutti_status tutti__fold_by_kernel(tutti__node *n, tutti__fold_args a, float *y);
tutti_status tutti__spread_by_kernel(tutti__node *n, tutti__formula formula, double k0,
                                     float *kept);

/* The same for tutti__op's functions on a device: source 0 folded into `to` [outer][inner], F32 or I64; and dx by a formula of x, y,
 * dy and kept (NULL: not read). */
tutti_status tutti__fold_on_device(const tutti_op_args *p, tutti__fold_args a, void *to,
                                   tutti_dtype dtype);
tutti_status tutti__spread_on_device(const tutti_op_args *p, tutti__formula formula, double k0,
                                     const float *kept);

/* ---- Forward --------------------------------------------------------------------------------- */

typedef struct tutti__slice {
    const tutti_op_args *p;
    const float *x; /* its first element; the next one of each column is `stride` further */
    int64_t n, stride;
    int64_t columns;
    int64_t at; /* index of its first result */
} tutti__slice;

/* Computes the slice's results, result[columns]. */
typedef void tutti__slice_function(const tutti__slice *s, double *result);
/* Writes all of p->y. */
void tutti__reduce_slices(const tutti_op_args *p, tutti__slice_function *function);

/* One pass over a slice: total = step(total, element), in any order. */
typedef struct tutti__fold {
    double start;
    double (*row)(const float *x, int64_t n, double given);
    void (*columns)(double *total, const float *x, int64_t n, int64_t stride, int64_t columns,
                    const double *given);
    double (*join)(double t, double u);
} tutti__fold;

/* total[columns]; given: a number for each column, which the step may use; NULL: 0. */
void tutti__fold_slice(const tutti__slice *s, const tutti__fold *fold, const double *given,
                       double *total);

/* Defines the fold `name`. step: an expression of the total t, the element v and the given number g, in double; joined: of two
 * totals t and u. */
#define TUTTI__FOLD(name, first, step, joined)                                                     \
    static inline double name##_step(double t, double v, double g)                                 \
    {                                                                                              \
        (void)g;                                                                                   \
        return step;                                                                               \
    }                                                                                              \
    static double name##_join(double t, double u)                                                  \
    {                                                                                              \
        return joined;                                                                             \
    }                                                                                              \
    TUTTI__CLONES static double name##_row(const float *x, int64_t n, double g)                    \
    {                                                                                              \
        double lane[TUTTI__FOLD_LANES], t = first;                                                 \
        int64_t i = 0;                                                                             \
                                                                                                   \
        if (n >= TUTTI__FOLD_LANES) {                                                              \
            for (int k = 0; k < TUTTI__FOLD_LANES; k++)                                            \
                lane[k] = first;                                                                   \
            for (; i + TUTTI__FOLD_LANES <= n; i += TUTTI__FOLD_LANES)                             \
                for (int k = 0; k < TUTTI__FOLD_LANES; k++)                                        \
                    lane[k] = name##_step(lane[k], (double)x[i + k], g);                           \
            for (int k = 0; k < TUTTI__FOLD_LANES; k++)                                            \
                t = name##_join(t, lane[k]);                                                       \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            t = name##_step(t, (double)x[i], g);                                                   \
        return t;                                                                                  \
    }                                                                                              \
    TUTTI__CLONES static void name##_columns(double *restrict total, const float *restrict x,      \
                                             int64_t n, int64_t stride, int64_t columns,           \
                                             const double *restrict given)                         \
    {                                                                                              \
        for (int64_t k = 0; k < n; k++, x += stride)                                               \
            for (int64_t i = 0; i < columns; i++)                                                  \
                total[i] = name##_step(total[i], (double)x[i], given[i]);                          \
    }                                                                                              \
    static const tutti__fold name = {first, name##_row, name##_columns, name##_join};

/* The sum; the largest and the smallest element, NaN if there is one. */
void tutti__sum_slice(const tutti__slice *s, double *result);
void tutti__max_slice(const tutti__slice *s, double *result);
void tutti__min_slice(const tutti__slice *s, double *result);

/* ---- Backward -------------------------------------------------------------------------------- */

/* Elements of x that lie side by side, and where their results are: one for each (wide), or one for all. */
typedef struct tutti__run {
    float *dx;
    const float *x, *y, *dy, *kept; /* NULL: not there */
    int64_t n;
    bool wide;
    double a; /* a number for all */
} tutti__run;

/* Writes all of p->dsrc[0]; kept, if there is, begins with a float for each result. */
void tutti__spread(const tutti_op_args *p, void (*function)(const tutti__run *r), double a);

/* Defines such a function: dx = an expression of x, y, dy, kept (float; those not read may be absent: see `reads`), and a. */
#define TUTTI__SPREAD(name, reads_x, reads_y, reads_kept, expression)                              \
    static inline float name##_of(float x, float y, float dy, float kept, double a)                \
    {                                                                                              \
        (void)x, (void)y, (void)dy, (void)kept, (void)a;                                           \
        return (float)(expression);                                                                \
    }                                                                                              \
    TUTTI__CLONES static void name(const tutti__run *r)                                            \
    {                                                                                              \
        const float *x = r->x, *y = r->y, *dy = r->dy, *kept = r->kept;                            \
        float *restrict dx = r->dx;                                                                \
        const float y0 = reads_y ? y[0] : 0, dy0 = dy[0], kept0 = reads_kept ? kept[0] : 0;        \
        const double a = r->a;                                                                     \
                                                                                                   \
        if (r->wide)                                                                               \
            for (int64_t i = 0; i < r->n; i++)                                                     \
                dx[i] = name##_of(reads_x ? x[i] : 0, reads_y ? y[i] : 0, dy[i],                   \
                                  reads_kept ? kept[i] : 0, a);                                    \
        else                                                                                       \
            for (int64_t i = 0; i < r->n; i++)                                                     \
                dx[i] = name##_of(reads_x ? x[i] : 0, y0, dy0, kept0, a);                          \
    }

/* In backward: kept[i] = how many elements of x have the magnitude (or value) of y[i]. */
void tutti__count_ties(const tutti_op_args *p, bool magnitudes);
/* A float for each result. */
int64_t tutti__keeps_one(const tutti_op_args *p);

#endif
