/* session.h -- what a step and an evaluation take: a group, data, a model, an optimizer.   SPDX-License-Identifier: MIT
 *
 * `tutti train`, `bench step`, `eval` and `predict` have it in common. It knows no files, no schedule, and nothing of the steps
 * before and after. */
#ifndef TUTTI_TRAIN_SESSION_H
#define TUTTI_TRAIN_SESSION_H

#include "train/config/parts.h"
#include "train/machine/cores.h"
#include "train/session/loss.h"
#include "train/session/loss_weights.h"
#include "train/session/task.h"
#include "train/session/text.h"
#include <string.h>
#include <tutti/pipeline.h>
#include <tutti/tutti.h>

/* A mean over samples: of this rank until it is reduced. */
typedef struct tutti__mean {
    double sum, n;
} tutti__mean;

typedef struct tutti__session_data {
    const tutti_dataset *train, *test; /* test NULL: no evaluation */
    tutti_dataset *opened[2];          /* those that the session has opened, and frees */
    tutti_loader *train_loader, *test_loader;
    const char *
        fit; /* of the training data (tutti_dataset_fitted), for opening others; NULL: none. Borrowed */
} tutti__session_data;

/* The step that is computed, on this rank. */
typedef struct tutti__current_step {
    uint64_t number;       /* from 1 */
    size_t batches;        /* of the epoch, on each rank */
    int shard;             /* the current one */
    uint64_t *samples;     /* the digest to which its samples are added; NULL: none */
    size_t taken;          /* batches of the epoch, including the current one */
    size_t n_samples;      /* of all its batches */
    double data_seconds;   /* wait for the loader */
    double stages_seconds; /* and for other stages of a pipeline */
    tutti__mean loss;      /* since the caller took the sums */
    double images;         /* likewise, including those skipped by the scaler */
    /* for the program's hooks: the epoch; the mean loss over all ranks */
    int64_t epoch;
    double mean_loss;
} tutti__current_step;

/* "This process got a signal": reduced over all ranks while they do other work, and known to all when that ends. */
typedef struct tutti__stop {
    int64_t signal;   /* that any rank got, valid when `work` is done; 0: none */
    tutti_work *work; /* NULL: none in flight */
    bool stopping;    /* all ranks agreed to stop before the end */
    bool cannot_save; /* this rank asks for it: a failed checkpoint ends the run */
} tutti__stop;
enum {
    /* in place of a signal's number: a failed checkpoint ends the run */
    TUTTI__UNSAVED = 1000
};

typedef struct tutti__session {
    tutti__train_config *config;
    const tutti__parts *parts; /* the resolved model and data */
    tutti_group *group;        /* all ranks */
    tutti_mesh *mesh; /* its dimensions pipeline, data and tensor; NULL: all ranks differ in data */
    tutti_elastic *elastic; /* NULL: fixed ranks. Else it owns group and ddp */
    tutti_peers tensor;     /* of the mesh's dimension; size 0: layers are whole */
    int64_t n_parameters;   /* of a pipeline: of all its stages */
    int rank, size, local_rank;
    int shards; /* of a step; 0: one per rank */
    tutti__core_share cores;
    tutti_ctx *cx;
    tutti__session_data data;
    tutti__train_task task;           /* set with the model */
    tutti__loss_weights loss_weights; /* of training */
    tutti__text_figures text;
    tutti_model *model;       /* with a pipeline this rank's part, which that owns */
    tutti_pipeline *pipeline; /* NULL: each rank has all blocks */
    tutti_module *module;
    tutti_ddp *ddp;
    tutti_zero *zero; /* NULL: each rank has all of the optimizer's state */
    tutti_optim *optim;
    tutti_ema *ema;                 /* of the weights; NULL: none */
    tutti_scaler *scaler;           /* NULL: the loss is not scaled */
    tutti_comm_hook hook;           /* run NULL: none; owned by DDP */
    tutti__loss loss;               /* of the current batch */
    struct tutti__digests *digests; /* digests.h; NULL: none are recorded */
    tutti__current_step step;
    tutti__stop stop;
    bool forward_agreed; /* the first forward pass succeeded on all ranks */
    bool reported;       /* a failure was reported, on all ranks */
} tutti__session;

/* Ranks that have a whole model among them compute the same samples. Those at this rank's place in their models, with other
 * samples: gradients are averaged over them. */
static inline tutti_group *tutti__session_data_group(const tutti__session *s)
{
    return s->mesh ? tutti_mesh_group(s->mesh, "data") : s->group;
}

static inline int tutti__session_data_size(const tutti__session *s)
{
    return s->mesh ? tutti_mesh_size(s->mesh, "data") : s->size;
}

/* Among how many ranks or shards the samples of a step are divided. */
static inline int tutti__session_shares(const tutti__session *s)
{
    return s->shards > 0 ? s->shards : tutti__session_data_size(s);
}

/* Whether its layout divides over the ranks what a checkpoint saves. By shards, while steps are done: a group begins with all of the
 * state on each rank. */
static inline bool tutti__session_is_divided(const tutti__session *s)
{
    return s->mesh || (s->config->zero > 0 && s->size > 1);
}
/* And whether the parameters too. */
static inline bool tutti__session_divides_model(const tutti__session *s)
{
    return s->mesh || (s->config->zero == 3 && s->size > 1);
}

/* The device of a session whose steps only count memory (device/planned); not a value that a person can give. */
#define TUTTI__PLANNED_DEVICE "planned"
static inline bool tutti__session_is_planned(const tutti__session *s)
{
    return strcmp(s->config->device, TUTTI__PLANNED_DEVICE) == 0;
}

/* ---- open_session.c: its parts, in this order; with config and parts set ---- */

