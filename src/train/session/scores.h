/* scores.h -- the results of an evaluation for people.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_SCORES_H
#define TUTTI_TRAIN_SCORES_H

#include "train/metrics/metrics.h"
#include "train/session/tally.h"

/* Calls show(user, "accuracy", "97.50 %") for all that are known, but the loss; own: the program's metrics, or NULL. */
void tutti__scores_each(const tutti__eval_metrics *scores, const tutti_metric *own,
                        void (*show)(void *user, const char *name, const char *value), void *user);
/* [[count]] by label and predicted class; NULL: no memory. The same with names: {"classes": [names], "counts": [[label, predicted]]}; to be decref'd. */
json_t *tutti__confusion_counts_json(const tutti__tally *t);
json_t *tutti__confusion_json(const tutti__tally *t, const char *const *class_names);
/* "  test accuracy 97.50 %  F1 0.9741" */
enum { TUTTI__SCORES_TEXT = 512 };
void tutti__scores_text(const tutti__eval_metrics *scores, const tutti_metric *own,
                        char text[TUTTI__SCORES_TEXT]);

#endif
