/* run.h -- one rank's run: a session, its position, and where results go.   SPDX-License-Identifier: MIT
 *
 *     train_run.c   from the start to the exit code
 *     open_run.c    everything before the first step; with open_ranks.c or regroup.c
 *     loop.c        the loop: what plan.h says is next, is done
 *     rank_step.c   a step of fixed ranks                       } a run is one of these
 *     shard_step.c  a step of shards, whose ranks come and go   }
 *     guard.c       whether memory is what it should be
 *     program.c     the program ends the run
 *     regroup.c     how a process joins those ranks, and follows changes of the group
 *     lines.c       after steps and evaluations: metrics, logs, progress
 *     header.c, results.c, write_results.c   the first lines; the last ones; the files at the end */
#ifndef TUTTI_TRAIN_RUN_H
#define TUTTI_TRAIN_RUN_H

#include "ddp/persistent.h"
#include "tensor/op_profile.h"
#include "train/machine/clock.h"
#include "train/machine/gpus.h"
#include "train/output/logs.h"
#include "train/run/lr_find.h"
#include "train/save/resume.h"
#include "train/save/saving.h"

/* The window of the key `profile`. */
typedef struct tutti__trace_window {
    tutti__recorder *recorder; /* NULL: no trace */
    tutti__profile *profile;   /* of its operations; NULL: none */
    size_t capacity;
    int64_t first, last; /* steps */
    uint64_t begin_ns, end_ns;
    tutti__clock clock; /* read at the start and end of the window */
} tutti__trace_window;

/* tutti_trainer_stop on this rank. */
typedef struct tutti__stop_wish {
    bool made;
    char why[128];
} tutti__stop_wish;

/* What guard.c knows. */
typedef struct tutti__guard {
    tutti__checksums checksums; /* of the memory after step `checksums_step` */
    uint64_t checksums_step;
    bool begun;                            /* there were checksums of what it began with */
    double check_seconds, compare_seconds; /* of the last comparison of replicas, and of memory */
    double memory_seconds;
    double step_seconds; /* of `steps` steps of this process, without the first */
    uint64_t steps;
    double seconds; /* of all checks of this process */
    uint64_t checks;
    bool caught; /* something was wrong: this process must end, */
    bool alone;  /* and only this one: nothing of it has reached others */
} tutti__guard;

typedef struct tutti__train_run tutti__train_run;

/* What fixed ranks and shards do differently. */
typedef struct tutti__run_kind {
    /* Everything before the first step; failures were reported. */
    tutti_status (*open)(tutti__train_run *run);
    /* The loop, until the end of the run, or until this process leaves it; failures were reported. */
    tutti_status (*work)(tutti__train_run *run);
    /* Before each action: the group is there. *over_p: this process has left the run. NULL: nothing. */
    tutti_status (*join)(tutti__train_run *run, bool *over_p);
    /* *over_p: this process has left the run, or must end. */
    tutti_status (*step)(tutti__train_run *run, bool *over_p);
    /* Before a line: sums of all ranks since the last one. */
    tutti_status (*exchange)(tutti__train_run *run);
    tutti_status (*save)(tutti__train_run *run);
    /* Every rank passes the status of its local work; a failure of any is that of all, and reported. */
    tutti_status (*agree)(tutti__train_run *run, tutti_status status);
    /* At the end: whether all replicas are equal, and each step had its samples. */
    tutti_status (*check)(tutti__train_run *run);
    /* After a failure: true: continue with what is next. NULL: never. */
    bool (*recover)(tutti__train_run *run, tutti_status status);
} tutti__run_kind;
extern const tutti__run_kind tutti__rank_run, tutti__shard_run;

