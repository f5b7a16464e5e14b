/* log.c -- y = log x, the natural logarithm: -inf of 0, NaN of negative numbers.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_functional_log(tutti_tensor *x)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("log", log, .activations = 1, .autocast = TUTTI_OP_F32);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
