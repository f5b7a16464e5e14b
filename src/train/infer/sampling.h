/* sampling.h -- draws a token by a language model's logits.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_SAMPLING_H
#define TUTTI_TRAIN_SAMPLING_H

#include "base/base.h"

typedef struct tutti__sampling {
    double temperature; /* logits are divided by it; 0: the largest one */
    int64_t top_k;      /* only tokens whose logit is at least the k-th largest; 0: all */
    double
        top_p; /* and of those only the most likely ones that together have this probability; 1: all */
    uint64_t seed;
} tutti__sampling;

/* Room for sampling among n tokens; free() it. NULL: no memory. */
typedef struct tutti__choice {
    double weight;
    int32_t token;
} tutti__choice;
tutti__choice *tutti__choices_new(size_t n);

/* The token at `position` of a text, numbered `sample`: a function of these, the options and the logits. NaN counts as -infinity. */
size_t tutti__sample_token(const tutti__sampling *s, const float *logits, size_t n, uint64_t sample,
                           uint64_t position, tutti__choice *room);

#endif
