/* recurrent.h -- recurrent layers: one layer and one direction over all steps, as one operation.   SPDX-License-Identifier: MIT
 *   gx = x W_ih^T + b_ih for all steps at once;  for each step:  gh = h W_hh^T + b_hh,  h = cell(gx, gh, h, c)
 * A cell is the arithmetic of a step (job/cells.h); the rest is recurrent.c: products, order of steps, backward through time. */
#ifndef TUTTI_TENSOR_OP_RECURRENT_H
#define TUTTI_TENSOR_OP_RECURRENT_H

#include "base/base.h"
#include "tensor/each.h"

#ifdef __clang__
#define TUTTI__INDEPENDENT
#else
#define TUTTI__INDEPENDENT _Pragma("GCC ivdep") /* parts of one array that do not overlap */
#endif

/* Of a cell `name` in jobs.def, for the host: all features of one sample, which is sample 0 of s. */
#define TUTTI__CELL_ON_HOST(name)                                                                  \
    TUTTI__CLONES static void name##_on_host(const tutti__job_cells *s)                            \
    {                                                                                              \
        const tutti__job_cells c = *s;                                                             \
                                                                                                   \
        TUTTI__INDEPENDENT                                                                         \
        for (int64_t k = 0; k < c.H; k++)                                                          \
            tutti__##name##_at(&c, 0, k);                                                          \
    }

/* A cell's forward or backward. */
typedef struct tutti__cell_function {
    void (*on_host)(const tutti__job_cells *s);
    tutti__job_kind job;
} tutti__cell_function;

#define TUTTI__CELL_FUNCTION(name)                                                                 \
    {                                                                                              \
        name##_on_host, TUTTI__JOB_##name                                                          \
    }

typedef struct tutti__recurrent_cell {
    const char *name;
    int gates;     /* rows of weights, in H */
    int kept;      /* floats kept of each step, in H */
    bool has_c;    /* a cell state, which the last H of `kept` are */
    bool separate; /* the gradients of gx and gh differ */
    tutti__cell_function forward, backward;
} tutti__recurrent_cell;

/* y, and *h_n_p and *c_n_p if not NULL. */
tutti_tensor *tutti__recurrent_run(const tutti__recurrent_cell *cell, tutti_tensor *x,
                                   const tutti_recurrent_args *args, tutti_tensor **h_n_p,
                                   tutti_tensor **c_n_p);

#endif
