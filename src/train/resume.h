/* resume.h -- checkpoints of a run, written and taken up again.   SPDX-License-Identifier: MIT
 *
 *   checkpoints/step-00000120/model.safetensors        parameters and buffers, PyTorch's names
 *                             optimizer.safetensors    the optimizer's state and numbers of updates
 *                             hook-rank-00000.safetensors ...   with PowerSGD: what each rank keeps of its gradients
 *                             state.json               where the run was, its sums, its keys, digests
 *
 * Rank 0 writes and reads, the others are told, so that only rank 0 needs to see the folder. Random numbers need no state:
 * they are functions of seed, epoch, step and sample. */
#ifndef TUTTI_TRAIN_RESUME_H
#define TUTTI_TRAIN_RESUME_H

#include "checkpoint/optim_block.h"
#include "checkpoint/state.h"
#include <jansson.h>

struct tutti__run;

typedef struct tutti__resume {
    bool found;    /* the run goes on from a checkpoint */
    bool finished; /* at which all steps and evaluations were done */
    bool complete; /* and all files of the run are written: there is nothing to do */
    bool here;     /* it is of this run folder */
    char path[4096];
    json_t *state;            /* state.json; on every rank once it is shared */
    tutti__optim_block optim; /* rank 0's */
} tutti__resume;

/* Where `resume` is a path and run_dir is not given: the folder that holds it. Rank 0, before the folder is opened. */
tutti_status tutti__resume_find_folder(struct tutti__run *run);
/* Chooses the checkpoint, if there is one to take up, and reads it: the module has its values, the rest waits. Rank 0, when
 * module and folder are there. ARG, naming the key, where the run is another than the checkpoint's. */
tutti_status tutti__resume_choose(struct tutti__run *run);
/* Tells the others. Collective. */
tutti_status tutti__resume_share(struct tutti__run *run);
/* Gives optimizer, hook and counters what they had. Collective, before the first step. */
tutti_status tutti__resume_apply(struct tutti__run *run);
/* Rank 0's part where the others get all of its state by other ways (members.h): ranges of gradients, the digest of samples. */
tutti_status tutti__resume_apply_alone(struct tutti__run *run);
void tutti__resume_free(tutti__resume *resume);

/* OK if a checkpoint with these keys (state.json's "config") may go on with this run's (resume_keys.c). */
tutti_status tutti__resume_check_keys(const struct tutti__run *run, const json_t *keys,
                                      const char *path);

#endif