struct tutti__train_run {
    const tutti__run_kind *kind;
    tutti__session session;
    tutti__train_plan plan;
    tutti__position position;
    tutti__totals totals;
    tutti__run_folder folder; /* on rank 0 */
    char token[33];           /* of its lock */
    tutti__train_job job;
    tutti__resume resume;
    tutti__saving saving;
    tutti__gpus gpus;
    tutti__progress progress;
    tutti__logs logs; /* on rank 0 */
    tutti__metric_tables tables;
    struct tutti__sampler *sampler; /* of a language model's texts; NULL: none yet */
    char digests[2][33];            /* of a divided model, and its averages, at the end; "": none */
    json_t *confusion;              /* of the last evaluation; NULL: none, or too many classes */
    tutti__logged logged; /* the last lines that this process wrote to them, or found there */
    tutti__trace_window trace;
    tutti__guard guard;
    tutti__lr_find lr_find;               /* with that key */
    struct tutti__elastic_worker *worker; /* NULL: fixed ranks */
    tutti__run_cursor sought;             /* epoch and start of the loader; epoch 0: none */
    int64_t file_size; /* of the run whose config.json was given with --config; 0: none */
    tutti__stop_wish wish;
    int64_t planned_memory; /* of rank 0, on it; 0: not planned */
    double step_seconds;
    double shown_images_per_s; /* of the last log line; NaN before */
    bool summarised;           /* summary.json has the end of the run */
};

/* Trains as configured, in the group that the environment describes; prints progress on standard output (rank 0) and failures
 * on standard error. Fills in run_dir and the result. */
tutti_status tutti__train(tutti__train_config *config, const tutti__parts *parts,
                          tutti_trainer_result *result);

/* ---- open_run.c ---- */

/* Common to runs by rank and by shard: data, model, plan and trace; rank 0's folder, and the values of a checkpoint
 * there; the initial weights, unless a checkpoint was read. The folder is begun when all ranks have their initial state in
 * memory. */
tutti_status tutti__run_open_alone(tutti__train_run *run);
tutti_status tutti__run_open_files(tutti__train_run *run);
tutti_status tutti__run_load_init(tutti__train_run *run);
/* When all ranks know that there is no checkpoint: those of a pipeline's stages that rank 0 has not. */
tutti_status tutti__run_load_stage(tutti__train_run *run);
/* --init where each rank has a share of the weights, after their layout is known. Collective. */
tutti_status tutti__run_load_pieces(tutti__train_run *run);
tutti_status tutti__run_begin_folder(tutti__train_run *run);
/* checkpoints/best as the position says, if that checkpoint is there: a kill may have come before the link. */
tutti_status tutti__run_point_best(tutti__train_run *run);

/* ---- loop.c ---- */

/* Until the end of the run, or until this process leaves it. */
tutti_status tutti__run_loop(tutti__train_run *run);
/* Parts of a step, in this order: a new epoch, if it is time; where the loader is; the second half, after the gradients; counts
 * a step of `batches` batches that began at begin_ns; shows it. */
void tutti__run_begin_step(tutti__train_run *run);
void tutti__run_seek(tutti__train_run *run);
tutti_status tutti__run_update(tutti__train_run *run);
void tutti__run_count_step(tutti__train_run *run, size_t batches, uint64_t begin_ns);
tutti_status tutti__run_end_step(tutti__train_run *run, uint64_t begin_ns);

/* ---- lines.c ---- */

/* Whether this process has the run folder. By shards, if rank 0 was frozen, another may have taken it, and its group is dead. */
bool tutti__run_has_folder(const tutti__train_run *run);
/* PEER if it had, and another group of the run has: what this one goes on to compute would be in no file. */
tutti_status tutti__run_check_folder(const tutti__train_run *run);
/* Begins the logs in the run folder, which was begun after `step` steps. */
void tutti__run_begin_logs(tutti__train_run *run, uint64_t step);
/* A line of metrics.jsonl, the logs and the console; the sums since the last line restart. */
tutti_status tutti__run_line(tutti__train_run *run);
/* Exact loss and accuracy over the test set, and their lines. Sets position.stop, and gives no result, if a signal comes meanwhile.
 * Collective. */
tutti_status tutti__run_evaluate(tutti__train_run *run);
/* Writes the position's last line and evaluation, on the rank that has the folder, unless they are there; calls the program's
 * functions with them. */
