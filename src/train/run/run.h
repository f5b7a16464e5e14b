/* run.h -- the state of one rank's run, shared by the files of this folder.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_RUN_H
#define TUTTI_TRAIN_RUN_H

#include "train/save/checkpoint.h"
#include "train/machine/clock.h"
#include "train/config/config.h"
#include "train/machine/cores.h"
#include "train/machine/gpus.h"
#include "train/folder/job.h"
#include "train/metrics/ledger.h"
#include "train/metrics/logs.h"
#include "train/session/loss.h"
#include "train/config/parts.h"
#include "train/plan/plan.h"
#include "train/metrics/progress.h"
#include "train/save/resume.h"
#include "tensor/profile.h"
#include "train/folder/run_folder.h"
#include <tutti/tutti.h>

/* A mean over samples of all ranks, summed locally and reduced when it is needed. */
typedef struct tutti__mean {
    double sum, n;
} tutti__mean;

/* A run's position and sums: with module and optimizer all that the next step needs. The same on all ranks. */
typedef struct tutti__standing {
    uint64_t step;  /* optimizer steps done */
    int64_t epoch;  /* running, from 1 */
    uint64_t start; /* samples of this epoch used by another number of ranks */
    uint64_t batch; /* batches done after those: a multiple of grad_accumulation, or all */
    int64_t epochs_done;
    uint64_t skipped_steps;            /* by the scaler */
    tutti__mean log_loss, epoch_loss;  /* of all ranks, since the last log line, in this epoch */
    double shown_loss;                 /* of the last log line; NaN before */
    double val_loss, val_accuracy;     /* of the last evaluation; NaN before */
    double images, log_images;         /* samples, of all ranks */
    double train_seconds, log_seconds; /* in training steps: total, since the last log line */
} tutti__standing;

/* What else another process needs to continue in this one's place, in a run whose ranks change (members.h). */
typedef struct tutti__kept {
    char run_dir[TUTTI__CONFIG_TEXT], token[33]; /* of its lock */
    bool complete;                               /* nothing left to do */
    bool finished;            /* resumed from a checkpoint after all steps and evaluations */
    bool ended;               /* all results are written */
    uint64_t begun_at;        /* the step at which the run folder was begun or continued */
    uint64_t line_due;        /* the last step for which a line is due */
    tutti__step_metrics line; /* the last one written; step 0: none */
    tutti__eval_metrics eval;
    double norm;         /* of the gradient of the last step, if a line is due */
    uint64_t forwards;   /* of a shard */
    int64_t signalled;   /* as run->signalled; 0: not */
    uint64_t samples[2]; /* digest of the samples of steps since `from` */
    tutti__position from;
    tutti_scaler_state scaler;
    double seconds, time[TUTTI__N_TIMES]; /* of the run and its ledger, when ranks last changed */
    tutti_traffic traffic;
    int64_t members; /* of the last group */
    int64_t counts;  /* how often they were counted since all began */
    int64_t lost, joined, left;
    int64_t attempts, taken_over; /* failed attempts at steps; shards taken over */
} tutti__kept;

