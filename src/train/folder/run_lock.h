/* run_lock.h -- one job at a time in a run folder.   SPDX-License-Identifier: MIT
 *
 * The kernel's lock on RUN_DIR/.lock, which cannot outlive its process; the file's contents identify the owner. The file stays:
 * by it a later start of the same job recognises the folder as its own. */
#ifndef TUTTI_TRAIN_RUN_LOCK_H
#define TUTTI_TRAIN_RUN_LOCK_H

#include "train/folder/job.h"

typedef struct tutti__run_lock {
    int fd;    /* -1: not held */
    bool anew; /* the file names no previous owner */
    char token[33];
    tutti__train_job earlier; /* the previous owner */
} tutti__run_lock;

/* Waits a moment for an owner that is ending; else STATE, naming the owner. */
tutti_status tutti__run_lock_take(tutti__run_lock *lock, const char *folder,
                                  const tutti__train_job *job);
void tutti__run_lock_release(tutti__run_lock *lock);
/* Whether it is held, and the file names no other process: also on file systems without locks. */
bool tutti__run_lock_is_own(const tutti__run_lock *lock, const char *folder);
/* Releases it, and removes its file if that is its own and has had no other owner: as if it had never been taken. */
void tutti__run_lock_withdraw(tutti__run_lock *lock, const char *folder);
/* For the other ranks of the run that has it: true if its process has ended, within `ms`, and this process now has the lock
 * with this token, and is recorded as its owner. */
bool tutti__run_lock_inherit(tutti__run_lock *lock, const char *folder, const char *token,
                             const tutti__train_job *job, int ms);
/* Takes it from a process with this token that still has it, but is no member any more, and may be frozen or disconnected: by a
 * new file of the same name. False: it is another job's, or there is no such file. */
bool tutti__run_lock_seize(tutti__run_lock *lock, const char *folder, const char *token,
                           const tutti__train_job *job);
/* Whether it is held, and not seized by another process. */
bool tutti__run_lock_is_held(const tutti__run_lock *lock, const char *folder);

#endif
