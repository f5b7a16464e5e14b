/* softplus.c -- y = log(1 + exp(beta x)) / beta, but x where beta x > threshold; and logsigmoid: y = -log(1 + exp(-x)).
 * SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

typedef struct attributes {
    float beta, threshold;
} attributes;

static tutti_status softplus_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    if (!(a->beta < 0 || a->beta > 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "beta is %g, expected a number other than 0 (PyTorch's default is 1)",
                           (double)a->beta);
    return tutti_op_broadcast(p, y, dtype);
}

tutti_tensor *tutti_softplus(tutti_tensor *x, float beta, float threshold)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("softplus", softplus, .shape = softplus_shape,
                                                   .activations = 1, .autocast = TUTTI_OP_F32);
    const attributes a = {beta, threshold};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_logsigmoid(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("logsigmoid", logsigmoid, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
