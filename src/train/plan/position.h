/* position.h -- how far a run is, as plain data: what checkpoints and the workers of an elastic run move.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_POSITION_H
#define TUTTI_TRAIN_POSITION_H

#include "train/config/config.h"
#include "train/metrics/ledger.h"
#include "train/metrics/metrics.h"
#include "train/plan/best.h"
#include "train/session/session.h"
#include <math.h>

/* Where the next step begins. */
typedef struct tutti__run_cursor {
    uint64_t step; /* optimizer steps done */
    int64_t epoch; /* running, from 1 */
    size_t start;  /* samples of this epoch used by another number of ranks */
    /* batches that each rank has done after those: a multiple of grad_accumulation, or all */
    size_t batch;
} tutti__run_cursor;

/* What else another worker needs to continue in this one's place, in a run by shards. */
typedef struct tutti__shared_position {
    char run_dir[TUTTI__CONFIG_TEXT], token[33]; /* of its lock */
    uint64_t forwards;                           /* of a shard */
    uint64_t samples[2];                         /* digest of the samples of steps since `from` */
    tutti__run_cursor from;
    tutti_scaler_state scaler;
    double seconds, time[TUTTI__N_TIMES]; /* of the run and its ledger, when ranks last changed */
    tutti_traffic traffic;
    int64_t workers; /* of the last group */
    int64_t counts;  /* how often they were counted since all began */
    int64_t lost, joined, left;
    int64_t attempts, taken_over; /* failed tries at steps; shards taken over */
} tutti__shared_position;

/* The same on all ranks. With module and optimizer it is all that the next step needs. */
typedef struct tutti__position {
    tutti__run_cursor at;
    uint64_t begun_at; /* the step at which the run folder was begun or continued */
    int64_t epochs_done;
    uint64_t skipped_steps;            /* by the scaler */
    tutti__mean log_loss, epoch_loss;  /* since the last log line, in this epoch */
    double shown_loss;                 /* of the last log line; NaN before */
    tutti__eval_metrics scores;        /* of the last evaluation, without epoch, step and time */
    double images, log_images;         /* samples */
    double train_seconds, log_seconds; /* in training steps: total, since the last log line */
    double norm;                       /* of the gradient of the last step, if a line is due */
    /* What was done since the last step, so that the rest is next (plan.h). */
    uint64_t line_due;        /* the last step for which a line is due */
    tutti__step_metrics line; /* the last one written; step 0: none */
    tutti__eval_metrics eval;
    tutti__best best;
    uint64_t guarded;    /* the last step after which the guard has found nothing wrong; 0: none */
    uint64_t guard_at;   /* the next one after which it looks; 0: not known yet */
    bool agree_due;      /* a function of the program has been called: it may have ended the run */
    bool stopped;        /* all ranks have agreed that the program ends the run */
    char stop_why[128];  /* what it said */
    uint64_t evaluated;  /* step of the last evaluation; 0: none */
    uint64_t saved_step; /* of the last checkpoint */
    int64_t saved_epoch; /* the last epoch with a checkpoint after its evaluation */
    int64_t stop;        /* the signal by which all ranks stop early, or TUTTI__UNSAVED; 0: none */
    bool complete;       /* nothing was left to do when the run was resumed */
    /* it was resumed from a checkpoint after all steps and evaluations; lr_find: the loss has diverged */
    bool finished;
    /* it was resumed in another folder, with a model that no rank has all of: if it ends without a step, it needs a checkpoint of its own */
    bool saved_elsewhere;
    bool ended; /* all results are written */
    tutti__shared_position shared;
} tutti__position;

/* Of a run that begins. */
static inline tutti__position tutti__position_begin(void)
{
    return (tutti__position){.at.epoch = 1, .shown_loss = NAN, .scores = tutti__no_scores()};
}

#endif
