/* abs.c -- y = |x|.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_abs(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("abs", abs, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