typedef struct tutti__run {
    tutti__train_config *config;
    const tutti__parts *parts; /* the resolved model and data */
    tutti_group *group;
    int rank, size, local_rank;
    int shards; /* of a step; 0: one per rank */
    int shard;  /* the current one; `samples`: the digest to which its samples are added */
    uint64_t *samples;
    int64_t file_size; /* of the run whose config.json was given with --config; 0: none */
    tutti__core_share cores;
    tutti__gpus gpus;
    tutti_ctx *cx;
    const tutti_dataset *train_data, *test_data; /* test_data NULL: no evaluation */
    tutti_dataset *opened[2];                    /* those that the run has opened, and frees */
    tutti_loader *train_loader, *test_loader;
    tutti_model *model;
    tutti_module *module;
    tutti_elastic *elastic; /* of a run by shards: owns group and ddp */
    struct tutti__members *members;
    tutti_ddp *ddp;
    tutti_zero *zero; /* NULL: each rank has all of the optimizer's state */
    tutti_optim *optim;
    tutti_scaler *scaler; /* NULL: the loss is not scaled */
    tutti_comm_hook hook; /* run NULL: none; owned by DDP */
    tutti_schedule schedule;
    tutti__run_folder folder; /* on rank 0 */
    char token[33];           /* of its lock */
    tutti__train_job job;
    tutti__resume resume;
    tutti__saving saving;
    tutti__progress progress;
    tutti__logs logs; /* on rank 0 */
    tutti__ledger ledger;
    double data_seconds; /* wait for the loader in this step */
    size_t n_taken;      /* batches of this epoch, including the current one */

    tutti__standing at;
    tutti__kept kept;
    uint64_t total_steps; /* optimizer steps */
    size_t batches;       /* of this epoch after at.start, on each rank */
    uint64_t saved_step;  /* of the last checkpoint; 0: none */
    bool stopping;        /* all ranks agreed to stop before the end */
    bool summarised;      /* summary.json has the end of the run */
    bool told;            /* a failure was reported, on all ranks */
    bool forward_agreed;  /* the first forward pass succeeded on all ranks */
    int64_t signalled;    /* a signal that any rank got, valid when signal_work is done; 0: none */
    tutti_work *signal_work; /* NULL: none in flight */

    tutti__loss loss;          /* of the current batch */
    tutti__mean local_loss;    /* since the last reduction, this rank */
    double local_images;       /* likewise, including those skipped by the scaler */
    double shown_images_per_s; /* of the last log line; NaN before */
    size_t step_samples;       /* of the last step, this rank's */
    uint64_t start_ns;
    double seconds_before;        /* that the run had taken when it was resumed */
    tutti_traffic traffic_before; /* its bytes until then */

    tutti__recorder *recorder; /* NULL: no trace */
    tutti__profile *profile;   /* of its operations; NULL: none */
    size_t recorder_capacity;
    int64_t profile_first, profile_last;
    uint64_t profile_begin_ns, profile_end_ns;
    tutti__clock clock; /* read at the start and end of the window */
} tutti__run;

/* Among how many ranks or shards the samples of a step are divided. */
static inline int tutti__run_shares(const tutti__run *run)
{
    return run->shards > 0 ? run->shards : run->size;
}

/* setup.c: everything that a run needs before its first step; failures were reported. tutti__run_close frees it. */
tutti_status tutti__run_open(tutti__run *run);
/* Its parts, for runs without training (inference.c), in this order: the group, whose failure was reported; the test data, of
 * any split, and their loader; the model, for these data. */
tutti_status tutti__run_open_group(tutti__run *run);
tutti_status tutti__run_open_test(tutti__run *run, const char *split);
tutti_status tutti__run_open_model(tutti__run *run);
/* Collective, after opening: MISMATCH on ranks whose data differ from rank 0's in number or shape. */
tutti_status tutti__run_same_data(const tutti__run *run);
/* Its parts, for runs that only take steps (`tutti bench step`), with run->config, group, rank, size and cores set, in this
 * order: data and model, locally; DDP, collectively; the rest, locally again. */
tutti_status tutti__run_open_alone(tutti__run *run);
tutti_status tutti__run_open_ddp(tutti__run *run);
tutti_status tutti__run_open_optimizer(tutti__run *run);
void tutti__run_close(tutti__run *run);
/* Common to runs by rank and by shard: options; rank 0's folder, and the values of a checkpoint there; the initial weights,
 * unless a checkpoint was read; the trace. The folder is begun when all ranks have their initial state in memory. */
