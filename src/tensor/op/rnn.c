/* rnn.c -- plain recurrence: h = tanh(gx + gh), or max(gx + gh, 0).   SPDX-License-Identifier: MIT
 * Kept: h. */
#include "tensor/op/recurrent.h"

TUTTI__CELL_ON_HOST(rnn_tanh)
TUTTI__CELL_ON_HOST(rnn_tanh_gradient)
TUTTI__CELL_ON_HOST(rnn_relu)
TUTTI__CELL_ON_HOST(rnn_relu_gradient)

tutti_tensor *tutti_functional_rnn(tutti_tensor *x, const tutti_recurrent_args *args,
                                   tutti_tensor **h_n)
{
    static const tutti__recurrent_cell by_tanh = {.name = "rnn",
                                                  .gates = 1,
                                                  .kept = 1,
                                                  .forward = TUTTI__CELL_FUNCTION(rnn_tanh),
                                                  .backward =
                                                      TUTTI__CELL_FUNCTION(rnn_tanh_gradient)},
                                       by_relu = {.name = "rnn",
                                                  .gates = 1,
                                                  .kept = 1,
                                                  .forward = TUTTI__CELL_FUNCTION(rnn_relu),
                                                  .backward =
                                                      TUTTI__CELL_FUNCTION(rnn_relu_gradient)};

    return tutti__recurrent_run(args && args->relu ? &by_relu : &by_tanh, x, args, h_n, NULL);
}
