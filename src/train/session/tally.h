/* tally.h -- what an evaluation counts and adds, over samples and ranks, and the figures that follow.   SPDX-License-Identifier: MIT
 *
 * All are integers, also sums of losses and errors (exact_sum.h), so that they do not depend on the order: the result is the same
 * for any number of ranks. */
#ifndef TUTTI_TRAIN_TALLY_H
#define TUTTI_TRAIN_TALLY_H

#include "train/session/exact_sum.h"
#include "train/session/task.h"
#include <tutti/group.h>

/* Sums over the samples of a regression, of each output. */
enum {
    TUTTI__ERROR_ABS,
    TUTTI__ERROR_SQUARE,
    TUTTI__TARGET_SUM,
    TUTTI__TARGET_SQUARE,
    TUTTI__ERROR_SUMS
};

/* Starts as {0}. */
typedef struct tutti__tally {
    const tutti__train_task *task;
    const tutti_metric *own; /* the program's metrics; NULL: none */
    int64_t *counts;         /* all of them, n */
    size_t n;
    /* By class, or label of multi_label: */
    int64_t *labels;    /* samples, pixels or tokens of it */
    int64_t *predicted; /* for which it was predicted */
    int64_t *hits;      /* both */
    int64_t *confusion; /* [label, predicted]; NULL: not counted */
    /* By output of a regression, TUTTI__ERROR_SUMS sums each; of more outputs than 1024 all together. */
    size_t outputs;
    int64_t *errors;
    int64_t *own_sums;
    float *row; /* [classes], the logits of one pixel */
} tutti__tally;

/* Borrows task and own. confusion: also counts pairs of classes. */
tutti_status tutti__tally_new(tutti__tally *t, const tutti__train_task *task,
                              const tutti_metric *own, bool confusion);
void tutti__tally_free(tutti__tally *t);
void tutti__tally_clear(tutti__tally *t);
/* Adds n samples: the model's outputs of `width` numbers each and y. Of outputs that do not fit the task (allowed with the program's
 * own loss alone) only the program's metrics. with_loss: also the task's loss. FORMAT for a label that is no class. */
tutti_status tutti__tally_add(tutti__tally *t, tutti_array outputs, tutti_array y, size_t n,
                              bool with_loss);
/* Adds the mean loss of n samples. */
void tutti__tally_add_loss(tutti__tally *t, double mean, size_t n);
/* Sums over all ranks. Collective. */
tutti_status tutti__tally_sum(tutti__tally *t, tutti_group *group);

int64_t tutti__tally_samples(const tutti__tally *t);
/* Samples whose class was predicted; of masks, pixels, of text, tokens; of multi_label, samples of which all labels were. */
int64_t tutti__tally_correct(const tutti__tally *t);
/* Of how many: samples, pixels or tokens. */
int64_t tutti__tally_counted(const tutti__tally *t);
/* Samples with an output that is NaN, which count as wrong. */
int64_t tutti__tally_unknown(const tutti__tally *t);
/* 2 hits / (labels + predicted), hits / (labels + predicted - hits); NaN of a class that neither occurs nor was predicted. */
double tutti__tally_f1(const tutti__tally *t, size_t class);
double tutti__tally_iou(const tutti__tally *t, size_t class);
/* Of one output of a regression, or all (SIZE_MAX). r2: NaN where targets are all the same. */
double tutti__tally_mae(const tutti__tally *t, size_t output);
double tutti__tally_rmse(const tutti__tally *t, size_t output);
double tutti__tally_r2(const tutti__tally *t, size_t output);
/* The mean loss of a sample; NaN or infinity if that of any sample is. */
double tutti__tally_loss(const tutti__tally *t);
/* Sets val_loss, val_accuracy and all other figures; NaN where they do not apply. */
void tutti__tally_scores(const tutti__tally *t, tutti__eval_metrics *scores);

/* The tasks' parts: tutti__task_kind. */
void tutti__tally_add_classes(tutti__tally *t, const float *output, const void *target);
void tutti__tally_add_labels(tutti__tally *t, const float *output, const void *target);
void tutti__tally_add_errors(tutti__tally *t, const float *output, const void *target);
void tutti__tally_score_classes(const tutti__tally *t, tutti__eval_metrics *scores);
void tutti__tally_score_masks(const tutti__tally *t, tutti__eval_metrics *scores);
void tutti__tally_score_tokens(const tutti__tally *t, tutti__eval_metrics *scores);
void tutti__tally_score_labels(const tutti__tally *t, tutti__eval_metrics *scores);
void tutti__tally_score_errors(const tutti__tally *t, tutti__eval_metrics *scores);

#endif
