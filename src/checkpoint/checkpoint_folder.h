/* checkpoint_folder.h -- a run's checkpoints on disk: each complete or absent.   SPDX-License-Identifier: MIT
 *
 *   DIR/step-00000120/...        complete
 *   DIR/step-00000140.tmp/...    being written, or left by a killed process
 *   DIR/latest -> step-00000120
 *
 * A folder gets its name only when all of its contents are synced to disk, and loses it before anything in it is removed. The
 * caller chooses the files, and sees to it that one process at a time writes to DIR. */
#ifndef TUTTI_CHECKPOINT_CHECKPOINT_FOLDER_H
#define TUTTI_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "base/base.h"

#define TUTTI__CHECKPOINT_PATH 4096

/* The path of a step's checkpoint. ARG if it is too long. */
tutti_status tutti__checkpoint_path(const char *dir, uint64_t step,
                                    char path[TUTTI__CHECKPOINT_PATH]);
/* The step of a checkpoint's name, "step-00000120" or with folders before it; false for any other. */
bool tutti__checkpoint_step(const char *path, uint64_t *step_p);

/* Whether there is a file of this name in it. */
bool tutti__folder_holds(const char *folder, const char *name);
/* Whether it holds what every checkpoint does. */
bool tutti__is_checkpoint(const char *folder);

/* A checkpoint that is being written, file by file. Opaque. */
enum { TUTTI__DRAFT_FILES = 16 };
typedef struct tutti__draft_file {
    int fd;
    char name[64];
    tutti__hash128_state *hash; /* of what has been written so far; NULL: the file is complete */
    char digest[33];
} tutti__draft_file;
typedef struct tutti__draft {
    const char *dir; /* NULL: it is none of a run's steps */
    uint64_t step;
    bool (*is_owner)(const void *owner);
    const void *owner;
    bool joined;                                 /* another rank has begun it */
    int at;                                      /* `folder`; -1: it is another one */
    int lock;                                    /* of a checkpoint of any name; -1: none */
    char path[TUTTI__CHECKPOINT_PATH];           /* its name when it is complete */
    char folder[TUTTI__CHECKPOINT_PATH];         /* and until then */
    tutti__draft_file files[TUTTI__DRAFT_FILES]; /* open until they are synced and read back */
    size_t n;
} tutti__draft;

/* Makes an empty temporary folder for this step; `dir` is borrowed. After any failure from here on call abandon. is_owner(owner) is
 * asked here, before each file, and right before the checkpoint gets its name: false, and they fail (STATE), if another process
 * writes to DIR now. NULL: not asked. */
tutti_status tutti__checkpoint_begin(tutti__draft *draft, const char *dir, uint64_t step,
                                     bool (*is_owner)(const void *owner), const void *owner);
/* The same for a checkpoint of any name, PATH, whose folder is made if needed; no link points to it. STATE, if another process
 * or thread is writing it. */
tutti_status tutti__checkpoint_begin_at(tutti__draft *draft, const char *path);
/* On another rank than the one that has begun: adds files to the same FOLDER. Then settle, or abandon, which removes nothing. */
tutti_status tutti__checkpoint_join(tutti__draft *draft, const char *folder);
/* Syncs and reads back what was written, and closes the folder, which has no name yet. */
tutti_status tutti__checkpoint_settle(tutti__draft *draft);
/* So that others can tell whether they have the folder on the file system where this rank has it: makes (else removes) an empty file
 * in it, which is no part of the checkpoint. */
tutti_status tutti__checkpoint_mark(const tutti__draft *draft, const char *mark, bool make);
/* If a kill has left no PATH, but the one before it beside it: gives it its name back. */
void tutti__checkpoint_recover(const char *path);
/* The same for all checkpoints in DIR, to which no other process writes. */
void tutti__checkpoint_recover_all(const char *dir);
/* Begins the next file, whose contents tutti__checkpoint_write(draft, ...), a tutti__put, writes. */
tutti_status tutti__checkpoint_file(tutti__draft *draft, const char *name);
tutti_status tutti__checkpoint_write(void *draft, const void *p, size_t bytes);
/* Syncs all files, reads them back from disk, renames the folder (replacing another of that name), and points `latest` to a
 * step's. */
tutti_status tutti__checkpoint_commit(tutti__draft *draft);
/* Removes it after a failure, which it returns, with its message. */
tutti_status tutti__checkpoint_abandon(tutti__draft *draft, tutti_status status);

/* `best` in DIR becomes a link to this step's checkpoint, which must be complete. IO where there are no links. */
tutti_status tutti__checkpoint_point_best(const char *dir, uint64_t step);
/* The steps of complete checkpoints, latest first; free() the list. *n_p is 0 if there are none. */
tutti_status tutti__checkpoint_list(const char *dir, uint64_t **steps_p, size_t *n_p);
/* Removes all but the `n` latest (0: keeps all) and the one to which `best` points. */
tutti_status tutti__checkpoint_keep(const char *dir, size_t n);
/* Removes checkpoints of later steps and temporary folders; then `latest` points at the newest that is left, if any. */
tutti_status tutti__checkpoint_keep_until(const char *dir, uint64_t step);
/* Removes all checkpoints, and DIR itself if it is then empty. */
tutti_status tutti__checkpoint_remove_all(const char *dir);

#endif
