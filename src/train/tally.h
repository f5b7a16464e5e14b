/* tally.h -- what a model's answers are worth: counts, added up over batches and ranks.   SPDX-License-Identifier: MIT
 *
 * All are whole numbers, the loss too (in units of 2^-36), so that a sum does not depend on the order of its terms: the result is
 * the same for any number of ranks. */
#ifndef TUTTI_TRAIN_TALLY_H
#define TUTTI_TRAIN_TALLY_H

#include "base/base.h"
#include <tutti/group.h>

/* Starts as {0}. Rows of `hits`, ... are indexed by class. */
typedef struct tutti__tally {
    size_t classes;  /* 0: there are none to be told apart, and samples count by their loss alone */
    int64_t *counts; /* all of them, n */
    size_t n;
    int64_t *labels;    /* samples of each class */
    int64_t *predicted; /* samples for which it was the answer */
    int64_t *hits;      /* both */
    int64_t *confusion; /* [label, predicted]; NULL: not wanted */
} tutti__tally;

tutti_status tutti__tally_new(tutti__tally *t, size_t classes, bool confusion);
void tutti__tally_free(tutti__tally *t);
void tutti__tally_clear(tutti__tally *t);
/* n rows of logits [n, classes] and their labels, with their cross entropy; FORMAT for a label that is no class. own_loss: without,
 * for the caller knows another. */
tutti_status tutti__tally_add(tutti__tally *t, const float *logits, const int64_t *labels, size_t n,
                              bool own_loss);
/* n samples without classes: of `width` outputs and targets each, whose loss is the mean squared error. */
void tutti__tally_add_errors(tutti__tally *t, const float *outputs, const float *targets, size_t n,
                             size_t width);
/* The mean loss of n samples, which are counted elsewhere if they have classes. */
void tutti__tally_add_loss(tutti__tally *t, double mean, size_t n);
/* Adds those of all ranks. Collective. */
tutti_status tutti__tally_sum(tutti__tally *t, tutti_group *group);

int64_t tutti__tally_samples(const tutti__tally *t);
int64_t tutti__tally_correct(const tutti__tally *t);
/* Samples whose label is among the 5 largest logits. */
int64_t tutti__tally_top5(const tutti__tally *t);
/* correct / samples; NaN without classes. */
double tutti__tally_accuracy(const tutti__tally *t);
/* The mean loss of a sample; NaN or infinity if one's is. */
double tutti__tally_loss(const tutti__tally *t);

#endif
