/* sqrt.c -- y = sqrt(x), and rsqrt: y = 1 / sqrt(x).   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_sqrt(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("sqrt", sqrt, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}

tutti_tensor *tutti_rsqrt(tutti_tensor *x)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("rsqrt", rsqrt, .activations = 1, .autocast = TUTTI_OP_F32);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
