/* hardswish.c -- y = x relu6(x + 3) / 6, and hardsigmoid: y = relu6(x + 3) / 6.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_hardswish(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("hardswish", hardswish, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}

tutti_tensor *tutti_hardsigmoid(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("hardsigmoid", hardsigmoid, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
