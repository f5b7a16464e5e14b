/* verify.h -- what a checkpoint says of itself, and whether that is on the disk.   SPDX-License-Identifier: MIT
 *
 * state.json holds, beside what the run needs,
 *
 *   "tensors": {"model.safetensors": {"conv1.weight": "0123456789abcdef", ...}, ...}    XXH3-64 of each tensor's bytes
 *   "digest"                                                                            of all else that state.json says */
#ifndef TUTTI_CHECKPOINT_VERIFY_H
#define TUTTI_CHECKPOINT_VERIFY_H

#include "checkpoint/safetensors.h"
#include <jansson.h>

/* {"name": digest, ...}; the caller's. NULL: out of memory. */
json_t *tutti__tensor_digests(const tutti__safetensors_source *sources, size_t n);
/* What state.json's "digest" must be. */
tutti_status tutti__state_digest(const json_t *state, char text[33]);
/* Reads all of a checkpoint's folder back, from the disk where the kernel lets its copies go, and compares. FORMAT names the
 * file and the tensor; checkpoints of earlier versions without digests of tensors are only read. */
tutti_status tutti__checkpoint_verify(const char *folder);

#endif
