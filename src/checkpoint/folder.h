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

/* An empty temporary folder for this step, in `temporary`. */
tutti_status tutti__checkpoint_begin(const char *dir, uint64_t step,
                                     char temporary[TUTTI__CHECKPOINT_PATH]);
/* A text file in it, on the disk when this returns. */
tutti_status tutti__checkpoint_text(const char *folder, const char *name, const char *text);
/* Gives it its name, in place of another of that step; then `latest` points there. */
tutti_status tutti__checkpoint_commit(const char *dir, uint64_t step);
/* Gives it up after a failure, which it returns, with its message. */
tutti_status tutti__checkpoint_abandon(const char *dir, uint64_t step, tutti_status status);

/* The steps of complete ones, the latest first; free() the list. None: *n_p is 0. */
tutti_status tutti__checkpoint_list(const char *dir, uint64_t **steps_p, size_t *n_p);
/* Removes all but the `n` latest (0: none is removed). */
tutti_status tutti__checkpoint_keep(const char *dir, size_t n);
/* Removes those of later steps, what is temporary, and a `latest` that points nowhere. */
tutti_status tutti__checkpoint_keep_until(const char *dir, uint64_t step);
/* Removes all, and DIR itself if nothing else is in it. */
tutti_status tutti__checkpoint_remove_all(const char *dir);

#endif
