/* tally.h -- counts for accuracy and loss, summed over batches and ranks.   SPDX-License-Identifier: MIT
 *
 * All are integers, also the loss (in units of 2^-36), so that sums do not depend on the order: the result is the same for any
 * number of ranks. */
#ifndef TUTTI_TRAIN_TALLY_H
#define TUTTI_TRAIN_TALLY_H

#include "base/base.h"
#include <tutti/group.h>

/* Starts as {0}. Rows of `hits`, ... are indexed by class. */
typedef struct tutti__tally {
    size_t classes;  /* 0: no classes, only the loss */
    int64_t *counts; /* all of them, n */
    size_t n;
    int64_t *labels;    /* samples of each class */
    int64_t *predicted; /* samples for which the class was predicted */
    int64_t *hits;      /* both */
    int64_t *confusion; /* [label, predicted]; NULL: not needed */
} tutti__tally;

tutti_status tutti__tally_new(tutti__tally *t, size_t classes, bool confusion);
void tutti__tally_free(tutti__tally *t);
void tutti__tally_clear(tutti__tally *t);
/* Adds n rows of logits [n, classes] and their labels, with their cross entropy; FORMAT for a label that is no class. own_loss:
 * without the loss, which the caller adds. */
tutti_status tutti__tally_add(tutti__tally *t, const float *logits, const int64_t *labels, size_t n,
                              bool own_loss);
/* Adds n samples without classes, of `width` outputs and targets each, with the mean squared error as loss. */
void tutti__tally_add_errors(tutti__tally *t, const float *outputs, const float *targets, size_t n,
                             size_t width);
/* Adds the mean loss of n samples; with classes these are counted by tutti__tally_add. */
void tutti__tally_add_loss(tutti__tally *t, double mean, size_t n);
/* Sums over all ranks. Collective. */
tutti_status tutti__tally_sum(tutti__tally *t, tutti_group *group);

int64_t tutti__tally_samples(const tutti__tally *t);
int64_t tutti__tally_correct(const tutti__tally *t);
/* Samples whose label is among the 5 largest logits. */
int64_t tutti__tally_top5(const tutti__tally *t);
/* correct / samples; NaN without classes. */
double tutti__tally_accuracy(const tutti__tally *t);
/* The mean loss of a sample; NaN or infinity if that of any sample is. */
double tutti__tally_loss(const tutti__tally *t);

#endif
