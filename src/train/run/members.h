/* members.h -- a run by shards, whose ranks come and go.   SPDX-License-Identifier: MIT
 *
 * What a step computes does not depend on who computes it (docs/design/elasticity.md), so no state of the run belongs to one
 * process: module and optimizer are parts of tutti_elastic, and run->at and run->kept hold everything else that another process
 * needs to continue.
 *
 *     members.c   a process becomes a member: opens data and model alone; then, with each group it is in, who has come the
 *                 furthest says where the run is, and rank 0 has the run folder, which it takes over from one that has gone
 *     shards.c    what a member does: the next thing is a function of run->at and run->kept, so that all do the same
 *     warm_up.c   what it does while it waits to become one
 *     samples.c   whether each sample was used in its step, and once */
#ifndef TUTTI_TRAIN_MEMBERS_H
#define TUTTI_TRAIN_MEMBERS_H

#include "train/run/run.h"

typedef struct tutti__members {
    tutti_status alone; /* failure of the local set-up, which is reported in the first group */
    char why[2048];
    bool is_member;       /* has had the state */
    int64_t since;        /* the count in which this process came, as in kept.counts; 0: none yet */
    uint64_t left_before; /* ranks told to leave, when the last group was formed */
    bool welcomed;        /* the first lines were printed */
    tutti_elastic_stats before; /* statistics that run->kept already includes */
    int64_t saved_epoch;        /* on rank 0: epoch of the last checkpoint at an epoch's end */
    int64_t line, eval; /* and the steps of the last line and evaluation in its run folder */
    /* the loader is at this epoch and start, and the first batches of this group are requested */
    bool sought;
    int64_t epoch;
    uint64_t start;
} tutti__members;

/* Sums over all shards of a step, as integers (tutti_reducer_counters). */
enum {
    TUTTI__COUNT_LOSS,   /* sum of the shards' losses, in units of 2^-36 */
    TUTTI__COUNT_FINITE, /* samples with a finite loss; then all samples */
    TUTTI__COUNT_IMAGES,
    TUTTI__COUNT_SAMPLES, /* their digest, two lanes */
    TUTTI__COUNT_TAKEN_OVER = TUTTI__COUNT_SAMPLES + 2,
    TUTTI__COUNT_SIGNALS, /* ranks that got one, for each signal that ends a run */
    TUTTI__N_COUNTERS = TUTTI__COUNT_SIGNALS + 6
};

/* As tutti__run_open, up to the first group. */
tutti_status tutti__members_open(tutti__run *run);
/* Works until the end of the run, or until this process leaves it; failures were reported. */
tutti_status tutti__members_work(tutti__run *run);
/* Prints the thread's failure as this process's, once. */
void tutti__members_say(tutti__run *run, tutti_status status);
/* tutti__fail_together for a group that may be lost. */
tutti_status tutti__members_agree(tutti__run *run, tutti_status status);
/* train.c: prints the first lines; watches signals, with the answer to the first; writes the end, on rank 0. */
void tutti__run_say_beginning(tutti__run *run);
void tutti__run_watch_signals(const tutti__run *run);
tutti_status tutti__run_write_results(tutti__run *run);

/* Writes the last line and evaluation of run->kept to the run folder, on the rank that has it, unless they are there. */
void tutti__members_write_lines(tutti__run *run);

/* warm_up.c: creates the kernels of a step. */
tutti_status tutti__warm_up(tutti__run *run);
/* samples.c: compares run->kept.samples with the sampler's rule. STATE if they differ. */
tutti_status tutti__samples_audit(const tutti__run *run);

#endif
