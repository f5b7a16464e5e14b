/* add_scalar.c -- y = x + value.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_add_scalar(tutti_tensor *x, float value)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("add_scalar", add_scalar, .activations = 1);

    return tutti__op_run(&op, &x, 1, &(tutti__constants){value, 0}, sizeof(tutti__constants));
}
