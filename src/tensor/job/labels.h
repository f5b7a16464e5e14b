/* labels.h -- losses of labels (op/nll_loss.c, op/cross_entropy.c): x [N][C][S], positions [N][S].   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_JOB_LABELS_H
#define TUTTI_TENSOR_JOB_LABELS_H

#include "base/real_f32.h"

#include <stdbool.h>

typedef struct tutti__job_labels {
    int64_t C, S, ignored;
    bool each; /* a loss for each row; else their sum, over `total` */
    const float *x, *weight;
    const int64_t *label;    /* [N * S] */
    float *loss, *weight_of; /* of each row; weight_of NULL: not wanted */
    const float *dy, *total; /* total NULL: 1 */
    float *dx;
    /* cross entropy */
    const float *target; /* probabilities, instead of labels; else NULL */
    float smoothing;
    float *log_p, *dtarget;
    double divisor; /* of the sum, if total is NULL */
} tutti__job_labels;

TUTTI__FORMULA void tutti__do_label_losses(const tutti__job_labels *c, int64_t i)
{
    const int64_t label = c->label[i], at = i / c->S * c->C * c->S + i % c->S;
    const bool counts = label != c->ignored;
    const float weight = !counts ? 0 : c->weight ? c->weight[label] : 1;

    c->loss[i] = counts ? -c->x[at + label * c->S] * weight : 0;
    if (c->weight_of)
        c->weight_of[i] = weight;
}

/* Of element i of x. */
TUTTI__FORMULA void tutti__do_label_gradient(const tutti__job_labels *c, int64_t i)
{
    const int64_t class_ = i / c->S % c->C, row = i / (c->C * c->S) * c->S + i % c->S;
    const int64_t label = c->label[row];
    const double dy = (double)c->dy[c->each ? row : 0] / (c->total ? (double)c->total[0] : 1);

    c->dx[i] = label == class_ && label != c->ignored
                   ? (float)(-dy * (c->weight ? (double)c->weight[label] : 1))
                   : 0;
}

/* ---- Cross entropy --------------------------------------------------------------------------------------- */

/* w q' of class k at position i, whose first element is `at`. */
TUTTI__FORMULA double tutti__label_wanted(const tutti__job_labels *c, int64_t i, int64_t k,
                                          int64_t at)
{
    const double q = c->target ? (double)c->target[at + k * c->S] : c->label[i] == k;

    return (c->weight ? (double)c->weight[k] : 1) *
           ((1 - (double)c->smoothing) * q + (double)c->smoothing / (double)c->C);
}

TUTTI__FORMULA void tutti__do_entropy(const tutti__job_labels *c, int64_t i)
{
    const int64_t at = i / c->S * c->C * c->S + i % c->S;
    const bool counts = c->target || c->label[i] != c->ignored;
    float largest = c->x[at];
    double sum = 0, loss = 0;

    for (int64_t k = 1; k < c->C; k++)
        largest = c->x[at + k * c->S] > largest ? c->x[at + k * c->S] : largest;
    for (int64_t k = 0; k < c->C; k++)
        sum += (double)tutti__exp_f32(c->x[at + k * c->S] - largest);
    sum = (double)largest + tutti__log_normal(sum);
    for (int64_t k = 0; k < c->C; k++) {
        const float log_p = (float)((double)c->x[at + k * c->S] - sum);
        const double wanted = tutti__label_wanted(c, i, k, at);

        c->log_p[at + k * c->S] = log_p;
        loss -= wanted != 0 ? wanted * (double)log_p : 0;
    }
    c->loss[i] = counts ? (float)loss : 0;
    if (c->weight_of)
        c->weight_of[i] = !counts ? 0 : c->weight && !c->target ? c->weight[c->label[i]] : 1;
}

TUTTI__FORMULA void tutti__do_entropy_gradient(const tutti__job_labels *c, int64_t i)
{
    const int64_t at = i / c->S * c->C * c->S + i % c->S;
    const bool counts = c->target || c->label[i] != c->ignored;
    const double divisor = c->total ? (double)c->total[0] : c->divisor;
    const double dloss = !counts || divisor == 0 ? 0 : (double)c->dy[c->each ? i : 0] / divisor;
    double all = 0;

    for (int64_t k = 0; k < c->C; k++)
        all += tutti__label_wanted(c, i, k, at);
    for (int64_t k = 0; k < c->C; k++) {
        const double log_p = (double)c->log_p[at + k * c->S];

        if (c->dx)
            c->dx[at + k * c->S] = (float)(dloss * (all * (double)tutti__exp_f32((float)log_p) -
                                                    tutti__label_wanted(c, i, k, at)));
        if (c->dtarget)
            c->dtarget[at + k * c->S] = (float)(-dloss * (1 - (double)c->smoothing) *
                                                (c->weight ? (double)c->weight[k] : 1) * log_p);
    }
}

TUTTI__FORMULA void tutti__do_label_real(const tutti__job_labels *c, int64_t i)
{
    c->dx[i] = (float)c->label[i];
}

#endif
