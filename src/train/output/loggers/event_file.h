/* event_file.h -- a TensorBoard event file.   SPDX-License-Identifier: MIT
 *
 *   RUN_DIR/tensorboard/events.out.tfevents.SECONDS.HOST.PID.N
 *
 * A record is its length, a masked CRC-32C of that, a message (proto/tensorboard.proto), and its masked CRC-32C. Readers read a
 * folder's files in the order of their names: each start of a run writes a new one, and a start that resumes from a checkpoint
 * tells readers to drop points of later steps in earlier files. */
#ifndef TUTTI_TRAIN_EVENT_FILE_H
#define TUTTI_TRAIN_EVENT_FILE_H

#include "train/config/config.h"
#include "train/output/loggers/histogram.h"
#include "train/output/loggers/record_file.h"

typedef struct tutti__event_file {
    tutti__record_file records;
} tutti__event_file;

/* Removes the event files of an earlier run in `folder`, which may be missing. */
tutti_status tutti__event_file_remove_all(const char *folder);
/* Makes the folder and the next file in it. */
tutti_status tutti__event_file_open(tutti__event_file *file, const char *folder);
/* The run resumes after `step`: readers drop points of later steps. Call it before adding points. */
tutti_status tutti__event_file_resumed(tutti__event_file *file, uint64_t step);
/* The configuration: a table under TEXT, and the run's row under HPARAMS. `name`: of the run. */
tutti_status tutti__event_file_config(tutti__event_file *file, const tutti__train_config *config,
                                      const char *name, uint64_t step);
/* n points, in one record. */
tutti_status tutti__event_file_scalars(tutti__event_file *file, uint64_t step,
                                       const char *const *tags, const double *values, size_t n);
tutti_status tutti__event_file_histogram(tutti__event_file *file, uint64_t step, const char *tag,
                                         const tutti__histogram *histogram);
/* A text, which TensorBoard shows as Markdown: as it is, if it is indented by four spaces. */
tutti_status tutti__event_file_text(tutti__event_file *file, uint64_t step, const char *tag,
                                    const char *text);
/* The run's end, for HPARAMS. */
tutti_status tutti__event_file_ended(tutti__event_file *file, uint64_t step, bool success);
void tutti__event_file_close(tutti__event_file *file);

/* The masked CRC-32C (Castagnoli) of the format. */
uint32_t tutti__masked_crc32c(const void *p, size_t bytes);

#endif
