/* loss_weights.h -- the keys class_weights and pos_weight: factors of a loss's terms.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_LOSS_WEIGHTS_H
#define TUTTI_TRAIN_LOSS_WEIGHTS_H

#include "train/session/task.h"

/* Starts as {0}. */
typedef struct tutti__loss_weights {
    float *value; /* of each class, or each label; NULL: all are 1 */
    size_t n;
} tutti__loss_weights;

/* Allocates them, by the keys. "balanced" reads all labels of the training data. Errors: ARG with the key, MEMORY, those of reading. */
tutti_status tutti__loss_weights_find(tutti__loss_weights *weights, const tutti__train_task *task,
                                      const tutti__train_config *config,
                                      const tutti_dataset *train);

#endif
