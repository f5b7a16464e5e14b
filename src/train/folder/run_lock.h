/* run_lock.h -- one job at a time in a run folder.   SPDX-License-Identifier: MIT
 *
 * The kernel's lock on RUN_DIR/.lock, which cannot outlive its process; the file's contents identify the owner. The file stays:
 * by it a later start of the same job recognises the folder as its own.
 *
 * In a run by shards the owner is rank 0 of a generation, which the file names as well. Only a later generation takes the lock from
 * a process that still has it; so of two groups that both believe that they continue the run, one stops writing. */
#ifndef TUTTI_TRAIN_RUN_LOCK_H
#define TUTTI_TRAIN_RUN_LOCK_H

#include "train/folder/job.h"

typedef struct tutti__run_lock {
    int fd;         /* -1: not held */
    bool anew;      /* the file names no previous owner */
    bool contested; /* taken from a process that may still be writing */
    char token[33];
    size_t n; /* bytes of the owner's record after its generation, and their hash */
    uint64_t hash;
    tutti__train_job earlier; /* the previous owner */
} tutti__run_lock;

/* Waits a moment for an owner that is ending; else STATE, naming the owner. */
tutti_status tutti__run_lock_take(tutti__run_lock *lock, const char *folder,
                                  const tutti__train_job *job);
void tutti__run_lock_release(tutti__run_lock *lock);
/* Whether it is held, and the file names no other process: also on file systems without locks, or whose hosts do not see each
 * other's. */
bool tutti__run_lock_is_own(const tutti__run_lock *lock, const char *folder);
/* Releases it, and removes its file if that is its own and has had no other owner: as if it had never been taken. */
void tutti__run_lock_withdraw(tutti__run_lock *lock, const char *folder);
/* For the other ranks of the run that has it: true if its process has ended, within `ms`, and this process now has the lock
 * with this token, and is recorded as its owner. False, at once, if the file names a later generation than the job's. Where
 * there are no locks, it must name an earlier one. */
bool tutti__run_lock_inherit(tutti__run_lock *lock, const char *folder, const char *token,
                             const tutti__train_job *job, int ms);
/* Takes it from a process with this token that still has it, but is no member any more, and may be frozen or disconnected: by a
 * new file of the same name. False: it is another job's, or of a generation that is not earlier, or there is no such file. */
bool tutti__run_lock_seize(tutti__run_lock *lock, const char *folder, const char *token,
                           const tutti__train_job *job);
/* Whether the file has this token, and names a generation that is not earlier than the job's. */
bool tutti__run_lock_has_later(const char *folder, const char *token, const tutti__train_job *job);
/* Its owner, if it still is that, is now in this generation. */
void tutti__run_lock_renew(const tutti__run_lock *lock, const char *folder,
                           const tutti__train_job *job);
/* Whether it is held, and not taken by another process since. */
bool tutti__run_lock_is_held(const tutti__run_lock *lock, const char *folder);
/* Whether it was held, and another process of this run has taken it since. */
bool tutti__run_lock_is_lost(const tutti__run_lock *lock, const char *folder);

#endif
