/* folder.h -- a run's checkpoints on disk: each whole or not there.   SPDX-License-Identifier: MIT
 *
 *   DIR/step-00000120/...        complete
 *   DIR/step-00000140.tmp/...    being written, or left by whoever was killed meanwhile
 *   DIR/latest -> step-00000120
 *
 * A folder gets its name only when all that is in it is on the disk, and loses it before anything in it is removed. What the
 * files are is the caller's affair. One process at a time. */
#ifndef TUTTI_CHECKPOINT_FOLDER_H
#define TUTTI_CHECKPOINT_FOLDER_H

#include "base/base.h"

#define TUTTI__CHECKPOINT_PATH 4096

/* The path of a step's checkpoint. ARG if it is too long. */
tutti_status tutti__checkpoint_path(const char *dir, uint64_t step,
                                    char path[TUTTI__CHECKPOINT_PATH]);
/* The step of a checkpoint's name, "step-00000120" or with folders before it; false for any other. */
bool tutti__checkpoint_step(const char *path, uint64_t *step_p);

/* A checkpoint that is being written, file by file. Opaque. */
enum { TUTTI__DRAFT_FILES = 16 };
typedef struct tutti__draft_file {
    int fd;
    char name[64];
    tutti__hash128_state *hash; /* of what has been written until now; NULL: all has */
    char digest[33];
} tutti__draft_file;
typedef struct tutti__draft {
    const char *dir;
    uint64_t step;
    char folder[TUTTI__CHECKPOINT_PATH];
    tutti__draft_file files[TUTTI__DRAFT_FILES]; /* open until they are on the disk and read back */
    size_t n;
} tutti__draft;

/* An empty temporary folder for this step; `dir` is borrowed. After any failure from here on: abandon. */
tutti_status tutti__checkpoint_begin(tutti__draft *draft, const char *dir, uint64_t step);
/* The next file in it, whose contents follow by tutti__checkpoint_write(draft, ...), a tutti__put. */
tutti_status tutti__checkpoint_file(tutti__draft *draft, const char *name);
tutti_status tutti__checkpoint_write(void *draft, const void *p, size_t bytes);
/* All files on the disk, and read back from it; then the folder gets its name, in place of another of that step, and `latest`
 * points there. */
tutti_status tutti__checkpoint_commit(tutti__draft *draft);
/* Gives it up after a failure, which it returns, with its message. */
tutti_status tutti__checkpoint_abandon(tutti__draft *draft, tutti_status status);

/* The steps of complete ones, the latest first; free() the list. None: *n_p is 0. */
tutti_status tutti__checkpoint_list(const char *dir, uint64_t **steps_p, size_t *n_p);
/* Removes all but the `n` latest (0: none is removed). */
tutti_status tutti__checkpoint_keep(const char *dir, size_t n);
/* Removes those of later steps, what is temporary, and a `latest` that points nowhere. */
tutti_status tutti__checkpoint_keep_until(const char *dir, uint64_t step);
/* Removes all, and DIR itself if nothing else is in it. */
tutti_status tutti__checkpoint_remove_all(const char *dir);

#endif
