/* inference.h -- `tutti eval` and `tutti predict`, also a program's: weights over a data set, on one rank's part of the work.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_INFERENCE_H
#define TUTTI_TRAIN_INFERENCE_H

#include "train/infer/inference_config.h"
#include "train/session/tally.h"

/* What a command line asks for (inference_line.h). */
typedef struct tutti__inference_line {
    const char *title;               /* "tutti eval" */
    const tutti_trainer_opts *own;   /* the program's parts; NULL: a command's, without any */
    bool predicts;                   /* else evaluates */
    const char *path, *split;        /* split: "test" unless given */
    const char *json, *out, *format; /* NULL: not given; out: given if it predicts */
    const char *weights;             /* as in tutti__inference */
    bool confusion;
    int n_keys;
    char **keys; /* flags that are keys of `tutti train`; free() the list */
} tutti__inference_line;

/* What came out: the same on all ranks, but for outputs and y, which rank 0 has. Borrowed from the call that gets it. */
typedef struct tutti__inference_result {
    const tutti__train_config *config;
    tutti_dataset_info data; /* its split as asked for */
    const char *noun;        /* "images", "samples" */
    const tutti__tally *tally;
    const tutti__train_task *task;
    const tutti_metric *own; /* the program's; NULL: none */
    const char *weights;     /* "FILE (safetensors)" */
    int rank, size;
    double seconds; /* of the evaluation alone */
    /* [data.count, width], in the data set's order: the model's outputs or, with `masks`, the predicted class of each pixel. NULL
     * without rows */
    size_t width;
    bool masks;
    const float *outputs;
    const void *
        y; /* labels, int64_t [data.count], of masks [data.count, pixels]; or targets, float [data.count, width] */
} tutti__inference_result;

/* Does it, in the group that the environment describes, and on rank 0 calls `done`. What fails has been said. Fills in the
 * trainer's result, with the exit code: 128 + the signal that stopped it, which is no failure. */
tutti_status tutti__infer(const tutti__inference *job,
                          tutti_status (*done)(void *user, const tutti__inference_result *result),
                          void *user, tutti_trainer_result *result);

#endif
