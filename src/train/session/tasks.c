/* tasks.c -- the table of tasks.   SPDX-License-Identifier: MIT
 *
 * To add one: a row here, its functions in tally.c, its figures in metrics.def, its name in the key's row of config.def. */
#include "train/session/tally.h"

/* `auto` is the first that fits the data. */
const tutti__task_kind tutti__task_kinds[TUTTI__TASKS] = {
    {.name = "classification",
     .losses = "cross_entropy",
     .targets = TUTTI__TARGET_LABEL,
     .needs = "a class for each sample",
     .has_logits = true,
     .figures = "val_accuracy val_top5_accuracy val_f1",
     .add = tutti__tally_add_classes,
     .score = tutti__tally_score_classes},
    {.name = "segmentation",
     .losses = "cross_entropy",
     .targets = TUTTI__TARGET_MASK,
     .needs = "masks, with a class for each pixel",
     .has_logits = true,
     .figures = "val_accuracy val_iou",
     .add = tutti__tally_add_classes,
     .score = tutti__tally_score_masks},
    {.name = "regression",
     .losses = "mse l1 smooth_l1 huber",
     .targets = TUTTI__TARGET_NUMBERS,
     .needs = "numbers to predict",
     .figures = "val_mae val_rmse val_r2",
     .add = tutti__tally_add_errors,
     .score = tutti__tally_score_errors},
    {.name = "multi_label",
     .losses = "bce",
     .targets = TUTTI__TARGET_NUMBERS | TUTTI__TARGET_BINARY,
     .needs = "a number for each label, 1 or 0",
     .has_logits = true,
     .figures = "val_accuracy val_f1",
     .add = tutti__tally_add_labels,
     .score = tutti__tally_score_labels},
};
