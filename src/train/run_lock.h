/* run_lock.h -- one job at a time in a run folder.   SPDX-License-Identifier: MIT
 *
 * The kernel's lock on RUN_DIR/.lock, which a process cannot leave behind, and in the file who has it. The file stays: a
 * later start of the same job knows by it that the folder is its own. */
#ifndef TUTTI_TRAIN_RUN_LOCK_H
#define TUTTI_TRAIN_RUN_LOCK_H

#include "train/job.h"

typedef struct tutti__run_lock {
    int fd; /* -1: not held */
    char token[33];
    tutti__train_job earlier; /* who had it before */
} tutti__run_lock;

/* Waits a moment for one who is just ending; STATE, saying who has it. */
tutti_status tutti__run_lock_take(tutti__run_lock *lock, const char *folder,
                                  const tutti__train_job *job);
void tutti__run_lock_release(tutti__run_lock *lock);
/* For the ranks beside the one that took it: true if its process has gone, within `ms`, and the lock with this token is
 * ours now, and the file says so. */
bool tutti__run_lock_inherit(tutti__run_lock *lock, const char *folder, const char *token,
                             const tutti__train_job *job, int ms);
/* Takes it from one with this token that has it still, but is no member any more, and may be frozen or cut off: in a new file
 * of the same name. False: it is another job's, or there is no such file. */
bool tutti__run_lock_seize(tutti__run_lock *lock, const char *folder, const char *token,
                           const tutti__train_job *job);
/* It is, and nobody has seized it. */
bool tutti__run_lock_is_held(const tutti__run_lock *lock, const char *folder);

#endif
