/* plan.h -- what a run does next, how many steps it has left, and the learning rate.   SPDX-License-Identifier: MIT
 *
 *   step -> a line, if one is due -> at the epoch's end an evaluation -> a checkpoint, if one is due -> step ... -> finish -> end
 *
 * The end may come early: after an evaluation (early_stopping), or when the program says so; then what follows a last step is
 * done, too.
 *
 * All of it are functions of plan and position, which change on all ranks in the same way. So ranks take the same decisions, and
 * those that survive a death, or join, continue at the same point.
 *
 * A run is `epochs` passes over the data, or max_steps steps. The steps per pass depend on the number of ranks, which may
 * differ when a run resumes. With logical shards, read "shards" for "ranks":
 *
 *   samples of the epoch that were used stay used; the rest is divided among the new ranks               (cursor's start)
 *   step numbers continue; the rest of the run takes the steps that its samples need with the new ranks  (total_steps)
 *   the schedule is that of a run which always had the new ranks, at the same distance from its end      (tutti__plan_lr)
 *
 * so that the same fraction of samples has the same rate. With the same number of ranks nothing changes. */
#ifndef TUTTI_TRAIN_PLAN_H
#define TUTTI_TRAIN_PLAN_H

#include "train/plan/position.h"

enum { TUTTI__LR_FIND_STEPS = 100 }; /* of the key lr_find, at most */

typedef struct tutti__train_plan {
    const tutti__train_config *config;
    size_t count;         /* training samples */
    int shares;           /* ranks or shards, among which those of a step are divided */
    bool evaluates;       /* there are test data */
    uint64_t total_steps; /* optimizer steps */
    uint64_t
        schedule_end; /* the step of the schedule's last rate; after total_steps with stop_after */
    tutti_schedule schedule;
} tutti__train_plan;

typedef enum tutti__train_action {
    TUTTI__DO_STEP,
    TUTTI__DO_GUARD, /* compares replicas; before a checkpoint in any case */
    TUTTI__DO_AGREE, /* whether the program ends the run */
    TUTTI__DO_LINE,  /* of metrics.jsonl */
    TUTTI__DO_EVALUATE,
    TUTTI__DO_SAVE,
    TUTTI__DO_FINISH, /* writes the results */
    TUTTI__DO_END
} tutti__train_action;

/* The plan of a run with these data that begins, or continues, at `from`. */
tutti__train_plan tutti__plan_of(const tutti__train_config *config, size_t count, int shares,
                                 bool evaluates, const tutti__run_cursor *from);

/* What to do next at this position. */
tutti__train_action tutti__plan_next(const tutti__train_plan *plan, const tutti__position *p);
/* Before a step: goes on to the next epoch, if the current one is over. */
void tutti__plan_begin_step(const tutti__train_plan *plan, tutti__position *p);
/* Batches of each rank in the step that begins there. */
size_t tutti__plan_step_batches(const tutti__train_plan *plan, const tutti__run_cursor *at);
/* Whether the step that is being made has a line. */
bool tutti__plan_has_line(const tutti__train_plan *plan, const tutti__position *p);
/* After a step of `batches` batches: counts it. */
void tutti__plan_end_step(const tutti__train_plan *plan, tutti__position *p, size_t batches);
/* Of a checkpoint that is due now: whether it is that of an epoch, or of the run, after its evaluation; whether nothing remains
 * but to finish the run; where it continues from there. After it was saved: notes that. */
bool tutti__plan_saves_epoch(const tutti__train_plan *plan, const tutti__position *p);
bool tutti__plan_finishes(const tutti__train_plan *plan, const tutti__position *p);
tutti__run_cursor tutti__plan_saves_at(const tutti__train_plan *plan, const tutti__position *p);
void tutti__plan_saved(const tutti__train_plan *plan, tutti__position *p);
/* Whether the epoch's last batch is done; whether the run ends here: all its steps are done, or it ends early. */
bool tutti__plan_epoch_is_over(const tutti__train_plan *plan, const tutti__run_cursor *at);
bool tutti__plan_is_over(const tutti__train_plan *plan, const tutti__position *p);
/* Why a run of this configuration ends early, as a sentence: by early_stopping, or by the program; "": it does not. */
enum { TUTTI__PLAN_WHY = 320 };
void tutti__plan_why(const tutti__train_config *c, const tutti__best *best, bool stopped,
                     const char *stop_why, char text[TUTTI__PLAN_WHY]);

/* Batches of a rank in an epoch, after `start` samples. */
size_t tutti__plan_batches(const tutti__train_plan *plan, size_t start);
/* Samples of the epoch used so far, by `shares` ranks or shards. */
size_t tutti__plan_samples(const tutti__train_plan *plan, const tutti__run_cursor *at, int shares);
/* Optimizer steps from there to the end. */
uint64_t tutti__plan_left(const tutti__train_plan *plan, const tutti__run_cursor *at);
/* Those of all epochs, whatever max_steps is. */
uint64_t tutti__plan_of_epochs(const tutti__train_plan *plan);
/* The learning rate of the next step. */
float tutti__plan_lr(const tutti__train_plan *plan, const tutti__run_cursor *at);
/* That of parameters whose schedule has so many epochs, from the run's first on; 0 after them. */
float tutti__plan_lr_within(const tutti__train_plan *plan, const tutti__run_cursor *at,
                            double epochs);

#endif
