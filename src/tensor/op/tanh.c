/* tanh.c -- y = tanh(x), the hyperbolic tangent.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_tanh(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("tanh", tanh, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
