/* run.h -- the state of one rank's run, shared by the files of this folder.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_RUN_H
#define TUTTI_TRAIN_RUN_H

#include "train/checkpoint.h"
#include "train/clock.h"
#include "train/config.h"
#include "train/cores.h"
#include "train/gpus.h"
#include "train/job.h"
#include "train/ledger.h"
#include "train/logs.h"
#include "train/loss.h"
#include "train/parts.h"
#include "train/plan.h"
#include "train/progress.h"
#include "train/resume.h"
#include "tensor/profile.h"
#include "train/run_folder.h"
#include <tutti/tutti.h>

/* A mean over samples of all ranks, gathered locally and reduced when it is asked for. */
typedef struct tutti__mean {
    double sum, n;
} tutti__mean;

/* How far a run is, and what it has summed up: with module and optimizer all that the next step needs. The same on all ranks. */
typedef struct tutti__standing {
    uint64_t step;  /* optimizer steps done */
    int64_t epoch;  /* running, from 1 */
    uint64_t start; /* samples of this epoch that another number of ranks has done */
    uint64_t batch; /* of those behind them, done: a multiple of grad_accumulation, or all */
    int64_t epochs_done;
    uint64_t skipped_steps;            /* by the scaler */
    tutti__mean log_loss, epoch_loss;  /* of all ranks, since the last log line, in this epoch */
    double shown_loss;                 /* of the last log line; NaN before */
    double val_loss, val_accuracy;     /* of the last evaluation; NaN before */
    double images, log_images;         /* of all ranks */
    double train_seconds, log_seconds; /* in training steps: in all, since the last log line */
} tutti__standing;

/* What else another process needs to go on in this one's place, where ranks come and go (members.h). */
typedef struct tutti__kept {
    char run_dir[TUTTI__CONFIG_TEXT], token[33]; /* of its lock */
    bool complete;                               /* there was nothing to do */
    bool finished;            /* a checkpoint was taken up that has all steps and evaluations */
    bool ended;               /* all is written */
    uint64_t begun_at;        /* the step at which the run folder was begun or continued */
    uint64_t line_due;        /* the last step of which a line is to be written */
    tutti__step_metrics line; /* the last that was written; step 0: none */
    tutti__eval_metrics eval;
    double norm;         /* of the gradient of the last step, where a line is due */
    uint64_t forwards;   /* of a shard */
    int64_t signalled;   /* as run->signalled; 0: not */
    uint64_t samples[2]; /* digest of what steps since `from` were computed of */
    tutti__position from;
    tutti_scaler_state scaler;
    double seconds,
        time[TUTTI__N_TIMES]; /* of the run and its ledger, when ranks last came or went */
    tutti_traffic traffic;
    int64_t members; /* of the last group */
    int64_t lost, joined, left;
    int64_t attempts, taken_over; /* attempts at steps that came to nothing; shards */
} tutti__kept;

typedef struct tutti__run {
    tutti__train_config *config;
    const tutti__parts *parts; /* what its names mean */
    tutti_group *group;
    int rank, size, local_rank;
    int shards; /* of a step, whatever the size; 0: one a rank */
    int shard;  /* at hand; and where the digest of the samples of its batches goes */
    uint64_t *samples;
    int64_t file_size; /* of the run whose config.json was given with --config; 0: none */
    tutti__core_share cores;
    tutti__gpus gpus;
    tutti_ctx *cx;
    const tutti_dataset *train_data, *test_data; /* test_data NULL: no evaluation */
    tutti_dataset *opened[2];                    /* those of them that the run has opened */
    tutti_loader *train_loader, *test_loader;
    tutti_model *model;
    tutti_module *module;
    tutti_elastic *elastic; /* of a run by shards: group and ddp are its */
    struct tutti__members *members;
    tutti_ddp *ddp;
    tutti_zero *zero; /* NULL: each rank has the optimizer's state whole */
    tutti_optim *optim;
    tutti_scaler *scaler; /* NULL: the loss is not scaled */
    tutti_comm_hook hook; /* run NULL: none; DDP has taken it over */
    tutti_schedule schedule;
    tutti__run_folder folder; /* rank 0's */
    char token[33];           /* of its lock */
    tutti__train_job job;
    tutti__resume resume;
    tutti__saving saving;
    tutti__progress progress;
    tutti__logs logs; /* rank 0's */
    tutti__ledger ledger;
    double data_seconds; /* of this step, waited for the loader */
    size_t n_taken;      /* batches of this epoch, with the one at hand */

    tutti__standing at;
    tutti__kept kept;
    uint64_t total_steps;    /* optimizer steps */
    size_t batches;          /* of this epoch behind at.start, on each rank */
    uint64_t saved_step;     /* of the last checkpoint; 0: none */
    bool stopping;           /* all ranks agreed to stop before the end */
    bool summarised;         /* summary.json says how it ended */
    bool told;               /* a failure has been said, on all ranks alike */
    int64_t signalled;       /* which signal, of any rank, once signal_work is done; 0: none */
    tutti_work *signal_work; /* NULL: none under way */

    tutti__loss loss;          /* of the batch at hand */
    tutti__mean local_loss;    /* since the last reduction, this rank */
    double local_images;       /* likewise, with those whose loss the scaler left out */
    double shown_images_per_s; /* of the last log line; NaN before */
    size_t step_samples;       /* of the last step, this rank's */
    uint64_t start_ns;
    double seconds_before;        /* that the run had taken where it was resumed */
    tutti_traffic traffic_before; /* its bytes until there */

    tutti__recorder *recorder; /* NULL: no trace */
    tutti__profile *profile;   /* of its operations; NULL: none */
    size_t recorder_capacity;
    int64_t profile_first, profile_last;
    uint64_t profile_begin_ns, profile_end_ns;
    tutti__clock clock; /* read at both ends of the window */
} tutti__run;

