/* writer.h -- checkpoints written by a thread of rank 0 while the training goes on.   SPDX-License-Identifier: MIT
 *
 *   main     begin: buffers, counters | forward and backward of the next step | copied? optimizer | ... | end: what became of it
 *   thread   copy parameters and state ----------------------> | write, fsync, read back, rename, rotate
 *
 * Parameters and the optimizer's state do not change between two updates, so the copy needs no pause but where it is slower
 * than a step's forward and backward. Buffers change in the forward pass and are copied before it, in the order of the context's
 * stream. One write at a time; memory is kept for the next. */
#ifndef TUTTI_TRAIN_WRITER_H
#define TUTTI_TRAIN_WRITER_H

#include "base/base.h"
#include <jansson.h>
#include <tutti/optim.h>

typedef struct tutti__writer tutti__writer;

/* What is to be saved, beside module and optimizer. */
typedef struct tutti__writing {
    char dir[4096]; /* RUN_DIR/checkpoints */
    uint64_t step;
    size_t keep;   /* rotate to that many; 0: all */
    json_t *state; /* of state.json, without digests */
    char *
        hooks; /* what each rank's hook keeps, one after the other; borrowed until the end, NULL: none */
    size_t hook_bytes; /* of one rank */
    int ranks;
} tutti__writing;

/* Borrows module, optimizer and recorder (NULL: none) until it is freed; freeing waits for a write. */
tutti_status tutti__writer_new(tutti__writer **writer_p, tutti_module *module, tutti_optim *optim,
                               tutti__recorder *recorder);
void tutti__writer_free(tutti__writer *writer);
/* Begins; writing->state is the writer's from then on, whatever comes of it. Where it fails there is nothing to end. */
tutti_status tutti__writer_begin(tutti__writer *writer, const tutti__writing *writing);
/* Once more what could not be written, from the copy. */
tutti_status tutti__writer_again(tutti__writer *writer);
/* Returns when parameters and state may change: true if that was to be waited for. */
bool tutti__writer_wait_for_copy(tutti__writer *writer);
/* Of the last that was begun. */
uint64_t tutti__writer_step(const tutti__writer *writer);
/* A write has been begun and not ended; and is over, so that end would not wait. */
bool tutti__writer_is_busy(const tutti__writer *writer);
bool tutti__writer_is_over(tutti__writer *writer);
/* Waits for the write, and returns what became of it. OK if there is none. */
tutti_status tutti__writer_end(tutti__writer *writer);

#endif
