/* cells.h -- a step of recurrent layers (op/recurrent.h): feature k of a sample.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_JOB_CELLS_H
#define TUTTI_TENSOR_JOB_CELLS_H

#include "base/real.h"

/* A step of N samples. Rows follow each other, those of c_prev c_apart floats apart. */
typedef struct tutti__job_cells {
    int64_t H, gates, kept_size, c_apart; /* in a row: gates * H, kept_size * H */
    const float *gx, *gh;                 /* forward: [gates * H] */
    const float *h_prev, *c_prev;         /* [H] */
    float *h;                             /* [H], written by forward */
    float *kept;               /* [kept_size * H], written by forward, read by backward */
    const float *dy;           /* backward: of h, as result */
    const float *dh, *through; /* by the step after it: dh_prev, and what goes through its gh */
    float *dc;                 /* of c on entry, of c_prev on return */
    float *dgx, *dgh;          /* of gx and gh; one memory where they are equal */
    float *dh_prev;            /* of h_prev, without what goes through gh; may be dh */
} tutti__job_cells;

/* 1 / (1 + e^-x), and tanh x = 1 - 2 / (1 + e^2x): in double, the difference costs nothing that a float has. */
TUTTI__FORMULA float tutti__gate(float x)
{
    const double v = (double)x, near = v > 700 ? 700 : v < -700 ? -700 : v;

    return (float)(1 / (1 + tutti__exp_normal(-near)));
}

TUTTI__FORMULA float tutti__squash(float x)
{
    const double v = (double)x, near = v > 300 ? 300 : v < -300 ? -300 : v;

    return (float)(1 - 2 / (1 + tutti__exp_normal(2 * near)));
}

/* Where feature k of sample n is in arrays of one and of several parts. */
typedef struct tutti__cell_at {
    int64_t one, gates, kept, c_prev;
} tutti__cell_at;

TUTTI__FORMULA tutti__cell_at tutti__cell_of(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const tutti__cell_at at = {n * s->H + k, n * s->gates * s->H + k, n * s->kept_size * s->H + k,
                               n * s->c_apart + k};

    return at;
}

/* The gradient of h. */
TUTTI__FORMULA float tutti__cell_dh(const tutti__job_cells *s, int64_t i)
{
    return s->dy[i] + (s->dh[i] + s->through[i]);
}

TUTTI__FORMULA void tutti__lstm_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const tutti__cell_at at = tutti__cell_of(s, n, k);
    const int64_t H = s->H;
    const float *gx = s->gx + at.gates, *gh = s->gh + at.gates;
    float *kept = s->kept + at.kept;
    const float i = tutti__gate(gx[0] + gh[0]), f = tutti__gate(gx[H] + gh[H]);
    const float g = tutti__squash(gx[2 * H] + gh[2 * H]), o = tutti__gate(gx[3 * H] + gh[3 * H]);
    const float c = f * s->c_prev[at.c_prev] + i * g, tanh_c = tutti__squash(c);

    kept[0] = i;
    kept[H] = f;
    kept[2 * H] = g;
    kept[3 * H] = o;
    kept[4 * H] = tanh_c;
    kept[5 * H] = c;
    s->h[at.one] = o * tanh_c;
}

TUTTI__FORMULA void tutti__lstm_gradient_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const tutti__cell_at at = tutti__cell_of(s, n, k);
    const int64_t H = s->H;
    const float *kept = s->kept + at.kept;
    const float i = kept[0], f = kept[H], g = kept[2 * H], o = kept[3 * H], tanh_c = kept[4 * H];
    const float dh = tutti__cell_dh(s, at.one), c_prev = s->c_prev[at.c_prev];
    const float of_c = s->dc[at.one] + dh * o * (1 - tanh_c * tanh_c);
    float *d = s->dgx + at.gates;

    d[0] = of_c * g * i * (1 - i);
    d[H] = of_c * c_prev * f * (1 - f);
    d[2 * H] = of_c * i * (1 - g * g);
    d[3 * H] = dh * tanh_c * o * (1 - o);
    s->dc[at.one] = of_c * f;
    s->dh_prev[at.one] = 0;
}

TUTTI__FORMULA void tutti__gru_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const tutti__cell_at at = tutti__cell_of(s, n, k);
    const int64_t H = s->H;
    const float *gx = s->gx + at.gates, *gh = s->gh + at.gates;
    float *kept = s->kept + at.kept;
    const float r = tutti__gate(gx[0] + gh[0]), z = tutti__gate(gx[H] + gh[H]);
    const float m = tutti__squash(gx[2 * H] + r * gh[2 * H]);

    kept[0] = r;
    kept[H] = z;
    kept[2 * H] = m;
    kept[3 * H] = gh[2 * H];
    s->h[at.one] = (1 - z) * m + z * s->h_prev[at.one];
}

TUTTI__FORMULA void tutti__gru_gradient_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const tutti__cell_at at = tutti__cell_of(s, n, k);
    const int64_t H = s->H;
    const float *kept = s->kept + at.kept;
    const float r = kept[0], z = kept[H], m = kept[2 * H], hidden = kept[3 * H];
    const float dh = tutti__cell_dh(s, at.one);
    const float of_n = dh * (1 - z) * (1 - m * m), of_r = of_n * hidden * r * (1 - r);
    const float of_z = dh * (s->h_prev[at.one] - m) * z * (1 - z);
    float *dgx = s->dgx + at.gates, *dgh = s->dgh + at.gates;

    dgx[0] = dgh[0] = of_r;
    dgx[H] = dgh[H] = of_z;
    dgx[2 * H] = of_n;
    dgh[2 * H] = of_n * r;
    s->dh_prev[at.one] = dh * z;
}

TUTTI__FORMULA void tutti__rnn_tanh_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const int64_t i = n * s->H + k;

    s->h[i] = s->kept[i] = tutti__squash(s->gx[i] + s->gh[i]);
}

TUTTI__FORMULA void tutti__rnn_tanh_gradient_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const int64_t i = n * s->H + k;

    s->dgx[i] = tutti__cell_dh(s, i) * (1 - s->kept[i] * s->kept[i]);
    s->dh_prev[i] = 0;
}

TUTTI__FORMULA void tutti__rnn_relu_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const int64_t i = n * s->H + k;
    const float g = s->gx[i] + s->gh[i];

    s->h[i] = s->kept[i] = g < 0 ? 0 : g;
}

TUTTI__FORMULA void tutti__rnn_relu_gradient_at(const tutti__job_cells *s, int64_t n, int64_t k)
{
    const int64_t i = n * s->H + k;

    s->dgx[i] = s->kept[i] > 0 ? tutti__cell_dh(s, i) : 0;
    s->dh_prev[i] = 0;
}

/* Feature i % H of sample i / H. */
#define TUTTI__CELL(name)                                                                          \
    TUTTI__FORMULA void tutti__do_##name(const tutti__job_cells *s, int64_t i)                     \
    {                                                                                              \
        tutti__##name##_at(s, i / s->H, i % s->H);                                                 \
    }
TUTTI__CELL(lstm)
TUTTI__CELL(lstm_gradient)
TUTTI__CELL(gru)
TUTTI__CELL(gru_gradient)
TUTTI__CELL(rnn_tanh)
TUTTI__CELL(rnn_tanh_gradient)
TUTTI__CELL(rnn_relu)
TUTTI__CELL(rnn_relu_gradient)
#undef TUTTI__CELL

#endif
