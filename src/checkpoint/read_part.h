/* read_part.h -- a rank's part of a file's tensor.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_READ_PART_H
#define TUTTI_CHECKPOINT_READ_PART_H

#include "checkpoint/weights.h"
#include "ddp/pieces.h"

/* Reads tensor k of the file, as t's dtype, to `dst`: all of it, its first rows if t has fewer, or if layers are divided among ranks
 * what t is of it, unless `whole`. Unless that is all, the whole is in memory meanwhile. */
tutti_status tutti__read_part(tutti__weights *file, size_t k, const tutti_tensor *t, bool whole,
                              void *dst);

#endif
