/* gru.c -- gated recurrent units.   SPDX-License-Identifier: MIT
 *   r, z = sigmoid(gx + gh), n = tanh(gx_n + r gh_n), in the order r, z, n:  h = (1 - z) n + z h_prev
 * Kept: r, z, n, gh_n. */
#include "tensor/op/recurrent.h"

TUTTI__CLONES static void gru_cell_forward(const tutti__cell_step *s)
{
    const int64_t H = s->H;
    const float *restrict gx = s->gx, *restrict gh = s->gh, *restrict h_prev = s->h_prev;
    float *restrict kept = s->kept, *restrict h = s->h;

    for (int64_t k = 0; k < 2 * H; k++)
        kept[k] = tutti__gate(gx[k] + gh[k]);
    TUTTI__INDEPENDENT
    for (int64_t k = 0; k < H; k++) {
        const float z = kept[H + k], hidden = gh[2 * H + k];
        const float n = tutti__squash(gx[2 * H + k] + kept[k] * hidden);

        kept[2 * H + k] = n;
        kept[3 * H + k] = hidden;
        h[k] = (1 - z) * n + z * h_prev[k];
    }
}

TUTTI__CLONES static void gru_cell_backward(const tutti__cell_step *s)
{
    const int64_t H = s->H;
    const float *restrict r = s->kept, *restrict z = r + H, *restrict n = z + H,
                          *restrict hidden = n + H, *restrict h_prev = s->h_prev,
                          *restrict dh = s->dh;
    float *restrict dgx = s->dgx, *restrict dgh = s->dgh, *restrict dh_prev = s->dh_prev;

    TUTTI__INDEPENDENT
    for (int64_t k = 0; k < H; k++) {
        const float of_n = dh[k] * (1 - z[k]) * (1 - n[k] * n[k]);
        const float of_r = of_n * hidden[k] * r[k] * (1 - r[k]);
        const float of_z = dh[k] * (h_prev[k] - n[k]) * z[k] * (1 - z[k]);

        dgx[k] = dgh[k] = of_r;
        dgx[H + k] = dgh[H + k] = of_z;
        dgx[2 * H + k] = of_n;
        dgh[2 * H + k] = of_n * r[k];
        dh_prev[k] = dh[k] * z[k];
    }
}

tutti_tensor *tutti_functional_gru(tutti_tensor *x, const tutti_recurrent_args *args,
                                   tutti_tensor **h_n)
{
    static const tutti__recurrent_cell cell = {.name = "gru",
                                               .gates = 3,
                                               .kept = 4,
                                               .separate = true,
                                               .forward = gru_cell_forward,
                                               .backward = gru_cell_backward};

    return tutti__recurrent_run(&cell, x, args, h_n, NULL);
}
