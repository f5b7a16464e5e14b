/* state.h -- a checkpoint's state.json, and verification by digests.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_STATE_H
#define TUTTI_CHECKPOINT_STATE_H

#include "base/base.h"
#include <jansson.h>

/* The JSON of a file of a run; json_decref it. NULL on failure, with the cause in *error unless error is NULL. Only regular
 * files: a pipe might block, and a device may have no end. */
json_t *tutti__json_read(const char *path, size_t flags, json_error_t *error);

/* The digest of everything in state.json except "digest". */
tutti_status tutti__state_digest(const json_t *state, char text[33]);
/* Of a step over shards: sets "ranges" of state to n numbers (reducer.h). Returns 0, or -1 without memory. */
int tutti__state_set_ranges(json_t *state, const float *ranges, size_t n);
/* Reads them; *n_p is 0 if there are none. The caller frees *ranges_p. FORMAT. */
tutti_status tutti__state_ranges(const json_t *state, const char *folder, float **ranges_p,
                                 size_t *n_p);
/* Reads FOLDER/state.json and checks its digest; json_decref *state_p. FORMAT with the path if it is not such a file, or
 * damaged. */
tutti_status tutti__state_read(json_t **state_p, const char *folder);
/* Of a run, which resumes from it: FORMAT if a key that it needs is missing or out of its range. */
tutti_status tutti__state_check_run(const json_t *state, const char *folder);

/* Reports one checked item: a file, or a tensor of a file. problem NULL: intact. */
typedef void tutti__verify_call(void *user, const char *file, const char *problem);
typedef struct tutti__verify_counts {
    size_t files, tensors;
    size_t unchecked; /* tensors that no digest covers */
    size_t damaged;
    uint64_t bytes;
} tutti__verify_counts;

/* Reads all that `path` means, and counts: a weight file; a checkpoint with all its files; a run folder, or its checkpoints/,
 * with all its checkpoints and its model.safetensors. Calls `call` for each file, and for each damaged item. FORMAT if anything
 * is damaged, after everything was checked; NOT_FOUND, ARG if there is nothing to check. */
tutti_status tutti__verify(const char *path, tutti__verify_call *call, void *user,
                           tutti__verify_counts *counts);

#endif
