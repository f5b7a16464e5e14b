/* digest_file.h -- RUN_DIR/digests/rank-%d.jsonl, the record of a run's digests.   SPDX-License-Identifier: MIT
 *
 * Its format: docs/diff.md#the-record. */
#ifndef TUTTI_TRAIN_DIGEST_FILE_H
#define TUTTI_TRAIN_DIGEST_FILE_H

#include "device/fingerprint.h"
#include <jansson.h>

/* ["forward","fc1","0123456789abcdef",1.5,-0.25], and the micro-batch unless it is -1. NULL: out of memory. */
json_t *tutti__digest_entry(const char *kind, const char *name, const tutti__fingerprint *f,
                            int64_t micro_batch);
/* Appends the lines, an array of objects, to the file of a rank in a run folder, in one write, so that a kill leaves at most a part of
 * the last one. lines NULL: out of memory. */
tutti_status tutti__digest_file_append(const char *run_dir, int rank, const json_t *lines);

#endif
