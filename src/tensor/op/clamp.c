/* clamp.c -- y = min(max(x, low), high); also as hardtanh and relu6.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

#include <math.h>

typedef struct attributes {
    float low, high;
} attributes;

static tutti_status clamp_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    if (isnan(a->low) || isnan(a->high))
        return tutti__fail(TUTTI_ERR_ARG, "min is %g and max %g, expected numbers or INFINITY",
                           (double)a->low, (double)a->high);
    return tutti_op_broadcast(p, y, dtype);
}

static tutti_status hardtanh_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    if (!(a->low <= a->high))
        return tutti__fail(TUTTI_ERR_ARG, "min_val is %g, expected at most max_val, which is %g",
                           (double)a->low, (double)a->high);
    return tutti_op_broadcast(p, y, dtype);
}

tutti_tensor *tutti_clamp(tutti_tensor *x, float min, float max)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("clamp", clamp, .shape = clamp_shape, .activations = 1);
    const attributes a = {min, max};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_hardtanh(tutti_tensor *x, float min_val, float max_val)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("hardtanh", hardtanh, .shape = hardtanh_shape, .activations = 1);
    const attributes a = {min_val, max_val};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_relu6(tutti_tensor *x)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("relu6", relu6, .shape = hardtanh_shape, .activations = 1);
    const attributes a = {0, 6};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}
