/* elu.c -- y = x where x > 0, else alpha (e^x - 1).   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_elu(tutti_tensor *x, float alpha)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("elu", elu, .activations = 1);

    return tutti__op_run(&op, &x, 1, &(tutti__constants){alpha, 0}, sizeof(tutti__constants));
}
