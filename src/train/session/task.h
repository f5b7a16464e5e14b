/* task.h -- what a model is trained for: classification, segmentation, language modelling, regression or multi-label
 * classification.
 * SPDX-License-Identifier: MIT
 *
 * The table in tasks.c says what each task needs of the data, which losses fit, and what evaluations count; losses are in losses.h. */
#ifndef TUTTI_TRAIN_TASK_H
#define TUTTI_TRAIN_TASK_H

#include "data/dataset.h"
#include "train/config/parts.h"
#include "train/metrics/metrics.h"
#include "train/session/losses.h"

struct tutti__tally;

/* What a sample's y is. */
typedef enum tutti__target {
    TUTTI__TARGET_LABEL = 1,   /* a class */
    TUTTI__TARGET_MASK = 2,    /* a class for each position, such as a pixel */
    TUTTI__TARGET_NUMBERS = 4, /* F32 */
    TUTTI__TARGET_BINARY = 8,  /* beside MASK: integers of 0 and 1 */
    TUTTI__TARGET_TOKENS =
        16 /* beside MASK: of each token of x, which are as many integers, such as the next one */
} tutti__target;

typedef struct tutti__task_kind {
    const char *name;
    const char *losses; /* names of those that fit, the default first */
    unsigned targets;   /* those that fit */
    const char *needs;  /* what they are, for messages */
    bool has_logits;    /* outputs are logits, from which classes follow */
    bool
        is_language_modeling; /* samples are tokens; outputs are [positions, classes] instead of [classes, positions] */
    const char *figures; /* of evaluations, beside val_loss */
    /* Adds a sample, without its loss, to t's counts: [classes, positions] logits, or [numbers] outputs. */
    void (*add)(struct tutti__tally *t, const float *output, const void *target);
    /* Sets the figures that follow from them. */
    void (*score)(const struct tutti__tally *t, tutti__eval_metrics *scores);
} tutti__task_kind;
enum { TUTTI__TASKS = 5 };
extern const tutti__task_kind tutti__task_kinds[TUTTI__TASKS];

/* A run's task: starts as {0}. */
typedef struct tutti__train_task {
    const tutti__task_kind *kind;
    const tutti__loss_kind *loss; /* NULL: the program's */
    size_t classes;               /* or labels of multi_label; 0: none */
    size_t positions;   /* of a sample's y: 1, the pixels of a mask, or tokens; 0: numbers */
    size_t numbers;     /* in a sample's y; 0: classes */
    bool integers;      /* which are I64 */
    tutti_shape target; /* y of one sample */
} tutti__train_task;

/* What tables call it: "classification" or "regression"; NULL: auto. */
const char *tutti__task_of_table(const tutti__train_config *config);
/* By the keys task and loss, and the data. ARG with the key if they do not fit. */
tutti_status tutti__task_find(tutti__train_task *task, const tutti__train_config *config,
                              const tutti__parts *parts, const tutti_dataset *data);
/* Numbers in the model's output of one sample. */
size_t tutti__task_width(const tutti__train_task *task);
/* Of the model's output for n samples. */
tutti_shape tutti__task_output(const tutti__train_task *task, int64_t n);
/* The number of the model's classes, or of other outputs: of tutti_model_opts. */
int64_t tutti__task_outputs(const tutti__train_task *task);
/* ARG if the output of a batch has another shape. */
tutti_status tutti__task_check_output(const tutti__train_task *task, const char *model,
                                      tutti_shape output);
/* FORMAT unless the n samples' targets are possible ones. */
tutti_status tutti__task_check_targets(const tutti__train_task *task, const void *y, size_t n);
/* Number k of a sample's y. */
static inline double tutti__task_number(const tutti__train_task *task, const void *y, size_t k)
{
    return task->integers ? (double)((const int64_t *)y)[k] : (double)((const float *)y)[k];
}
#define TUTTI__NO_CLASS (-1)
/* The class of each position, or for multi_label whether each label is predicted: [positions], or [numbers]. TUTTI__NO_CLASS where
 * a logit is NaN: nothing follows from it. */
void tutti__task_predict(const tutti__train_task *task, const float *output, int64_t *predicted);
/* The mean loss of a batch. */
tutti_tensor *tutti__task_loss(const tutti__train_task *task, tutti_tensor *output,
                               tutti_tensor *target, const tutti__loss_terms *terms);
/* What the sum of a batch's losses was divided by in that mean. weight: of classes; NULL: 1. */
double tutti__task_divisor(const tutti__train_task *task, tutti_array y, const float *weight);
/* What its positions are, for people: "pixels", "tokens"; of one for each sample the data's noun. */
const char *tutti__task_noun(const tutti__train_task *task, const char *noun);
/* The largest of n logits that are `stride` apart; TUTTI__NO_CLASS if one is NaN. */
int64_t tutti__task_class(const float *logits, size_t n, size_t stride);
/* How many those are; 0: outputs are what they are. */
size_t tutti__task_predictions(const tutti__train_task *task);

#endif
