/* saving.h -- checkpoints of a run, and what happens if one cannot be written.   SPDX-License-Identifier: MIT
 *
 * All ranks meet for a checkpoint; rank 0, or with a layout that divides the state every rank, starts writing it (writer.h), and
 * training continues. A failure is known later: at
 * the latest when the next checkpoint is due, which waits for the previous one. With checkpoint_failure=continue rank 0 reports
 * it, and the next checkpoint is another try; with stop all ranks end at the next step. The run waits for its last
 * checkpoint; if that fails, older ones are removed to make room, and it is tried once more. */
#ifndef TUTTI_TRAIN_SAVING_H
#define TUTTI_TRAIN_SAVING_H

#include "train/folder/run_folder.h"
#include "train/output/progress.h"
#include "train/plan/plan.h"
#include "train/save/writer.h"
#include "train/session/totals.h"

typedef struct tutti__saving {
    /* What is saved, and where; borrowed. */
    tutti__session *session;
    const tutti__train_plan *plan;
    const tutti__position *position;
    tutti__totals *totals;
    const tutti__run_folder *folder;
    const tutti__checksums *checksums; /* of the memory that is saved; n 0: none */
    tutti__progress *progress;

    tutti__writer
        *writer; /* from the first checkpoint on; of other ranks than 0 if they write parts */
    char *hooks; /* rank 0's: all ranks' hook state */
    size_t hooks_bytes;
    uint64_t n;           /* checkpoints begun */
    double step_stall_s;  /* this rank's wait for the copy, in this step */
    char unsaved[2048];   /* rank 0's: why the last checkpoint was not saved; "": it was */
    tutti_status failure; /* rank 0's, its status, if it ends the run */
} tutti__saving;

/* Saves the state after all steps until now. Collective; a failure that ends the run was reported, and is the same on all
 * ranks. */
tutti_status tutti__saving_together(tutti__saving *s);
/* The same without an agreement on failures, for a run by shards: s->failure ends it. By rank 0 alone if the other ranks have no
 * state to add; with ZeRO all ranks call it. Errors: those of the group. */
tutti_status tutti__saving_alone(tutti__saving *s);
/* Before this rank leaves its group: a write by all ranks needs the group until its end. False: it was not completed, since the group
 * is lost, and the state of that step is not saved. */
bool tutti__saving_leave(tutti__saving *s);
/* Before each update: waits until parameters and state may change. Handles the result of a finished write. */
void tutti__saving_copied(tutti__saving *s);
/* At the end, if a file could not be written (status, and the thread's error): removes all checkpoints but the newest, and
 * reports it. False if the disk is not full, there is nothing to remove, or keep_checkpoints is 0. Rank 0. */
bool tutti__saving_make_room(tutti__saving *s, tutti_status status);
/* Waits for a write in flight, reports its failure, and frees. */
void tutti__saving_close(tutti__saving *s);

/* state_json.c: state.json without digests; NULL without memory. */
json_t *tutti__state_json(const tutti__saving *s);

#endif
