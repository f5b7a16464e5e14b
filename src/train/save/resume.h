/* resume.h -- resuming a run from a checkpoint.   SPDX-License-Identifier: MIT
 *
 *   checkpoints/step-00000120/model.safetensors        parameters and buffers, PyTorch's names
 *                             optimizer.safetensors    the optimizer's state and numbers of updates
 *                             ema.safetensors          with ema: the average of the weights, and the buffers
 *                             hook-rank-00000.safetensors ...   with PowerSGD: each rank's state
 *                             state.json               the run's position, sums and keys, digests
 *
 * Rank 0 writes and reads, and sends it to the others, so that only rank 0 needs the folder; what the layout divides is in parts, with an
 * index, which the ranks that see the folder write and read (checkpoint/part.h). Random numbers need no state: they are functions of
 * seed, epoch, step and sample. */
#ifndef TUTTI_TRAIN_RESUME_H
#define TUTTI_TRAIN_RESUME_H

#include "checkpoint/optim_block.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/state.h"
#include "train/folder/run_folder.h"
#include "train/plan/plan.h"
#include "train/session/totals.h"
#include <jansson.h>

typedef struct tutti__resume {
    /* What is restored, and from where; borrowed. */
    tutti__session *session;
    tutti__train_plan *plan;
    tutti__position *position;
    tutti__totals *totals;
    const tutti__run_folder *folder;

    bool found;    /* the run resumes from a checkpoint */
    bool finished; /* which was after all steps and evaluations */
    bool complete; /* and all files of the run are written: there is nothing to do */
    bool here;     /* it is in this run folder */
    char path[4096];
    json_t *state;            /* state.json; on every rank once it is shared */
    tutti__optim_block optim; /* rank 0's, as the average */
    tutti__snapshot ema;      /* n 0: none */
    uint64_t ema_updates;
    char why[TUTTI__PLAN_WHY]; /* why a finished run has ended early; "": it has not */
} tutti__resume;

/* If `resume` is a path and run_dir is not given: sets run_dir to the folder that contains it. Rank 0, before the folder is
 * opened. */
tutti_status tutti__resume_find_folder(tutti__train_config *config);
/* Chooses the checkpoint, if there is one to resume from, and reads it: sets the module's values, keeps the rest for apply. On
 * rank 0, when module and folder exist. ARG, naming the key, if the run differs from the checkpoint's. Of a session that is divided
 * the other ranks call tutti__verify_answer meanwhile. */
tutti_status tutti__resume_choose(tutti__resume *r, const tutti__train_job *job);
/* Sends it to the other ranks. Collective. */
tutti_status tutti__resume_share(tutti__resume *r);
/* Restores optimizer, hook and counters. Collective, before the first step. */
tutti_status tutti__resume_apply(tutti__resume *r);
/* Rank 0's part if the others get its state otherwise (regroup.h): ranges of gradients, the digest of samples. */
tutti_status tutti__resume_apply_alone(tutti__resume *r);
void tutti__resume_free(tutti__resume *r);

/* How many ranks the run had. */
static inline int tutti__resume_ranks_then(const tutti__resume *r)
{
    return (int)json_integer_value(json_object_get(r->state, "world_size"));
}
/* Among how many ranks or shards the samples of its steps were divided: fewer than ranks, if those divided the model too. */
int tutti__resume_shares_then(const tutti__resume *r);
/* ---- resume_hook.c: the communication hook ---- */
/* FORMAT if the checkpoint lacks the state of a rank's. Rank 0. */
tutti_status tutti__resume_check_hook(const tutti__resume *r, const char *folder);
/* Restores it on each rank. Collective. */
tutti_status tutti__resume_apply_hook(tutti__resume *r);

/* OK if a checkpoint with these keys (state.json's "config") may be resumed with this run's (resume_keys.c). */
tutti_status tutti__resume_check_keys(const tutti__resume *r, const json_t *keys, const char *path);

#endif
