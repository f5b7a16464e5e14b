/* recurrent.h -- recurrent layers: one layer and one direction over all steps, as one operation.   SPDX-License-Identifier: MIT
 *   gx = x W_ih^T + b_ih for all steps at once;  for each step:  gh = h W_hh^T + b_hh,  h = cell(gx, gh, h, c)
 * A cell is the arithmetic of one sample's step; the rest is recurrent.c: products, order of steps, backward through time. */
#ifndef TUTTI_TENSOR_OP_RECURRENT_H
#define TUTTI_TENSOR_OP_RECURRENT_H

#include "base/base.h"
#include "base/real.h"
#include "tensor/op.h"

#ifdef __clang__
#define TUTTI__INDEPENDENT
#else
#define TUTTI__INDEPENDENT _Pragma("GCC ivdep") /* parts of one array that do not overlap */
#endif

/* One sample's step. */
typedef struct tutti__cell_step {
    int64_t H;
    const float *gx, *gh;         /* forward: [gates * H] */
    const float *h_prev, *c_prev; /* [H] */
    float *h;                     /* [H], written by forward */
    float *kept;                  /* [kept * H], written by forward, read by backward */
    const float *dh;              /* backward: of h */
    float *dc;                    /* of c on entry, of c_prev on return */
    float *dgx, *dgh;             /* of gx and gh; one memory unless the cell is `separate` */
    float *dh_prev;               /* of h_prev, without what goes through gh; 0 on entry */
} tutti__cell_step;

typedef struct tutti__recurrent_cell {
    const char *name;
    int gates;     /* rows of weights, in H */
    int kept;      /* floats kept of each step, in H */
    bool has_c;    /* a cell state, which the last H of `kept` are */
    bool separate; /* the gradients of gx and gh differ */
    void (*forward)(const tutti__cell_step *s);
    void (*backward)(const tutti__cell_step *s);
} tutti__recurrent_cell;

/* y, and *h_n_p and *c_n_p if not NULL. */
tutti_tensor *tutti__recurrent_run(const tutti__recurrent_cell *cell, tutti_tensor *x,
                                   const tutti_recurrent_args *args, tutti_tensor **h_n_p,
                                   tutti_tensor **c_n_p);

/* 1 / (1 + e^-x), and tanh x = 1 - 2 / (1 + e^2x): in double, the difference costs nothing that a float has. */
static inline float tutti__gate(float x)
{
    const double v = (double)x, near = v > 700 ? 700 : v < -700 ? -700 : v;

    return (float)(1 / (1 + tutti__exp_normal(-near)));
}

static inline float tutti__squash(float x)
{
    const double v = (double)x, near = v > 300 ? 300 : v < -300 ? -300 : v;

    return (float)(1 - 2 / (1 + tutti__exp_normal(2 * near)));
}

#endif
