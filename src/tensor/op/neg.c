/* neg.c -- y = -x.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_neg(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("neg", neg, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
