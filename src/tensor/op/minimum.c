/* minimum.c -- y = the lesser of a and b, and maximum: the greater; NaN if one is.   SPDX-License-Identifier: MIT
 * Where they are equal, each gets half of the gradient. */
#include "tensor/op/elementwise.h"

tutti_tensor *tutti_minimum(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("minimum", minimum, .activations = 3, .autocast = TUTTI_OP_WIDEST);

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}

tutti_tensor *tutti_maximum(tutti_tensor *a, tutti_tensor *b)
{
    static const tutti__op op =
        TUTTI__ELEMENTWISE("maximum", maximum, .activations = 3, .autocast = TUTTI_OP_WIDEST);

    return tutti__op_run(&op, (tutti_tensor *[]){a, b}, 2, NULL, 0);
}
