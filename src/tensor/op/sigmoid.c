/* sigmoid.c -- y = 1 / (1 + exp(-x)).   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_sigmoid(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("sigmoid", sigmoid, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
