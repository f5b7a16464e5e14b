/* text.h -- figures of language models: tokens a second, and the share of the machine's peak.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_TEXT_H
#define TUTTI_TRAIN_TEXT_H

#include "train/session/task.h"
#include <tutti/nn.h>

/* All zero: not a language model. */
typedef struct tutti__text_figures {
    double tokens; /* of a sample */
    double
        token_flops; /* of forward and backward: 6 per parameter that is in a product, and those of attention */
    double peak_flops; /* a second, of one rank; 0: not known */
} tutti__text_figures;

/* Of a model. f32: it computes in F32; on the CPU its peak is then measured here, in about 50 ms. */
void tutti__text_figures_set(tutti__text_figures *f, const tutti__train_task *task,
                             const tutti_module *module, bool f32);
/* Tokens a second at this rate of samples; NaN: not a language model. */
double tutti__text_rate(const tutti__text_figures *f, double samples_per_s);
/* Model FLOPs utilisation at this rate of tokens of all ranks; NaN: not known. */
double tutti__text_mfu(const tutti__text_figures *f, int ranks, double tokens_per_s);

#endif
