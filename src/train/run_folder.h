/* run_folder.h -- the files of one run; rank 0 writes them.   SPDX-License-Identifier: MIT
 *
 *   config.json  metrics.jsonl  summary.json  model.safetensors  trace/rank-%d.json
 *   checkpoints/step-%08d/  checkpoints/latest  .lock
 *
 * Opened first, which changes nothing that an earlier run has left there; then begun, when it is sure that the run will
 * start: anew, in place of an earlier run, or where a checkpoint was taken. */
#ifndef TUTTI_TRAIN_RUN_FOLDER_H
#define TUTTI_TRAIN_RUN_FOLDER_H

#include "train/config.h"
#include "train/metrics.h"
#include "train/run_lock.h"
#include <jansson.h>
#include <tutti/nn.h>

typedef struct tutti__run_folder {
    char path[TUTTI__CONFIG_TEXT];
    tutti__run_lock lock;
    int metrics;   /* file descriptor; -1: closed */
    bool replaced; /* it held a run */
    bool torn;     /* a line of metrics.jsonl could not be written, which has been said */
} tutti__run_folder;

/* Makes the folder (config->run_dir, or one under runs/, which is filled in), takes its lock, and checks that `bytes` more
 * will fit. A later start of the same job gets the same folder. */
tutti_status tutti__run_folder_open(tutti__run_folder *folder, tutti__train_config *config,
                                    const tutti__train_job *job, uint64_t bytes);
/* Writes config.json and opens metrics.jsonl. From the beginning: what an earlier run has left is removed. */
tutti_status tutti__run_folder_begin(tutti__run_folder *folder, const tutti__train_config *config);
/* After `step`, in `epoch`: lines and checkpoints of later steps are removed, and evaluations from that epoch on. */
tutti_status tutti__run_folder_continue(tutti__run_folder *folder,
                                        const tutti__train_config *config, uint64_t step,
                                        int64_t epoch);
/* RUN_DIR/checkpoints */
tutti_status tutti__run_folder_checkpoints(const tutti__run_folder *folder, char path[4096]);
/* Whether summary.json says that the run was completed. */
bool tutti__run_folder_is_complete(const tutti__run_folder *folder);
/* A line of metrics.jsonl, one write: a record's fields, or an object of them under `name`. A line that cannot be written
 * is said once, and left out. */
void tutti__run_folder_line(tutti__run_folder *folder, const char *name, tutti__metric_table table,
                            const void *record);
/* The same of a line that is text already, with its newline. NULL: there was no memory for it. */
void tutti__run_folder_text(tutti__run_folder *folder, const char *line, size_t n);
/* time: {"compute_s": ...}, borrowed. */
tutti_status tutti__run_folder_summary(const tutti__run_folder *folder,
                                       const tutti__summary *summary, const json_t *time);
tutti_status tutti__run_folder_weights(const tutti__run_folder *folder, const tutti_module *m);
void tutti__run_folder_close(tutti__run_folder *folder);

#endif
