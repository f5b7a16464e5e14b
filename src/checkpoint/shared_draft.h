/* shared_draft.h -- a checkpoint into whose folder several ranks write.   SPDX-License-Identifier: MIT
 *
 *   rank 0    begin ─ writes its files ─ meet: all have ended ─ what only it writes, commit ─ close: tells the others
 *   others    begin ─ write their files ─ meet: settled, or why not ──────────────────────── close: hear whether it is complete
 *
 * begin is collective; the others use messages between two ranks, so that a thread can call them while training continues. */
#ifndef TUTTI_CHECKPOINT_SHARED_DRAFT_H
#define TUTTI_CHECKPOINT_SHARED_DRAFT_H

#include "checkpoint/checkpoint_folder.h"
#include <tutti/group.h>

enum { TUTTI__SHARED_FILES = 3 }; /* a rank's at most, of parts */

typedef struct tutti__shared_draft {
    tutti__draft draft;
    tutti_group *group;
    int rank, size;
    bool *may;         /* by rank: it sees the folder that rank 0 has made */
    uint64_t *headers; /* rank 0's, by file and rank: digests of what each has written */
} tutti__shared_draft;

/* Rank 0 makes the folder (tutti__checkpoint_begin), in which each rank that sees it may write. Ranks of other hosts do not, if the
 * file system is not shared: rank 0 warns of them. Collective; all ranks return the same. dir, is_owner: rank 0's. One
 * at a time in a group. */
tutti_status tutti__shared_begin(tutti__shared_draft *shared, tutti_group *group, const char *dir,
                                 uint64_t step, bool (*is_owner)(const void *owner),
                                 const void *owner);
/* The same for tutti__checkpoint_begin_at. */
tutti_status tutti__shared_begin_at(tutti__shared_draft *shared, tutti_group *group,
                                    const char *path);
/* This rank's files are written, or `status` is why not; headers: their digests. Other ranks than 0 sync and close the folder. Rank 0
 * returns the first failure of any, "rank 2: ...", and has all headers. */
tutti_status tutti__shared_meet(tutti__shared_draft *shared, tutti_status status,
                                const uint64_t headers[TUTTI__SHARED_FILES]);
/* Rank 0 says whether the checkpoint is complete, after commit or abandon; all return that, with its message. Frees. */
tutti_status tutti__shared_close(tutti__shared_draft *shared, tutti_status status);
/* Instead of all of them, on all ranks: rank 0 removes the folder. Keeps the thread's message. */
void tutti__shared_drop(tutti__shared_draft *shared);

#endif
