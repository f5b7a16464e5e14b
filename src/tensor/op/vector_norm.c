/* vector_norm.c -- (sum |x|^p)^(1/p) over dimensions; p = inf: the largest |x|, -inf: the smallest, 0: how many are not 0.
 * SPDX-License-Identifier: MIT
 * Gradient: sign(x) (|x| / y)^(p - 1), 0 where y or x is 0; of p = inf, -inf, equal ones share it. */
#include "tensor/op/reduction.h"

#include "base/real.h"

#include <math.h>

/* x^p for x >= 0 and p != 0, without branches; x is no subnormal */
static inline double power_of(double x, double p)
{
    const double e = p * tutti__log_normal(x), near = e < -708 ? -708 : e > 709 ? 709 : e;
    const double y = e > 709 ? INFINITY : e < -708 ? 0 : tutti__exp_normal(near);
    const double zero = p > 0 ? 0 : INFINITY, infinite = p > 0 ? INFINITY : 0;

    return x == 0 ? zero : x == INFINITY ? infinite : x != x ? x : y;
}

TUTTI__FOLD(fold_count, 0, t + (v != 0), t + u)
TUTTI__FOLD(fold_magnitudes, 0, t + fabs(v), t + u)
TUTTI__FOLD(fold_squares, 0, t + v * v, t + u)
TUTTI__FOLD(fold_powers, 0, t + power_of(fabs(v), g), t + u)
TUTTI__FOLD(fold_largest, 0, t != t ? t : fabs(v) <= t ? t : fabs(v), t != t ? t : u <= t ? t : u)
TUTTI__FOLD(fold_smallest, INFINITY,
            t != t         ? t
            : fabs(v) >= t ? t
                           : fabs(v),
            t != t   ? t
            : u >= t ? t
                     : u)

static double p_of(const tutti_op_args *p)
{
    return ((const tutti__reduction *)p->attributes)->parameter;
}

static const tutti__fold *fold_of(double p)
{
    return p == 0           ? &fold_count
           : p == 1         ? &fold_magnitudes
           : p == 2         ? &fold_squares
           : p == INFINITY  ? &fold_largest
           : p == -INFINITY ? &fold_smallest
                            : &fold_powers;
}

static void slice(const tutti__slice *s, double *result)
{
    const double p = p_of(s->p);
    double given[TUTTI__COLUMNS];

    for (int64_t i = 0; i < s->columns; i++)
        given[i] = p;
    tutti__fold_slice(s, fold_of(p), given, result);
    for (int64_t i = 0; i < s->columns; i++) {
        if (p == 2)
            result[i] = sqrt(result[i]);
        else if (fold_of(p) == &fold_powers)
            result[i] = power_of(result[i], 1 / p);
    }
}

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const double order = p_of(p);

    if (order != order)
        return tutti__fail(TUTTI_ERR_ARG, "p is NaN, expected a number or an infinity");
    return (order < 0 || order == INFINITY ? tutti__reduction_shape_some
                                           : tutti__reduction_shape)(p, y, dtype);
}

static void forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, slice);
}

static inline double sign_of(float x)
{
    return (double)(x > 0) - (double)(x < 0);
}

TUTTI__SPREAD(nothing, false, false, false, 0)
TUTTI__SPREAD(signs, true, false, false, sign_of(x) * (double)dy)
TUTTI__SPREAD(shares, true, true, true, fabsf(x) == y ? sign_of(x) * (double)dy / (double)kept : 0)
TUTTI__SPREAD(of_squares, true, true, false, y == 0 ? 0 : (double)x * ((double)dy / (double)y))
TUTTI__SPREAD(of_powers, true, true, false,
              y == 0 || x == 0 ? 0
                               : sign_of(x) * (double)dy * power_of(fabs((double)x) / (double)y, a))

static void backward(const tutti_op_args *p)
{
    const double order = p_of(p);

    if (fold_of(order) == &fold_largest || fold_of(order) == &fold_smallest) {
        tutti__count_ties(p, true);
        tutti__spread(p, shares, 0);
        return;
    }
    tutti__spread(p,
                  order == 0   ? nothing
                  : order == 1 ? signs
                  : order == 2 ? of_squares
                               : of_powers,
                  order - 1);
}

tutti_tensor *tutti_vector_norm(tutti_tensor *x, float p, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "vector_norm",
                                           .shape = shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .keeps = tutti__keeps_one,
                                           .backward_reads = 1 << 0 | TUTTI_OP_RESULT,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32}};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, (double)p});
}
