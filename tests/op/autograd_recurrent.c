/* Recurrent layers.   SPDX-License-Identifier: MIT
 * timeout: 120   devices: strict cuda */
#include <tutti/tensor.h>

/* Result and last states, behind each other as steps. */
static tutti_tensor *with_states(tutti_tensor *y, tutti_tensor *h_n, tutti_tensor *c_n,
                                 bool batch_first)
{
    tutti_tensor *all[3] = {batch_first ? tutti_transpose(y, 0, 1) : y, h_n, c_n};

    for (int i = 1; i < 3 && all[i]; i++)
        all[i] = tutti_reshape(all[i], TUTTI_SHAPE(1, -1, tutti_tensor_shape(y).d[2]));
    return tutti_cat(all, c_n ? 3 : 2, 0);
}

static tutti_tensor *lstm(tutti_tensor *x, const tutti_recurrent_args *args)
{
    tutti_tensor *h_n, *c_n, *y = tutti_functional_lstm(x, args, &h_n, &c_n);

    return with_states(y, h_n, c_n, args->batch_first);
}

static tutti_tensor *gru(tutti_tensor *x, const tutti_recurrent_args *args)
{
    tutti_tensor *h_n, *y = tutti_functional_gru(x, args, &h_n);

    return with_states(y, h_n, NULL, args->batch_first);
}

static tutti_tensor *rnn(tutti_tensor *x, const tutti_recurrent_args *args)
{
    tutti_tensor *h_n, *y = tutti_functional_rnn(x, args, &h_n);

    return with_states(y, h_n, NULL, args->batch_first);
}

#define CASES "op/cases_recurrent.def"
#include "op/cases.h"
