/* minimum.c -- y = the lesser of a and b, and maximum: the greater; NaN if one is.   SPDX-License-Identifier: MIT
 * Where they are equal, each gets half of the gradient. */
#include "tensor/op.h"

static void minimum_forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++) {
        const float least = a[i] < b[i] ? a[i] : b[i];

        p->y[i] = a[i] != a[i] ? a[i] : least;
    }
}

static void maximum_forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++) {
        const float greatest = a[i] > b[i] ? a[i] : b[i];

        p->y[i] = a[i] != a[i] ? a[i] : greatest;
    }
}

/* dx = dy where x < other, half of it where they are equal; of NaN, all of it. */
static void gradient_of_lesser(float *dx, const float *x, const float *other, const float *dy,
                               int64_t n)
{
    for (int64_t i = 0; dx && i < n; i++) {
        const float d = dy[i], share = x[i] == other[i] ? d / 2 : d;

        dx[i] = x[i] > other[i] ? 0 : share;
    }
}

static void minimum_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++)
        gradient_of_lesser(p->dsrc[k], p->src[k], p->src[1 - k], p->dy, p->count);
}

static void gradient_of_greater(float *dx, const float *x, const float *other, const float *dy,
                                int64_t n)
{
    for (int64_t i = 0; dx && i < n; i++) {
        const float d = dy[i], share = x[i] == other[i] ? d / 2 : d;

        dx[i] = x[i] < other[i] ? 0 : share;
    }
}

static void maximum_backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++)
        gradient_of_greater(p->dsrc[k], p->src[k], p->src[1 - k], p->dy, p->count);
}

tutti_tensor *tutti_minimum(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti_op op = {.name = "minimum",
                                .forward = minimum_forward,
                                .backward = minimum_backward,
                                .elementwise = true,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_WIDEST};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}

tutti_tensor *tutti_maximum(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti_op op = {.name = "maximum",
                                .forward = maximum_forward,
                                .backward = maximum_backward,
                                .elementwise = true,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_WIDEST};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
