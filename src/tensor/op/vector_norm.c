/* vector_norm.c -- (sum |x|^p)^(1/p) over dimensions; p = inf: the largest |x|, -inf: the smallest, 0: how many are not 0.
 * SPDX-License-Identifier: MIT
 * Gradient: sign(x) (|x| / y)^(p - 1), 0 where y or x is 0; of p = inf, -inf, equal ones share it. */
#include "tensor/op/reduction.h"

#include "tensor/op/formulas.h"

#include <math.h>

TUTTI__FOLD(fold_count, 0, t + (v != 0), t + u)
TUTTI__FOLD(fold_magnitudes, 0, t + fabs(v), t + u)
TUTTI__FOLD(fold_squares, 0, t + v * v, t + u)
TUTTI__FOLD(fold_powers, 0, t + tutti__magnitude_power(fabs(v), g), t + u)
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
            result[i] = tutti__magnitude_power(result[i], 1 / p);
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

TUTTI__SPREAD(nothing, false, false, false, 0)
TUTTI__SPREAD(signs, true, false, false, tutti__sign(x) * (double)dy)
TUTTI__SPREAD(shares, true, true, true,
              fabsf(x) == y ? tutti__sign(x) * (double)dy / (double)kept : 0)
TUTTI__SPREAD(of_squares, true, true, false, y == 0 ? 0 : (double)x * ((double)dy / (double)y))
TUTTI__SPREAD(of_powers, true, true, false,
              y == 0 || x == 0 ? 0
                               : tutti__sign(x) * (double)dy *
                                     tutti__magnitude_power(fabs((double)x) / (double)y, a))

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

/* ---- On a device ------------------------------------------------------------------------------ */

static tutti_status device_forward(const tutti_op_args *p)
{
    const double order = p_of(p);
    const tutti__fold_args a = {.kind = order == 0           ? TUTTI__FOLD_COUNT
                                        : order == 1         ? TUTTI__FOLD_MAGNITUDES
                                        : order == 2         ? TUTTI__FOLD_SQUARES
                                        : order == INFINITY  ? TUTTI__FOLD_LARGEST
                                        : order == -INFINITY ? TUTTI__FOLD_SMALLEST
                                                             : TUTTI__FOLD_POWERS,
                                .power = isfinite(order) && order != 2 ? order : 0,
                                .root = order == 2};

    return tutti__fold_on_device(p, a, p->y, TUTTI_F32);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__fold_args equal = {.kind = TUTTI__FOLD_EQUAL_SIZES, .given = p->y};
    const double order = p_of(p);

    if (isinf(order)) {
        TUTTI_TRY(tutti__fold_on_device(p, equal, p->kept, TUTTI_F32));
        return tutti__spread_on_device(p, TUTTI__FORMULA_spread_size_ties, 0, p->kept);
    }
    return tutti__spread_on_device(p,
                                   order == 0   ? TUTTI__FORMULA_spread_nothing
                                   : order == 1 ? TUTTI__FORMULA_spread_signs
                                   : order == 2 ? TUTTI__FORMULA_spread_over_norm
                                                : TUTTI__FORMULA_spread_powers,
                                   order - 1, NULL);
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
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, (double)p});
}
