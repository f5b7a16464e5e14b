/* members.h -- a run by shards, whose ranks come and go.   SPDX-License-Identifier: MIT
 *
 * What a step computes does not depend on who computes it (docs/design/elasticity.md), and so nothing of the run belongs to one
 * process: module and optimizer are elastic training's, and run->at and run->kept hold all else that another needs to go on.
 *
 *     members.c   a process becomes a member: opens data and model alone; then, with each group it is in, who has come the
 *                 furthest says where the run is, and rank 0 has the run folder, which it takes over from one that has gone
 *     shards.c    what a member does: the next thing is a function of run->at and run->kept, so that all do the same
 *     warm_up.c   what it does while it waits to become one
 *     samples.c   whether each sample was used in its step, and once */
#ifndef TUTTI_TRAIN_MEMBERS_H
#define TUTTI_TRAIN_MEMBERS_H

#include "train/run.h"

typedef struct tutti__members {
    tutti_status alone; /* what this process could not open, which the first group is told */
    char why[2048];
    bool is_member;             /* has had the state */
    uint64_t left_before;       /* ranks that were told to leave, when the last group was formed */
    bool welcomed;              /* the console has its first lines */
    tutti_elastic_stats before; /* of what run->kept has counted */
    int64_t saved_epoch;        /* rank 0's: of the last checkpoint at an epoch's end */
    int64_t line, eval;         /* and steps of the last line and evaluation in its run folder */
    bool
        sought; /* the loader is at this epoch and start, and was asked for the first batches of this group */
    int64_t epoch;
    uint64_t start;
} tutti__members;

/* What is summed up over all shards of a step, as integers (tutti_reducer_counters). */
enum {
    TUTTI__COUNT_LOSS,   /* of shards, in units of 2^-36 */
    TUTTI__COUNT_FINITE, /* samples with such a loss; all */
    TUTTI__COUNT_IMAGES,
    TUTTI__COUNT_SAMPLES, /* their digest, two lanes */
    TUTTI__COUNT_TAKEN_OVER = TUTTI__COUNT_SAMPLES + 2,
    TUTTI__COUNT_SIGNALS, /* ranks that one has reached, for each that ends a run */
    TUTTI__N_COUNTERS = TUTTI__COUNT_SIGNALS + 6
};

/* Up to the first group: as tutti__run_open. */
tutti_status tutti__members_open(tutti__run *run);
/* To the end of the run, or of this process's part in it: what fails has been said. */
tutti_status tutti__members_work(tutti__run *run);
/* Says the thread's failure as this process's, once. */
void tutti__members_say(tutti__run *run, tutti_status status);
/* tutti__fail_together of a group that may be lost. */
tutti_status tutti__members_agree(tutti__run *run, tutti_status status);
/* train.c: what the console says at first; signals, and what is said when the first comes; the end, on rank 0. */
void tutti__run_say_beginning(tutti__run *run);
void tutti__run_watch_signals(const tutti__run *run);
tutti_status tutti__run_write_results(tutti__run *run);

/* The last line and evaluation of run->kept, into the run folder of whoever has it, unless they are there. */
void tutti__members_write_lines(tutti__run *run);

/* warm_up.c: makes the kernels of a step. */
tutti_status tutti__warm_up(tutti__run *run);
/* samples.c: what run->kept.samples must be, by the sampler's rule. STATE if it is not. */
tutti_status tutti__samples_audit(const tutti__run *run);

#endif
