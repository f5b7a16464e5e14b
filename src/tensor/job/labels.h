/* labels.h -- minus the log-probability of labels (op/nll_loss.c): x [N][C][S].   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_JOB_LABELS_H
#define TUTTI_TENSOR_JOB_LABELS_H

#include "base/real.h"

#include <stdbool.h>

typedef struct tutti__job_labels {
    int64_t C, S, ignored;
    bool each; /* a loss for each row; else their sum, over `total` */
    const float *x, *weight;
    const int64_t *label;    /* [N * S] */
    float *loss, *weight_of; /* of each row; weight_of NULL: not wanted */
    const float *dy, *total; /* total NULL: 1 */
    float *dx;
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

TUTTI__FORMULA void tutti__do_label_real(const tutti__job_labels *c, int64_t i)
{
    c->dx[i] = (float)c->label[i];
}

#endif
