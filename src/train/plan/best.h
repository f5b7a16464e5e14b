/* best.h -- the best evaluation so far: what checkpoint_best keeps, and early_stopping waits for.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_BEST_H
#define TUTTI_TRAIN_BEST_H

#include "train/config/config.h"
#include "train/metrics/metrics.h"

/* A metric of an evaluation (EVAL in metrics.def) by which runs are judged; a choice of the key checkpoint_best. */
typedef struct tutti__monitor {
    const char *name;
    bool highest; /* more is better */
} tutti__monitor;

/* In a position: plain data. */
typedef struct tutti__best {
    double value;
    uint64_t step; /* after which it was found; 0: there was no evaluation yet */
    int64_t since; /* evaluations since, none of them better */
} tutti__best;

/* The metric of this configuration. */
tutti__monitor tutti__monitor_of(const tutti__train_config *c);
/* The n-th metric that there is; name NULL past the last. */
tutti__monitor tutti__monitor_at(size_t n);
/* Whether the best evaluation's checkpoint is kept. */
bool tutti__best_is_kept(const tutti__train_config *c);
/* After an evaluation. */
void tutti__best_note(const tutti__train_config *c, tutti__best *best,
                      const tutti__eval_metrics *eval);
/* Whether early_stopping ends the run. */
bool tutti__best_is_exhausted(const tutti__train_config *c, const tutti__best *best);

#endif
