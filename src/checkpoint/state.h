/* state.h -- a checkpoint's state.json, and the digests that it keeps.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_STATE_H
#define TUTTI_CHECKPOINT_STATE_H

#include "base/base.h"
#include <jansson.h>

/* The JSON of a file of a run, or NULL, and why in *error unless that is NULL; json_decref it. Only a regular file is read: a pipe
 * would be waited for, and a device may not end. */
json_t *tutti__json_read(const char *path, size_t flags, json_error_t *error);

/* What state.json's "digest" must be: of all else that it holds. */
tutti_status tutti__state_digest(const json_t *state, char text[33]);
/* Reads FOLDER/state.json and compares its digest; json_decref what it gives. FORMAT with the path where it is no such file, or
 * damaged. */
tutti_status tutti__state_read(json_t **state_p, const char *folder);

/* One thing that was looked at: a file, or a tensor of a file. problem NULL: it is what its digest says. */
typedef void tutti__verify_call(void *user, const char *file, const char *problem);
typedef struct tutti__verify_counts {
    size_t files, tensors;
    size_t unchecked; /* tensors that no digest covers */
    size_t damaged;
    uint64_t bytes;
} tutti__verify_counts;

/* Reads all of what `path` means, and adds up: a file of weights; a checkpoint with all its files; a run folder, or its
 * checkpoints/, with all its checkpoints and its model.safetensors. `call` hears of each file, and of each thing damaged. FORMAT
 * if anything is, after all was looked at; NOT_FOUND, ARG where there is nothing to look at. */
tutti_status tutti__verify(const char *path, tutti__verify_call *call, void *user,
                           tutti__verify_counts *counts);

#endif
