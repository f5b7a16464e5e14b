/* regroup.h -- a run by shards, whose ranks come and go.   SPDX-License-Identifier: MIT
 *
 * What a step computes does not depend on who computes it (docs/design/elasticity.md), so no state of the run belongs to one
 * process: module and optimizer are parts of tutti_elastic, and the position holds everything else that another process needs
 * to continue.
 *
 *     regroup.c        a process opens data and model alone; then, with each group it is in, who has come the furthest says where
 *                      the run is, and rank 0 has the run folder
 *     take_over.c      the run folder: begun by the first rank 0, and taken over from one that has gone
 *     shard_step.c     a step, of as many shards as this rank gets
 *     samples_audit.c  whether each sample was used in its step, and once */
#ifndef TUTTI_TRAIN_REGROUP_H
#define TUTTI_TRAIN_REGROUP_H

#include "train/run/run.h"

typedef struct tutti__elastic_worker {
    tutti_status alone; /* failure of the local set-up, which is reported in the first group */
    char why[2048];
    bool has_state; /* has had the run's state */
    int64_t since;  /* the count in which this process came, as in shared.counts; 0: none yet */
    uint64_t left_before;       /* ranks told to leave, when the last group was formed */
    bool has_header;            /* the first lines were printed */
    tutti_elastic_stats before; /* statistics that the position already includes */
    tutti__position undo;       /* before the step's update */
    /* on rank 0: the last checkpoint that this process began, or found; the last epoch after which it began one */
    uint64_t saved_step;
    int64_t saved_epoch;
} tutti__elastic_worker;

/* Sums over all shards of a step, as integers (tutti_reducer_counters). */
enum {
    TUTTI__COUNT_LOSS,     /* sum of the shards' losses, in units of 2^-36 */
    TUTTI__COUNT_FINITE,   /* samples with a finite loss; then all samples */
    TUTTI__COUNT_DIVERGED, /* shards whose loss is too large to be added up */
    TUTTI__COUNT_IMAGES,
    TUTTI__COUNT_SAMPLES, /* their digest, two lanes */
    TUTTI__COUNT_TAKEN_OVER = TUTTI__COUNT_SAMPLES + 2,
    TUTTI__COUNT_SIGNALS, /* ranks that got one, for each signal that ends a run */
    TUTTI__N_COUNTERS = TUTTI__COUNT_SIGNALS + 6
};

/* Opens a run by shards, up to the first group. */
tutti_status tutti__worker_open(tutti__train_run *run);
/* Works until the end of the run, or until this process leaves it; failures were reported. */
tutti_status tutti__worker_work(tutti__train_run *run);
/* Notes why a try at a step failed, for the time that it cost. */
void tutti__worker_note_failure(tutti__train_run *run);
/* tutti__fail_together for a group that may be lost. */
tutti_status tutti__worker_agree(tutti__train_run *run, tutti_status status);

/* ---- take_over.c ---- */

/* Rank 0, in the first group, or if all state was lost: its initial state, from which all ranks begin. *torn_p: it has none. */
tutti_status tutti__worker_begin_run(tutti__train_run *run, bool *torn_p);
/* This process has trained, and its state is lost: resets everything. */
void tutti__worker_begin_again(tutti__train_run *run);
/* Rank 0 in another group: takes the folder over from one that has gone, if need be. */
tutti_status tutti__worker_take_over(tutti__train_run *run);
/* Another process is rank 0, now or was in between. */
void tutti__worker_hand_over(tutti__train_run *run);

/* samples_audit.c: compares the digest of samples with the sampler's rule. STATE if they differ. */
tutti_status tutti__samples_audit(const tutti__train_run *run);

#endif