tutti_group_opts tutti__run_group_opts(const tutti__run *run);
tutti_ddp_opts tutti__run_ddp_opts(const tutti__run *run);
tutti_status tutti__run_open_files(tutti__run *run);
tutti_status tutti__run_load_init(tutti__run *run);
tutti_status tutti__run_open_trace(tutti__run *run);
tutti_status tutti__run_begin_folder(tutti__run *run);
/* loop.c: all epochs, and checkpoints. Sets run->stopping if a signal ended it early. */
tutti_status tutti__run_epochs(tutti__run *run);
/* Whether a checkpoint is due in the middle of an epoch; at its end the evaluation comes first. */
bool tutti__run_checkpoint_is_due(const tutti__run *run);
/* Whether one is due after the evaluation at the end of an epoch, or of the run (`end`), and where training continues. */
bool tutti__run_epoch_is_due(const tutti__run *run, bool end, int64_t *epoch_p, size_t *batch_p);
/* The two halves of an optimizer step. First: forward and backward of up to grad_accumulation batches, the first of which was
 * taken at begin_ns: the gradient becomes the mean over their samples, of all ranks. Second: the update; *norm_p: the
 * gradient's norm, if requested or needed. */
tutti_status tutti__run_gradients(tutti__run *run, tutti_batch *batch, uint64_t begin_ns);
tutti_status tutti__run_update(tutti__run *run, bool wants_norm, double *norm_p);
/* Counts a finished step, which began at begin_ns, in run->at and the ledger. Returns its seconds. */
double tutti__run_count_step(tutti__run *run, uint64_t begin_ns);
/* The model's output; the mean loss of a batch, from that and its labels or targets. If a program's function returns NULL, the
 * error names it; other failures poison the tensor. */
tutti_status tutti__run_forward(const tutti__run *run, tutti_array x, tutti_tensor **output_p);
tutti_status tutti__run_loss(const tutti__run *run, tutti_tensor *output, tutti_array y,
                             tutti_tensor **loss_p);
/* Parts of the first half: the next batch; the accumulated gradient, which times *rest_p is the mean. */
bool tutti__run_next_batch(tutti__run *run, size_t index, tutti_batch *batch);
tutti_status tutti__run_accumulate(tutti__run *run, tutti_batch *batch, uint64_t begin_ns,
                                   double *rest_p);
tutti_status tutti__run_scale(tutti__run *run, double factor);
/* Calls the program's functions, on rank 0. */
void tutti__run_tell_step(const tutti__run *run, const tutti__step_metrics *line);
void tutti__run_tell_eval(const tutti__run *run, const tutti__eval_metrics *eval);
/* The log line: sums since the last line, which restart; the progress of a step. */
tutti__step_metrics tutti__run_line(tutti__run *run, double norm);
void tutti__run_show(tutti__run *run, bool logged, double seconds);
/* evaluate.c: exact loss and accuracy over the test set; a metrics line and a console line. Sets run->stopping, and returns
 * no result, if a signal comes meanwhile. Collective. */
tutti_status tutti__run_evaluate(tutti__run *run);
/* results.c: the tables at the end, on the console. */
void tutti__run_say_results(tutti__run *run, const tutti__summary *summary);
/* lost.c: counts the time lost by an interruption; on rank 0, if the run resumes in its folder, before that is
 * begun. */
void tutti__run_count_lost(tutti__run *run);
/* profile.c: before and after each step, which began at begin_ns. Collective at both ends of the window; at its end the trace
 * is written; a failure is only reported. */
tutti_status tutti__run_profile_before(tutti__run *run);
tutti_status tutti__run_profile_after(tutti__run *run, uint64_t begin_ns);
/* A run's status, exit code, rank and world size: 128 + the signal that stopped it, which is no failure. After tutti__run_close,
 * which may find a signal. */
void tutti__run_outcome(const tutti__run *run, tutti_status status, tutti_trainer_result *result);
/* Seconds since the run began, including those before it was resumed; likewise bytes of gradients. */
double tutti__run_seconds(const tutti__run *run);
tutti_traffic tutti__run_traffic(const tutti__run *run);

/* "This process got a signal": reduced over all ranks while they do other work, and known to all when the reduction ends.
 * run->stopping is the result. */
tutti_status tutti__run_ask_to_stop(tutti__run *run);
tutti_status tutti__run_hear_of_stop(tutti__run *run);
enum {
    /* in place of a signal's number: a failed checkpoint ends the run */
    TUTTI__UNSAVED = 1000
};

#endif
