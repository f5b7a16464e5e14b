/* gru.c -- gated recurrent units.   SPDX-License-Identifier: MIT
 *   r, z = sigmoid(gx + gh), n = tanh(gx_n + r gh_n), in the order r, z, n:  h = (1 - z) n + z h_prev
 * Kept: r, z, n, gh_n. */
#include "tensor/op/recurrent.h"

TUTTI__CELL_ON_HOST(gru)
TUTTI__CELL_ON_HOST(gru_gradient)

tutti_tensor *tutti_functional_gru(tutti_tensor *x, const tutti_recurrent_args *args,
                                   tutti_tensor **h_n)
{
    static const tutti__recurrent_cell cell = {.name = "gru",
                                               .gates = 3,
                                               .kept = 4,
                                               .separate = true,
                                               .forward = TUTTI__CELL_FUNCTION(gru),
                                               .backward = TUTTI__CELL_FUNCTION(gru_gradient)};

    return tutti__recurrent_run(&cell, x, args, h_n, NULL);
}