/* Into how many parts the samples of a step are dealt. */
static inline int tutti__run_shares(const tutti__run *run)
{
    return run->shards > 0 ? run->shards : run->size;
}

/* setup.c: everything that a run needs, up to its first step; what fails has been said. tutti__run_close frees it. */
tutti_status tutti__run_open(tutti__run *run);
/* Its parts, for runs that train nothing (inference.c), in this order: the group, whose failure has been said; the test data, of
 * whichever split, and their loader; the model, for these data. */
tutti_status tutti__run_open_group(tutti__run *run);
tutti_status tutti__run_open_test(tutti__run *run, const char *split);
tutti_status tutti__run_open_model(tutti__run *run);
/* Collective, when they are open: MISMATCH on ranks whose data are not as many and of the same shape as rank 0's. */
tutti_status tutti__run_same_data(const tutti__run *run);
/* Its parts, for runs that only take steps (`tutti bench step`), with run->config, group, rank, size and cores set, in this
 * order: data and model, which need no other rank; DDP, where ranks meet; what follows, alone again. */
tutti_status tutti__run_open_alone(tutti__run *run);
tutti_status tutti__run_open_ddp(tutti__run *run);
tutti_status tutti__run_open_optimizer(tutti__run *run);
void tutti__run_close(tutti__run *run);
/* What runs by rank and by shard share: options; rank 0's folder, and what a checkpoint there gives; the weights to start from,
 * unless one has been read; the trace. Once what the run begins with is in memory everywhere its folder is begun. */
tutti_group_opts tutti__run_group_opts(const tutti__run *run);
tutti_ddp_opts tutti__run_ddp_opts(const tutti__run *run);
tutti_status tutti__run_open_files(tutti__run *run);
tutti_status tutti__run_load_init(tutti__run *run);
tutti_status tutti__run_open_trace(tutti__run *run);
tutti_status tutti__run_begin_folder(tutti__run *run);
/* loop.c: all epochs, and checkpoints. Sets run->stopping if a signal ended it early. */
tutti_status tutti__run_epochs(tutti__run *run);
/* A checkpoint in the middle of an epoch; at its end the evaluation comes first. */
bool tutti__run_checkpoint_is_due(const tutti__run *run);
/* Its two halves of an optimizer step. Forward and backward of up to grad_accumulation batches, the first of which is here since
 * begin_ns: the gradient is the mean over their samples, of all ranks. Then new parameters; *norm_p: the gradient's norm,
 * where it was asked for or needed. */
tutti_status tutti__run_gradients(tutti__run *run, tutti_batch *batch, uint64_t begin_ns);
tutti_status tutti__run_update(tutti__run *run, bool wants_norm, double *norm_p);
/* One more step is done, which began at begin_ns: into run->at and the ledger. The seconds that it has taken. */
double tutti__run_count_step(tutti__run *run, uint64_t begin_ns);
/* What the model gives; and the mean loss over a batch, from that and what was to be given. A program's function that returns NULL
 * is named; what else failed poisons the tensor. */
tutti_status tutti__run_forward(const tutti__run *run, tutti_array x, tutti_tensor **output_p);
tutti_status tutti__run_loss(const tutti__run *run, tutti_tensor *output, tutti_array y,
                             tutti_tensor **loss_p);
/* Parts of the first: a batch; the sum of gradients, which is the mean once it is multiplied by *rest_p. */
bool tutti__run_next_batch(tutti__run *run, size_t index, tutti_batch *batch);
tutti_status tutti__run_accumulate(tutti__run *run, tutti_batch *batch, uint64_t begin_ns,
                                   double *rest_p);
tutti_status tutti__run_scale(tutti__run *run, double factor);
/* To the program's functions, on rank 0. */
void tutti__run_tell_step(const tutti__run *run, const tutti__step_metrics *line);
void tutti__run_tell_eval(const tutti__run *run, const tutti__eval_metrics *eval);
/* What is logged: all that has been summed up since the last line, which begins anew; and shown of a step. */
tutti__step_metrics tutti__run_line(tutti__run *run, double norm);
void tutti__run_show(tutti__run *run, bool logged, double seconds);
/* evaluate.c: exact loss and accuracy over the test set; a metrics line and a console line. Sets run->stopping, and gives
 * no result, if a signal comes meanwhile. Collective. */
tutti_status tutti__run_evaluate(tutti__run *run);
/* results.c: the tables at the end, on the console. */
void tutti__run_say_results(tutti__run *run, const tutti__summary *summary);
/* lost.c: what it has cost that the run did not go on by itself; rank 0, where one goes on in its folder, before that is
 * begun. */
void tutti__run_count_lost(tutti__run *run);
/* profile.c: before and after each step, which began at begin_ns. Collective at both ends of the window, at whose end the trace
 * is written; one that cannot be is said and left out. */
tutti_status tutti__run_profile_before(tutti__run *run);
tutti_status tutti__run_profile_after(tutti__run *run, uint64_t begin_ns);
/* Seconds since the run began, before it was resumed too; so the bytes of gradients. */
double tutti__run_seconds(const tutti__run *run);
tutti_traffic tutti__run_traffic(const tutti__run *run);

/* "A signal came to this process": told to all ranks while they do something else, and known to all when it ends. run->stopping
 * says it. */
tutti_status tutti__run_ask_to_stop(tutti__run *run);
tutti_status tutti__run_hear_of_stop(tutti__run *run);
enum {
    TUTTI__UNSAVED = 1000
}; /* in place of its number: a checkpoint has failed, which ends the run */

#endif
