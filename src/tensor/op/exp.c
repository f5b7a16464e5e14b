/* exp.c -- y = e^x.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_exp(tutti_tensor *x)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("exp", exp, .activations = 1, .autocast = TUTTI_OP_F32);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
