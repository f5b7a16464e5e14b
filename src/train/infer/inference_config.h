/* inference_config.h -- the configuration of `tutti eval`, `predict` and `generate`: the run's, and what flags change.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_INFERENCE_CONFIG_H
#define TUTTI_TRAIN_INFERENCE_CONFIG_H

#include "data/dataset.h"
#include "train/config/parts.h"

/* What is asked for; everything is borrowed. */
typedef struct tutti__inference {
    const char *command;           /* "tutti eval", for messages */
    const tutti_trainer_opts *own; /* the program's parts; NULL: a command's, without any */
    const char *path;              /* of the weights: what weights.h takes */
    const char *split;             /* "test" */
    const char *weights;           /* "ema", "model"; NULL: ema if it is there */
    int argc; /* keys of `tutti train`, as flags: they override the checkpoint's model, data and data_dir */
    char *const *argv;
    bool confusion;         /* count pairs of classes */
    const char *of_classes; /* the given flag that data with targets do not have; NULL: none */
    bool logits;            /* rows: of masks, too */
    const char *output;     /* the file that `done` writes; NULL: none */
    bool rows;              /* keep outputs and labels or targets of all samples */
    bool no_data;           /* only the model is of interest */
    tutti__tick tick;
} tutti__inference;

typedef struct tutti__inference_setup {
    const tutti__inference *job;
    tutti__train_config *config; /* with the flags' values; receives the run's */
    tutti__parts *parts;
    char *
        fit; /* what the training data taught (tutti_dataset_fitted); NULL: nothing is known. The caller frees it */
    bool averages; /* the run has an average of its weights (--ema) */
} tutti__inference_setup;

/* On rank 0, which alone needs the files: fills in config, fit and averages. Errors: ARG with what is missing or contradicts the
 * weights' run; those of reading its files. */
tutti_status tutti__inference_choose(tutti__inference_setup *setup);
/* The file of the run's average, which is used because its own evaluations were of that; "": there is none. NOT_FOUND if it is missing,
 * or asked for in vain. */
tutti_status tutti__inference_average(const tutti__inference_setup *setup, char average[4096]);

#endif
