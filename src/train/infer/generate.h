/* generate.h -- `tutti generate`: a path of weights and a prompt to text.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_GENERATE_H
#define TUTTI_TRAIN_GENERATE_H

#include "train/infer/sampling.h"
#include <stdio.h>

/* What is asked for; everything is borrowed. */
typedef struct tutti__generate {
    const char *path;    /* of the weights */
    const char *weights; /* "ema", "model"; NULL: ema if it is there */
    const char *prompt;  /* `prompt_bytes` of UTF-8; none: the beginning of a text */
    size_t prompt_bytes;
    int64_t tokens, samples;
    tutti__sampling sampling;
    bool no_prompt;        /* the continuation alone */
    bool no_stop;          /* goes on after an end of text */
    bool stats;            /* tokens a second, on standard error */
    const char *tokenizer; /* its file; NULL: the run's */
    /* Of all ranks of the environment's group, one of these: how many divide each layer, or have a stage of the model each (0, 1: none);
     * zero 3: each has its share of the weights. None: this process alone. */
    int64_t tensor, pipeline, zero;
    int argc; /* keys of `tutti train`, as flags: they override the checkpoint's */
    char *const *argv;
} tutti__generate;

static inline bool tutti__generate_is_divided(const tutti__generate *job)
{
    return job->tensor > 1 || job->pipeline > 1 || job->zero > 0;
}
/* Writes the texts to `out`, flushed after each token; always valid UTF-8; of a group, on rank 0. IO if it cannot be written. A group's
 * failures have been said. */
tutti_status tutti__generate_text(const tutti__generate *job, FILE *out);

#endif
