/* lr_find.h -- the key `lr_find`: the learning-rate range test of L. N. Smith, "Cyclical Learning Rates for Training Neural
 * Networks" (2017).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_LR_FIND_H
#define TUTTI_TRAIN_LR_FIND_H

#include "train/plan/plan.h"
#include "train/folder/run_folder.h"

/* Rates and losses of the steps, the same on all ranks. Begins as {0}. */
typedef struct tutti__lr_find {
    size_t n;
    double lr[TUTTI__LR_FIND_STEPS], loss[TUTTI__LR_FIND_STEPS];
    double mean, weight, best; /* a running mean of the losses, and its smallest */
} tutti__lr_find;

/* Adds a step. True: its loss is not finite, or the running mean is more than four times the smallest one. */
bool tutti__lr_find_add(tutti__lr_find *find, double lr, double loss);
/* The rate at which the loss, over the logarithm of the rate, falls most steeply, before its minimum: by lines through the 11 steps
 * around each. smoothed: receives the means of those steps. NaN: too few steps, or it never falls. */
double tutti__lr_find_suggest(const tutti__lr_find *find, double smoothed[TUTTI__LR_FIND_STEPS]);
/* Writes lr_find.json: {"suggested_lr": 0.01 or null, "lr": [...], "loss": [...], "smoothed_loss": [...]}. */
tutti_status tutti__lr_find_write(const tutti__lr_find *find, const tutti__run_folder *folder,
                                  double *suggested_p);

#endif
