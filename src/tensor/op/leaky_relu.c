/* leaky_relu.c -- y = x where x > 0, else slope * x.   SPDX-License-Identifier: MIT */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_leaky_relu(tutti_tensor *x, float negative_slope)
{
    static const tutti__op op = TUTTI__ELEMENTWISE("leaky_relu", leaky_relu, .activations = 1);

    return tutti__op_run(&op, &x, 1, &(tutti__constants){negative_slope, 0},
                         sizeof(tutti__constants));
}
