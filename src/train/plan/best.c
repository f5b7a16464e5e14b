/* best.c -- the best evaluation so far.   SPDX-License-Identifier: MIT */
#include "train/plan/best.h"

#include <math.h>
#include <string.h>

static const tutti__monitor monitors[] = {
    {"val_loss", false}, {"val_perplexity", false}, {"val_accuracy", true}, {"val_f1", true},
    {"val_iou", true},   {"val_mae", false},        {"val_rmse", false},    {"val_r2", true}};

tutti__monitor tutti__monitor_at(size_t n)
{
    return n < TUTTI__COUNT_OF(monitors) ? monitors[n] : (tutti__monitor){NULL, false};
}

tutti__monitor tutti__monitor_of(const tutti__train_config *c)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(monitors); i++)
        if (strcmp(c->checkpoint_best, monitors[i].name) == 0)
            return monitors[i];
    return monitors[0];
}

bool tutti__best_is_kept(const tutti__train_config *c)
{
    return strcmp(c->checkpoint_best, tutti__monitor_of(c).name) == 0;
}

void tutti__best_note(const tutti__train_config *c, tutti__best *best,
                      const tutti__eval_metrics *eval)
{
    const tutti__monitor monitor = tutti__monitor_of(c);
    const double value = tutti__eval_by_name(eval, monitor.name);
    const double gain = monitor.highest ? value - best->value : best->value - value;

    if (!isnan(value) && (best->step == 0 || gain > c->min_delta))
        *best = (tutti__best){.value = value, .step = (uint64_t)eval->step};
    else
        best->since++;
}

bool tutti__best_is_exhausted(const tutti__train_config *c, const tutti__best *best)
{
    return c->early_stopping > 0 && best->since >= c->early_stopping;
}
