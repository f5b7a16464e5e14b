/* digest_file.h -- RUN_DIR/digests/rank-%d.jsonl, the record of a run's digests.   SPDX-License-Identifier: MIT
 *
 * Its format: docs/diff.md#the-record. Entries are written as text, since a step has hundreds. */
#ifndef TUTTI_TRAIN_DIGEST_FILE_H
#define TUTTI_TRAIN_DIGEST_FILE_H

#include "device/fingerprint.h"
#include <jansson.h>

/* Of the record; zeroed: none. free(p). */
typedef struct tutti__digest_text {
    char *p;
    size_t n, capacity;
    bool failed; /* memory was missing for some of it */
} tutti__digest_text;

void tutti__digest_text_add(tutti__digest_text *text, const char *p, size_t n);
/* Adds ["forward","fc1","0123456789abcdef",1.5,-0.25], and the micro-batch unless it is -1. */
void tutti__digest_entry(tutti__digest_text *entries, const char *kind, const char *name,
                         const tutti__fingerprint *f, int64_t micro_batch);
/* Adds a line: the object, which it releases and which may be NULL for want of memory, with these entries, unless they are NULL. */
void tutti__digest_line(tutti__digest_text *lines, json_t *object,
                        const tutti__digest_text *entries);
/* Appends the lines to the file of a rank in a run folder, in one write, so that a kill leaves at most a part of the last one. */
tutti_status tutti__digest_file_append(const char *run_dir, int rank,
                                       const tutti__digest_text *lines);

#endif