void tutti__run_write_lines(tutti__train_run *run);
/* The progress of a step. */
void tutti__run_show(tutti__train_run *run, bool logged);

/* ---- guard.c ---- */

/* After a step: what it took. */
void tutti__guard_count_step(tutti__train_run *run);
/* Collective, between steps: compares replicas, takes checksums of memory, and decides when this is due again. DEVICE if the memory of ranks differs,
 * on all of them. */
tutti_status tutti__guard_check(tutti__train_run *run);
/* Before the first step of this process, or by shards in a group: takes checksums of what was made, loaded or received. */
tutti_status tutti__guard_begin(tutti__train_run *run);
/* Before an update, or before this rank's part of it reaches others: DEVICE if memory has changed since the checksums of the last one. */
tutti_status tutti__guard_memory(tutti__train_run *run);
/* By shards, after a try: records what this process was found to have computed wrong. */
void tutti__guard_shards(const tutti__train_run *run);
/* Compares replicas at the end of the run, also with guard=0. Collective. */
tutti_status tutti__guard_compare(tutti__train_run *run);
/* The memory is about to be written by others than an update. */
void tutti__guard_forget(tutti__train_run *run);
void tutti__guard_close(tutti__train_run *run);

/* ---- The others ---- */

/* histograms.c: after an update, while its gradients are valid, if histograms are due. Collective, if ranks have different parts. */
tutti_status tutti__run_histograms(tutti__train_run *run);
/* open_ranks.c: the open of tutti__rank_run. */
tutti_status tutti__ranks_open(tutti__train_run *run);
/* plan_memory.c: with data open, on rank 0, before anything large is allocated: what this rank will need. MEMORY, with the layout that
 * would fit, if that is certainly more than there is. */
tutti_status tutti__run_plan_memory(tutti__train_run *run);
/* program.c: notes which run this thread is in, NULL: none; all ranks agree whether the program ends it. Collective. */
void tutti__run_enter(tutti__train_run *run);
tutti_status tutti__run_agree(tutti__train_run *run);
/* Why it is completed before its last step; "": it is not. */
void tutti__run_why(const tutti__train_run *run, char text[TUTTI__PLAN_WHY]);
/* header.c: prints the first lines; watches signals, with the answer to the first. */
void tutti__run_header(tutti__train_run *run);
void tutti__run_watch_signals(const tutti__train_run *run);
/* write_results.c: writes as many results as possible, on rank 0; DISK if any is missing. Of a failed run, its summary with the
 * cause, unless it leaves nothing. */
tutti_status tutti__run_write_results(tutti__train_run *run);
void tutti__run_write_failure(tutti__train_run *run, tutti_status status, const char *reason);
/* Whether a run that failed leaves no folder. */
bool tutti__run_leaves_nothing(const tutti__train_run *run, tutti_status status);
/* sample_text.c: what a language model writes now, on the rank that has the folder; "" if it writes nothing. Borrowed until the next
 * call. A failure is only reported, once. With a mesh all ranks call it, and compute. writes_none: why none is written in this
 * layout; NULL: it is. */
const char *tutti__run_writes_none(const tutti__session *s);
void tutti__run_sample(tutti__train_run *run);
const char *tutti__run_sample_text(const tutti__train_run *run);
void tutti__run_sample_close(tutti__train_run *run);
/* results.c: the tables at the end, on the console. */
void tutti__run_print_results(tutti__train_run *run, const tutti__summary *summary);
/* lost_time.c: counts the time lost by an interruption; on rank 0, if the run resumes in its folder, before that is
 * begun. */
void tutti__run_count_lost(tutti__train_run *run);
/* trace_window.c: opens it; before and after each step, which began at begin_ns. Collective at both ends of the window; at its
 * end the trace is written; a failure is only reported. */
tutti_status tutti__run_trace_open(tutti__train_run *run);
void tutti__run_trace_close(tutti__train_run *run);
tutti_status tutti__run_trace_before(tutti__train_run *run);
tutti_status tutti__run_trace_after(tutti__train_run *run, uint64_t begin_ns);

#endif
