/* read_part.h -- a rank's part of a file's tensor.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_READ_PART_H
#define TUTTI_CHECKPOINT_READ_PART_H

#include "checkpoint/weights.h"
#include "ddp/pieces.h"

/* Reads tensor k of the file, which has t's whole shape, as t's dtype to `dst`: all of it, or if layers are divided among ranks what
 * t is of it; then the whole is in memory meanwhile. */
tutti_status tutti__read_part(tutti__weights *file, size_t k, const tutti_tensor *t, void *dst);

#endif
