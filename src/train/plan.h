/* plan.h -- how many steps are before a run, and where its learning rate is.   SPDX-License-Identifier: MIT
 *
 * A run is `epochs` passes over the data, or max_steps steps. How many steps a pass takes depends on the number of ranks, and
 * that may change where a run goes on. With logical shards, read shards for ranks:
 *
 *   the samples of the epoch that were dealt out stay so; the rest is dealt out to the new ranks     (position's start)
 *   steps count on; the rest of the run is as long as its samples need with the new ranks            (total_steps)
 *   the schedule is that of a run which always had the new ranks, read as far from its end           (schedule_step)
 *
 * so that the same share of samples has the same rate. With the same number of ranks nothing changes. */
#ifndef TUTTI_TRAIN_PLAN_H
#define TUTTI_TRAIN_PLAN_H

#include "base/base.h"

struct tutti__run;

typedef struct tutti__position {
    uint64_t step; /* done */
    int64_t epoch; /* from 1 */
    size_t start;  /* samples of it that were dealt out to another number of ranks; 0: none */
    size_t batch;  /* batches that each rank has done behind them */
} tutti__position;

/* Batches of a rank in an epoch, behind `start` samples. */
size_t tutti__plan_batches(const struct tutti__run *run, size_t start);
/* Samples of the epoch that have been dealt out, to so many. */
size_t tutti__plan_samples(const struct tutti__run *run, const tutti__position *at, int shares);
/* Optimizer steps from there to the end. */
uint64_t tutti__plan_left(const struct tutti__run *run, const tutti__position *at);
/* Sets total_steps and schedule for a run that is there. */
void tutti__plan(struct tutti__run *run, const tutti__position *at);
/* The schedule's step of the next update. */
uint64_t tutti__plan_schedule_step(const struct tutti__run *run);

#endif
