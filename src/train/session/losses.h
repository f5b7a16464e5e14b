/* losses.h -- the losses that the key `loss` names.   SPDX-License-Identifier: MIT
 *
 * To add one: a row of the table in losses.c, its name in the key's row of config.def, and in the tasks that it fits (tasks.c). */
#ifndef TUTTI_TRAIN_LOSSES_H
#define TUTTI_TRAIN_LOSSES_H

#include <tutti/tensor.h>

typedef struct tutti__loss_terms {
    float label_smoothing; /* of cross_entropy */
    tutti_tensor
        *weight; /* F32: of classes for cross_entropy, of labels that apply for bce; NULL: 1 */
} tutti__loss_terms;

typedef struct tutti__loss_kind {
    const char *name;
    /* The mean over a batch, a scalar: the loss of a training step. */
    tutti_tensor *(*mean)(tutti_tensor *output, tutti_tensor *target,
                          const tutti__loss_terms *terms);
    /* The same of one number, for evaluations; NULL: cross entropy. */
    double (*element)(double output, double target);
} tutti__loss_kind;

/* NULL: none. */
const tutti__loss_kind *tutti__loss_find(const char *name);
/* Of n logits and a label, without label smoothing. */
double tutti__loss_cross_entropy(const float *logits, size_t n, size_t label);

#endif
