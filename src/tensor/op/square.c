/* square.c -- y = x^2.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

/* In PyTorch it is x ** 2, which autocast computes in F32. */
tutti_tensor *tutti_square(tutti_tensor *x)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("square", square, .activations = 1, .autocast = TUTTI_OP_F32);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
