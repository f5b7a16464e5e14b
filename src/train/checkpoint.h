/* checkpoint.h -- when and by whom a checkpoint is written, and what follows where it cannot be.   SPDX-License-Identifier: MIT
 *
 * All ranks come together for a checkpoint; rank 0 begins to write it (writer.h), and the training goes on. A failure is known
 * later: at the latest where the next checkpoint is due, which waits for the one before. With checkpoint_failure=continue
 * rank 0 says it, and the next is another attempt; with stop all ranks end at the next step. The last checkpoint of a run is
 * waited for; where it fails, older ones make room, and it is tried once more. */
#ifndef TUTTI_TRAIN_CHECKPOINT_H
#define TUTTI_TRAIN_CHECKPOINT_H

#include "train/writer.h"

struct tutti__run;

typedef struct tutti__saving {
    tutti__writer *writer; /* rank 0's, from the first checkpoint on */
    char *hooks;           /* rank 0's: what all ranks' hooks keep */
    size_t hooks_bytes;
    uint64_t n;           /* checkpoints begun */
    double stall_s;       /* that this rank has waited for them, in all, */
    double step_stall_s;  /* and of that in this step: for the copy */
    char unsaved[2048];   /* rank 0's: why the last state that was to be saved is not; "": it is */
    tutti_status failure; /* rank 0's, of that, where it ends the run */
} tutti__saving;

/* Saves: all steps until now are done, batches of this epoch up to `batch` too. finished: it is the end. Collective; a
 * failure that ends the run has been said, and is the same on all ranks. */
tutti_status tutti__run_checkpoint(struct tutti__run *run, int64_t epoch, size_t batch,
                                   bool finished);
/* The same of rank 0 by itself, where the others have nothing to bring, and are not told: saving.failure ends the run. With ZeRO all
 * come together before, if rank 0 wants one: *wanted_p is then its answer on all ranks. Collective there, and sends nothing else. */
tutti_status tutti__run_checkpoint_gather(struct tutti__run *run, bool *wanted_p);
tutti_status tutti__run_checkpoint_alone(struct tutti__run *run, int64_t epoch, size_t batch,
                                         bool finished);
/* Before each update: waits until parameters and state may change. Looks after a write that is over. */
void tutti__run_checkpoint_copied(struct tutti__run *run);
/* At the end, where something could not be written (status, and the thread's error): removes all checkpoints but the newest, and
 * says so. False if that is of no use (MEMORY), there is nothing to remove, or keep_checkpoints is 0. Rank 0. */
bool tutti__run_checkpoint_make_room(struct tutti__run *run, tutti_status status);
/* Waits for what is being written, and says where that failed; frees. */
void tutti__run_checkpoint_close(struct tutti__run *run);

#endif
