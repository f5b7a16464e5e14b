/* writer.h -- writes checkpoints in a thread of rank 0, or of all ranks if they write parts, while training continues.   SPDX-License-Identifier: MIT
 *
 *   main     begin: buffers, counters | forward and backward of the next step | copied? optimizer | ... | end: its result
 *   thread   copy parameters and state ----------------------> | write, fsync, read back, rename, rotate
 *
 * Parameters and the optimizer's state do not change between two updates, so training need not pause for the copy, unless it is
 * slower than a step's forward and backward. Buffers change in the forward pass and are copied before it, in the order of the
 * context's stream. If there are checksums of that memory, it must still have them after the copy. One write at a time; memory is kept for the next. */
#ifndef TUTTI_TRAIN_WRITER_H
#define TUTTI_TRAIN_WRITER_H

#include "ddp/persistent.h"
#include "train/folder/run_folder.h"
#include <jansson.h>
#include <tutti/group.h>
#include <tutti/optim.h>

typedef struct tutti__writer tutti__writer;

/* What is saved in addition to module, optimizer and average. */
typedef struct tutti__writing {
    char dir[4096]; /* RUN_DIR/checkpoints */
    uint64_t step;
    const tutti__run_folder *folder; /* whose lock it needs; NULL: none */
    size_t keep;                     /* checkpoints to keep; 0: all */
    bool best;                       /* checkpoints/best becomes this one */
    json_t *state;                   /* state.json, without digests */
    /* What memory is; what was copied must be that. n 0: unknown. ddp: whose memory it is. checksums is borrowed until it has begun, ddp until what it is to
     * write is copied */
    const tutti__checksums *checksums;
    const tutti_ddp *ddp;
    int rank;
    char *hooks; /* the ranks' hook states, back to back; borrowed until the end, NULL: none */
    size_t hook_bytes; /* of one rank */
    int ranks;
} tutti__writing;

/* Borrows module, optimizer, average and recorder (NULL: none) until it is freed; freeing waits for a write. */
tutti_status tutti__writer_new(tutti__writer **writer_p, tutti_module *module, tutti_optim *optim,
                               tutti_ema *ema, tutti__recorder *recorder);
void tutti__writer_free(tutti__writer *writer);
/* Before each write: finds what the layout divides over the ranks, of which each then begins its part of the write. Collective over
 * the group; NULL: nothing is divided, and rank 0 alone begins. */
tutti_status tutti__writer_divide(tutti__writer *writer, tutti_group *group);
bool tutti__writer_is_divided(const tutti__writer *writer);
/* Begins a write (divided: collective, and all ranks return the same); takes ownership of writing->state, also on failure. After a failure do not call end. */
tutti_status tutti__writer_begin(tutti__writer *writer, const tutti__writing *writing);
/* Retries a failed write, from the copy. Divided: collective, and only if all ranks have theirs. */
bool tutti__writer_has_copy(const tutti__writer *writer);
tutti_status tutti__writer_again(tutti__writer *writer);
/* Returns when parameters and state may change; true if it had to wait. */
bool tutti__writer_wait_for_copy(tutti__writer *writer);
/* The step of the last write begun. */
uint64_t tutti__writer_step(const tutti__writer *writer);
/* Whether a write was begun and not ended; whether it is over, so that end would not wait. */
bool tutti__writer_is_busy(const tutti__writer *writer);
bool tutti__writer_is_over(tutti__writer *writer);
/* Waits for the write, and returns its result. OK if there is none. */
tutti_status tutti__writer_end(tutti__writer *writer);

#endif
