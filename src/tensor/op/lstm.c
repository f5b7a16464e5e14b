/* lstm.c -- long short-term memory.   SPDX-License-Identifier: MIT
 *   i, f, o = sigmoid(gx + gh), g = tanh(gx + gh), in the order i, f, g, o:  c = f c_prev + i g,  h = o tanh(c)
 * Kept: i, f, g, o, tanh(c), c. */
#include "tensor/op/recurrent.h"

TUTTI__CLONES static void lstm_cell_forward(const tutti__cell_step *s)
{
    const int64_t H = s->H;
    const float *restrict gx = s->gx, *restrict gh = s->gh, *restrict c_prev = s->c_prev;
    float *restrict kept = s->kept, *restrict h = s->h;

    for (int64_t k = 0; k < 2 * H; k++)
        kept[k] = tutti__gate(gx[k] + gh[k]);
    for (int64_t k = 2 * H; k < 3 * H; k++)
        kept[k] = tutti__squash(gx[k] + gh[k]);
    for (int64_t k = 3 * H; k < 4 * H; k++)
        kept[k] = tutti__gate(gx[k] + gh[k]);
    TUTTI__INDEPENDENT
    for (int64_t k = 0; k < H; k++) {
        const float c = kept[H + k] * c_prev[k] + kept[k] * kept[2 * H + k];

        kept[5 * H + k] = c;
        kept[4 * H + k] = tutti__squash(c);
        h[k] = kept[3 * H + k] * kept[4 * H + k];
    }
}

TUTTI__CLONES static void lstm_cell_backward(const tutti__cell_step *s)
{
    const int64_t H = s->H;
    const float *restrict i = s->kept, *restrict f = i + H, *restrict g = f + H,
                          *restrict o = g + H, *restrict tanh_c = o + H,
                          *restrict c_prev = s->c_prev, *restrict dh = s->dh;
    float *restrict dc = s->dc, *restrict d = s->dgx;

    TUTTI__INDEPENDENT
    for (int64_t k = 0; k < H; k++) {
        const float of_c = dc[k] + dh[k] * o[k] * (1 - tanh_c[k] * tanh_c[k]);

        d[k] = of_c * g[k] * i[k] * (1 - i[k]);
        d[H + k] = of_c * c_prev[k] * f[k] * (1 - f[k]);
        d[2 * H + k] = of_c * i[k] * (1 - g[k] * g[k]);
        d[3 * H + k] = dh[k] * tanh_c[k] * o[k] * (1 - o[k]);
        dc[k] = of_c * f[k];
    }
}

tutti_tensor *tutti_functional_lstm(tutti_tensor *x, const tutti_recurrent_args *args,
                                    tutti_tensor **h_n, tutti_tensor **c_n)
{
    static const tutti__recurrent_cell cell = {.name = "lstm",
                                               .gates = 4,
                                               .kept = 6,
                                               .has_c = true,
                                               .forward = lstm_cell_forward,
                                               .backward = lstm_cell_backward};

    return tutti__recurrent_run(&cell, x, args, h_n, c_n);
}
