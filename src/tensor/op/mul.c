/* mul.c -- y = a * b, element by element.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_mul(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("mul", mul, .activations = 3, .autocast = TUTTI_OP_WIDEST);

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
