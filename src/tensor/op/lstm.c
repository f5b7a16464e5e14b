/* lstm.c -- long short-term memory.   SPDX-License-Identifier: MIT
 *   i, f, o = sigmoid(gx + gh), g = tanh(gx + gh), in the order i, f, g, o:  c = f c_prev + i g,  h = o tanh(c)
 * Kept: i, f, g, o, tanh(c), c. */
#include "tensor/op/recurrent.h"

TUTTI__CELL_ON_HOST(lstm)
TUTTI__CELL_ON_HOST(lstm_gradient)

tutti_tensor *tutti_functional_lstm(tutti_tensor *x, const tutti_recurrent_args *args,
                                    tutti_tensor **h_n, tutti_tensor **c_n)
{
    static const tutti__recurrent_cell cell = {.name = "lstm",
                                               .gates = 4,
                                               .kept = 6,
                                               .has_c = true,
                                               .forward = TUTTI__CELL_FUNCTION(lstm),
                                               .backward = TUTTI__CELL_FUNCTION(lstm_gradient)};

    return tutti__recurrent_run(&cell, x, args, h_n, c_n);
}
