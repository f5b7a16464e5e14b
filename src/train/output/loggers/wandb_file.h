/* wandb_file.h -- a Weights & Biases run, written offline; `wandb sync` sends it.   SPDX-License-Identifier: MIT
 *
 *   RUN_DIR/wandb/offline-run-DATE_TIME-ID/run-ID.wandb
 *                                          files/{config.yaml,wandb-metadata.json,wandb-summary.json}
 *                 latest-run               a link to the newest
 *
 * Seven bytes of header, then records (proto/wandb.proto) in blocks of 32 KiB as LevelDB's log has them, but with plain CRC-32 and
 * blocks counted from the header on. Each start of a run is a W&B run of its own; those of one run folder are a group.
 * W&B's own variables say where it belongs: WANDB_ENTITY, WANDB_PROJECT (tutti), WANDB_RUN_GROUP and WANDB_NAME (both the run
 * folder's name), WANDB_JOB_TYPE, WANDB_NOTES, WANDB_TAGS (with commas), WANDB_RUN_ID (eight random characters). */
#ifndef TUTTI_TRAIN_WANDB_FILE_H
#define TUTTI_TRAIN_WANDB_FILE_H

#include "train/config/config.h"
#include "train/output/loggers/record_file.h"
#include "train/machine/system.h"

enum { TUTTI__WANDB_ROW = 48 };

/* A named value. */
typedef struct tutti__wandb_item {
    const char *key; /* borrowed, static */
    char json[TUTTI__METRIC_TEXT_SIZE];
} tutti__wandb_item;

typedef struct tutti__wandb_file {
    tutti__record_file records;
    int64_t n_records;
    char folder[4096]; /* files/ */
    char id[65];
    double begin; /* seconds since 1970 */

    tutti__wandb_item row[TUTTI__WANDB_ROW]; /* of the history, not written yet: one row per step */
    size_t n_row;
    uint64_t row_step;
    double row_seconds;                       /* since 1970 */
    tutti__wandb_item last[TUTTI__WANDB_ROW]; /* the last value of each name: the summary */
    size_t n_last;
} tutti__wandb_file;

/* Begins a run under `folder` (RUN_DIR/wandb), after `step` steps. name: the run folder's name. program: what trains, "tutti
 * train". */
tutti_status tutti__wandb_file_open(tutti__wandb_file *file, const char *folder, const char *name,
                                    const char *program, const tutti__train_config *config,
                                    uint64_t step);
/* The numeric fields of a record, under their tags. All calls for one step make one row, which is written when another step
 * begins. */
tutti_status tutti__wandb_file_add(tutti__wandb_file *file, uint64_t step,
                                   tutti__metric_table table, const void *record);
/* Writes the current row, and the summary so far. */
tutti_status tutti__wandb_file_flush(tutti__wandb_file *file);
tutti_status tutti__wandb_file_system(tutti__wandb_file *file, const tutti__system_sample *sample);
/* Ends the run: adds summary.json's fields to the summary. */
tutti_status tutti__wandb_file_end(tutti__wandb_file *file, const tutti__summary *summary);
void tutti__wandb_file_close(tutti__wandb_file *file);

/* The bytes that append `n` bytes of payload to a file of `position` bytes, header included; `out` has room for
 * tutti__wandb_frame_bound(n). Returns how many. */
size_t tutti__wandb_frame(uint8_t *out, uint64_t position, const uint8_t *payload, size_t n);
size_t tutti__wandb_frame_bound(size_t n);

#endif
