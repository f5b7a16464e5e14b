/* silu.c -- y = x / (1 + exp(-x)), also named swish.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_silu(tutti_tensor *x)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("silu", silu, .activations = 1);

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
