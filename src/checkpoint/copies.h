/* copies.h -- what a checkpoint saves, as copies, from which its files are written.   SPDX-License-Identifier: MIT
 *
 * What rank 0 has whole, it copies and writes alone. What a layout divides (the optimizer's state with ZeRO) is copied and written in
 * parts by all ranks (part.h). */
#ifndef TUTTI_CHECKPOINT_COPIES_H
#define TUTTI_CHECKPOINT_COPIES_H

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/part.h"
#include "checkpoint/shared_draft.h"

typedef enum tutti__copy_of {
    TUTTI__COPY_MODEL,
    TUTTI__COPY_OPTIM,
    TUTTI__COPY_EMA,
    TUTTI__COPIES
} tutti__copy_of;

_Static_assert((int)TUTTI__COPIES == (int)TUTTI__SHARED_FILES,
               "a rank writes a file of each at most");

/* Starts as {.module, .optim, .average}; memory is kept for the next checkpoint. */
typedef struct tutti__copies {
    tutti_module *module;
    tutti_optim *optim; /* NULL: none, as the average */
    tutti_ema *average;

    tutti_group *group; /* NULL: nothing is divided, and only rank 0 copies */
    tutti__part parts[TUTTI__COPIES];
    bool divided[TUTTI__COPIES];
    tutti__mover mover;
    char *buffers; /* of a divided model: as they were when the checkpoint began */
    char digests[TUTTI__COPIES][33];

    /* of what is not divided, on rank 0 */
    tutti__snapshot model, ema;
    tutti__optim_block block;
    uint64_t headers[TUTTI__COPIES]; /* digests of those in their files */
} tutti__copies;

/* Finds what is divided. Collective over the group, and all ranks return the same; without one (NULL) nothing is. */
tutti_status tutti__copies_divide(tutti__copies *c, tutti_group *group);
/* Makes room for what this rank copies, which is all of it, unless it is divided. With something divided: collective; may: the ranks
 * that can write. */
tutti_status tutti__copies_room(tutti__copies *c, const bool *may);
void tutti__copies_free(tutti__copies *c);
/* Copies the buffers, before the next forward pass changes them, in the order of the module's stream. */
tutti_status tutti__copies_take_buffers(tutti__copies *c);
/* Copies all else, and waits for it; by a stream that waits for that one. With something divided, all ranks call it, from any
 * thread. */
tutti_status tutti__copies_take(tutti__copies *c, tutti_stream *stream);
/* Writes this rank's files; headers: digests of those that are parts. */
tutti_status tutti__copies_write(tutti__copies *c, tutti__draft *draft, uint64_t step,
                                 uint64_t headers[TUTTI__COPIES]);
/* The digest of a divided model. All ranks call it, after take, in any case. */
tutti_status tutti__copies_digest(tutti__copies *c);
/* On rank 0, when all files are written: checks that the parts are there, and writes the indices and state.json. headers: by file and
 * rank; NULL: nothing is divided. */
tutti_status tutti__copies_finish(tutti__copies *c, tutti__draft *draft, uint64_t step,
                                  const uint64_t *headers, json_t *state);

#endif
