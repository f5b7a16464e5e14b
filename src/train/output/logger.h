/* logger.h -- a place, besides metrics.jsonl, to which a run's figures go.   SPDX-License-Identifier: MIT
 *
 * A logger is one of these tables, in a file of its own, and a row in logs.c. One that fails is closed, and the run continues. */
#ifndef TUTTI_TRAIN_LOGGER_H
#define TUTTI_TRAIN_LOGGER_H

#include "train/config/config.h"
#include "train/machine/system.h"
#include "train/output/loggers/histogram.h"
#include <tutti/nn.h>

/* The run that is logged. */
typedef struct tutti__logged_run {
    const char *folder;            /* its path, borrowed */
    char name[TUTTI__CONFIG_TEXT]; /* the last component of it, in UTF-8 */
    const char *program;           /* what trains, "tutti train" */
    const tutti__train_config *config;
    uint64_t step; /* of the checkpoint from which it resumes; 0: from the beginning */
} tutti__logged_run;

typedef struct tutti__logger {
    const char *name; /* the key of `tutti train` */
    size_t bytes; /* of `self`, which is zero when it is opened, and closed also if that fails */
    bool (*is_on)(const tutti__train_config *config);
    /* Removes what an earlier run in the folder left, also if the logger is off; NULL: nothing. */
    tutti_status (*forget)(const char *folder);
    tutti_status (*open)(void *self, const tutti__logged_run *run);
    /* sample: of the machine, NULL if the last one is recent. */
    tutti_status (*step)(void *self, const tutti__step_metrics *m,
                         const tutti__system_sample *sample);
    /* table: of *m, with the program's metrics. */
    tutti_status (*eval)(void *self, tutti__metric_table table, const tutti__eval_metrics *m);
    /* A language model's text; NULL: nothing. */
    tutti_status (*sample)(void *self, const tutti__sample_metrics *m);
    /* Of a parameter, "parameters/fc1.weight", or its mean gradient; NULL: nothing. */
    tutti_status (*histogram)(void *self, uint64_t step, const char *tag,
                              const tutti__histogram *histogram);
    /* summary NULL: the run goes on, logged by another rank. */
    tutti_status (*end)(void *self, const tutti__summary *summary);
    void (*close)(void *self);
} tutti__logger;

extern const tutti__logger tutti__tensorboard, tutti__wandb, tutti__prometheus;

#endif
