/* rnn.c -- plain recurrence: h = tanh(gx + gh), or max(gx + gh, 0).   SPDX-License-Identifier: MIT
 * Kept: h. */
#include "tensor/op/recurrent.h"

TUTTI__CLONES static void tanh_forward(const tutti__cell_step *s)
{
    const float *restrict gx = s->gx, *restrict gh = s->gh;
    float *restrict kept = s->kept, *restrict h = s->h;

    for (int64_t k = 0; k < s->H; k++)
        h[k] = kept[k] = tutti__squash(gx[k] + gh[k]);
}

static void tanh_backward(const tutti__cell_step *s)
{
    for (int64_t k = 0; k < s->H; k++)
        s->dgx[k] = s->dh[k] * (1 - s->kept[k] * s->kept[k]);
}

static void relu_forward(const tutti__cell_step *s)
{
    for (int64_t k = 0; k < s->H; k++) {
        const float g = s->gx[k] + s->gh[k];

        s->h[k] = s->kept[k] = g < 0 ? 0 : g;
    }
}

static void relu_backward(const tutti__cell_step *s)
{
    for (int64_t k = 0; k < s->H; k++)
        s->dgx[k] = s->kept[k] > 0 ? s->dh[k] : 0;
}

tutti_tensor *tutti_functional_rnn(tutti_tensor *x, const tutti_recurrent_args *args,
                                   tutti_tensor **h_n)
{
    static const tutti__recurrent_cell by_tanh = {.name = "rnn",
                                                  .gates = 1,
                                                  .kept = 1,
                                                  .forward = tanh_forward,
                                                  .backward = tanh_backward},
                                       by_relu = {.name = "rnn",
                                                  .gates = 1,
                                                  .kept = 1,
                                                  .forward = relu_forward,
                                                  .backward = relu_backward};

    return tutti__recurrent_run(args && args->relu ? &by_relu : &by_tanh, x, args, h_n, NULL);
}
