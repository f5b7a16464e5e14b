/* clamp.c -- y = min(max(x, low), high); also as hardtanh and relu6.   SPDX-License-Identifier: MIT
 * The gradient is 0 from the bounds on, as in PyTorch. */
#include "tensor/op.h"

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

static void forward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], low = a->low, high = a->high;

    for (int64_t i = 0; i < p->count; i++) {
        const float v = x[i] < low ? low : x[i]; /* NaN stays NaN */

        p->y[i] = v > high ? high : v;
    }
}

/* NaN gets none from clamp, but all of it from hardtanh. */
static void clamp_backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], low = a->low, high = a->high;

    for (int64_t i = 0; i < p->count; i++) {
        const float d = p->dy[i], below = x[i] < high ? d : 0;

        p->dsrc[0][i] = x[i] > low ? below : 0;
    }
}

static void hardtanh_backward(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const float *x = p->src[0], low = a->low, high = a->high;

    for (int64_t i = 0; i < p->count; i++) {
        const float d = p->dy[i], below = x[i] >= high ? 0 : d;

        p->dsrc[0][i] = x[i] <= low ? 0 : below;
    }
}

/* The same from y, whose bounds every dtype has: x need not be kept. */
static void relu6_backward(const tutti_op_args *p)
{
    const float *y = p->y;

    for (int64_t i = 0; i < p->count; i++) {
        const float d = p->dy[i], below = y[i] >= 6 ? 0 : d;

        p->dsrc[0][i] = y[i] <= 0 ? 0 : below;
    }
}

#define OP(called, shape_rule, gradient, reads)                                                    \
    {                                                                                              \
        .name = called, .shape = shape_rule, .forward = forward, .backward = gradient,             \
        .elementwise = true, .backward_reads = reads, .activations = 1                             \
    }

tutti_tensor *tutti_clamp(tutti_tensor *x, float min, float max)
{
    static const tutti_op op = OP("clamp", clamp_shape, clamp_backward, 1 << 0);
    const attributes a = {min, max};

    return tutti_op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_hardtanh(tutti_tensor *x, float min_val, float max_val)
{
    static const tutti_op op = OP("hardtanh", hardtanh_shape, hardtanh_backward, 1 << 0);
    const attributes a = {min_val, max_val};

    return tutti_op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_relu6(tutti_tensor *x)
{
    static const tutti_op op = OP("relu6", hardtanh_shape, relu6_backward, TUTTI_OP_RESULT);
    const attributes a = {0, 6};

    return tutti_op_run(&op, &x, 1, &a, sizeof a);
}
