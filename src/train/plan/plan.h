/* plan.h -- how many steps a run has left, and its position in the schedule.   SPDX-License-Identifier: MIT
 *
 * A run is `epochs` passes over the data, or max_steps steps. The steps per pass depend on the number of ranks, which may
 * differ when a run resumes. With logical shards, read "shards" for "ranks":
 *
 *   samples of the epoch that were used stay used; the rest is divided among the new ranks               (position's start)
 *   step numbers continue; the rest of the run takes the steps that its samples need with the new ranks  (total_steps)
 *   the schedule is that of a run which always had the new ranks, at the same distance from its end      (schedule_step)
 *
 * so that the same fraction of samples has the same rate. With the same number of ranks nothing changes. */
#ifndef TUTTI_TRAIN_PLAN_H
#define TUTTI_TRAIN_PLAN_H

#include "base/base.h"

struct tutti__run;

typedef struct tutti__position {
    uint64_t step; /* done */
    int64_t epoch; /* from 1 */
    size_t start;  /* samples of it used by another number of ranks; 0: none */
    size_t batch;  /* batches that each rank has done after them */
} tutti__position;

/* Batches of a rank in an epoch, after `start` samples. */
size_t tutti__plan_batches(const struct tutti__run *run, size_t start);
/* Samples of the epoch used so far, by `shares` ranks or shards. */
size_t tutti__plan_samples(const struct tutti__run *run, const tutti__position *at, int shares);
/* Optimizer steps from that position to the end. */
uint64_t tutti__plan_left(const struct tutti__run *run, const tutti__position *at);
/* Sets total_steps and schedule for a run at this position. */
void tutti__plan(struct tutti__run *run, const tutti__position *at);
/* The schedule's step of the next update. */
uint64_t tutti__plan_schedule_step(const struct tutti__run *run);

#endif
