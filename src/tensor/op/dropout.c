/* dropout.c -- zeroes elements at random; the identity in eval steps.
 * SPDX-License-Identifier: MIT
 * The mask is a function of seed, step, shard, call and element, so backward computes it again
 * instead of keeping it. */
#include "tensor/op.h"

typedef struct attributes {
    float p;
    uint32_t call;
} attributes;

static tutti_status dropout_shape(const tutti__node *n, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = n->attributes;

    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "x", NULL, TUTTI_F32));
    if (!(a->p >= 0 && a->p <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "p is %g, expected a probability from 0 to 1",
                           (double)a->p);
    *y = n->src[0]->shape;
    return TUTTI_OK;
}

static tutti_status dropout_forward(tutti__node *n)
{
    const attributes *a = n->attributes;

    return n->dst->cx->kernels->dropout(n->dst, n->src[0], a->p, a->call);
}

static tutti_status dropout_backward(tutti__node *n)
{
    const attributes *a = n->attributes;
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->dropout(dx, n->dst->grad, a->p, a->call);
}

tutti_tensor *tutti_dropout(tutti_tensor *x, float p)
{
    static const tutti__op op = {.name = "dropout",
                                 .shape = dropout_shape,
                                 .forward = dropout_forward,
                                 .backward = dropout_backward,
                                 .activations = 1};
    const attributes a = {p, x && !x->cx->eval ? x->cx->dropout_calls++ : 0};

    if (x && x->cx->eval && p >= 0 && p <= 1)
        return x;
    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}