/* The group that the environment describes; a failure was reported. */
tutti_status tutti__session_open_group(tutti__session *s);
/* open_pipeline.c: the kind of schedule; this rank's stages, locally; then collectively. */
tutti_pipeline_kind tutti__pipeline_kind_of(const tutti__train_config *config);
/* ARG if `freeze` leaves nothing to train. With a pipeline: collective over its stages, after tutti__session_open_alone. */
tutti_status tutti__session_check_frozen(const tutti__session *s);
tutti_status tutti__session_open_pipeline(tutti__session *s, const tutti_model_opts *model_opts);
tutti_status tutti__session_agree_pipeline(tutti__session *s);
/* Elements of all parameters of the model; on all ranks. */
int64_t tutti__session_n_parameters(const tutti__session *s);
/* open_mesh.c, collective: s->mesh, by the keys tensor and pipeline. ARG, on all ranks, if they do not fit the group, or zero_ranks does not. */
tutti_status tutti__session_open_mesh(tutti__session *s);
/* tutti__fail_alone for the group, and for those of the mesh, in which other ranks may wait. */
tutti_status tutti__session_fail_alone(tutti__session *s, tutti_status status);
/* For evaluation alone: data of any split, and their loader; then the model for them. */
tutti_status tutti__session_open_test(tutti__session *s, const char *split);
tutti_status tutti__session_open_model(tutti__session *s);
/* For training, with group (NULL: by shards), rank, size and cores set: data and model, locally; DDP, collectively; the rest,
 * locally again. warmup_steps: of the schedule. */
tutti_status tutti__session_open_alone(tutti__session *s);
/* Its first part, if it is to come before: data sets, unless some are set, which stay the caller's; their loaders. */
tutti_status tutti__session_open_data(tutti__session *s);
tutti_status tutti__session_open_ddp(tutti__session *s);
tutti_status tutti__session_open_optimizer(tutti__session *s, uint64_t warmup_steps);
/* Collective, after opening: MISMATCH on ranks whose data differ from rank 0's in number or shape. */
tutti_status tutti__session_same_data(const tutti__session *s);
/* Options by the configuration. */
tutti_group_opts tutti__session_group_opts(const tutti__session *s);
tutti_ddp_opts tutti__session_ddp_opts(const tutti__session *s);
/* Frees it; may find a signal. */
void tutti__session_close(tutti__session *s);
/* Status, exit code, rank and world size after closing: 128 + the signal that stopped it, which is no failure. */
void tutti__session_outcome(const tutti__session *s, tutti_status status,
                            tutti_trainer_result *result);

/* ---- new_optim.c ---- */

/* The optimizer and its groups, by the configuration. */
tutti_status tutti__session_new_optim(tutti__session *s);
/* ARG: the key offload, on a device whose memory is the host's. */
tutti_status tutti__session_check_offload(const tutti__session *s);

/* ---- train_step.c: a step, of which the caller sets `number` and `batches` ---- */

/* The epoch's batch `index`, or by rank the next one. */
bool tutti__session_next_batch(tutti__session *s, size_t index, tutti_batch *batch);
/* The model's output; the mean loss of a batch, from that and its labels or targets. If a program's function returns NULL, the
 * error names it; other failures poison the tensor. */
tutti_status tutti__session_forward(const tutti__session *s, tutti_array x,
                                    tutti_tensor **output_p);
tutti_status tutti__session_loss(const tutti__session *s, tutti_tensor *output, tutti_array y,
                                 tutti_tensor **loss_p);
/* What backward begins with, from the mean loss of a batch: by loss_reduction that, or the sum of its losses divided by its samples, and
 * times the scaler's scale. */
tutti_tensor *tutti__session_objective(const tutti__session *s, tutti_tensor *loss, tutti_array y);
/* Forward and backward of up to grad_accumulation batches, the first of which was taken at begin_ns: the gradient becomes that of the
 * mean over their samples, of all ranks, or of the sum. By a pipeline or not (pipeline_step.c). */
tutti_status tutti__session_gradients(tutti__session *s, tutti_batch *batch, uint64_t begin_ns);
/* Adds the loss of a batch of n samples, which was asked for, to the step's. NaN and infinity are found on the rank that computes
 * them. */
tutti_status tutti__session_take_loss(tutti__session *s, size_t n);
/* Of a pipeline: n sums that only ranks with the last stage have, and others have 0 of, on all ranks of the pipeline. */
tutti_status tutti__session_share_sums(const tutti__session *s, double *sums, size_t n);
/* Its two halves: the accumulated gradient, which times *rest_p is the mean; and what is asked for, from the gradient and that factor.
 * s->step.n_samples is set. */
tutti_status tutti__session_accumulate(tutti__session *s, tutti_batch *batch, uint64_t begin_ns,
                                       double *rest_p);
tutti_status tutti__session_complete(tutti__session *s, double rest);
/* The update. *skipped_steps counts those that the scaler skips. *norm_p: the gradient's norm, if requested or needed. */
tutti_status tutti__session_update(tutti__session *s, float lr, bool wants_norm,
                                   uint64_t *skipped_steps, double *norm_p);
/* hooks.c: the program's hooks; NULL: it has none. Calls one of them, which may be NULL, for the current step. */
const tutti_trainer_hooks *tutti__session_hooks(const tutti__session *s);
tutti_status tutti__session_hook(const tutti__session *s,
                                 tutti_status (*hook)(void *self,
                                                      const tutti_trainer_update *update));
/* Whether to stop: begins to ask all ranks, and ends it. s->stop has the result. */
tutti_status tutti__session_ask_to_stop(tutti__session *s);
tutti_status tutti__session_hear_of_stop(tutti__session *s);

#endif
