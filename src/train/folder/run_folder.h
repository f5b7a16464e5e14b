/* run_folder.h -- the files of one run; rank 0 writes them.   SPDX-License-Identifier: MIT
 *
 *   config.json  metrics.jsonl  summary.json  model.safetensors  ema.safetensors  trace/rank-%d.json
 *   checkpoints/step-%08d/  checkpoints/latest  guard.jsonl  .lock
 *
 * First opened, which changes nothing that an earlier run has left there; then begun, when it is certain that the run will
 * start: from a checkpoint, or from the beginning. In that case an earlier run with weights is moved aside, to earlier-1 or, if
 * that exists, earlier-2, ..., so that restarting by mistake loses nothing. A run that fails before its first step withdraws
 * what it has made. */
#ifndef TUTTI_TRAIN_RUN_FOLDER_H
#define TUTTI_TRAIN_RUN_FOLDER_H

#include "train/config/config.h"
#include "train/metrics/metrics.h"
#include "train/folder/run_lock.h"
#include <jansson.h>
#include <tutti/nn.h>

/* The steps of the last lines of metrics.jsonl; 0: none. */
typedef struct tutti__logged {
    uint64_t step, eval, system;
} tutti__logged;

typedef struct tutti__run_folder {
    char path[TUTTI__CONFIG_TEXT];
    tutti__run_lock lock;
    int metrics;                         /* file descriptor; -1: closed */
    char *pending;                       /* lines of metrics.jsonl that could not be written yet */
    size_t n_pending;                    /* bytes */
    bool torn;                           /* the last one could not be written, which was reported */
    char aside[TUTTI__CONFIG_TEXT + 32]; /* where the earlier run was moved; "": there was none */
    size_t made;                         /* how many bytes at the end of path this run has made */
    bool blank;                          /* it held nothing when it was opened */
    const tutti__metric_tables *tables;  /* with the program's metrics; NULL: it has none */
} tutti__run_folder;

/* Makes the folder (config->run_dir, or one under runs/, which is then stored there), and takes its lock. A
 * later start of the same job gets the same folder. */
tutti_status tutti__run_folder_open(tutti__run_folder *folder, tutti__train_config *config,
                                    const tutti__train_job *job);
/* Writes config.json and opens metrics.jsonl, from the beginning: an earlier run is moved aside, or removed if it has no
 * weights. DISK if `bytes` more do not fit. */
tutti_status tutti__run_folder_begin(tutti__run_folder *folder, const tutti__train_config *config,
                                     uint64_t bytes);
/* Resumes after `step`: lines and checkpoints of later steps are removed. DISK as above. */
tutti_status tutti__run_folder_continue(tutti__run_folder *folder,
                                        const tutti__train_config *config, uint64_t step,
                                        uint64_t bytes);
/* Takes the place of a rank that has gone, with its lock: lines after *logged and checkpoints after `step` are removed, unless
 * another group of the run has gone on beyond the next step, and written lines. Then *logged has the steps of the last lines. */
tutti_status tutti__run_folder_take_over(tutti__run_folder *folder, uint64_t step,
                                         tutti__logged *logged);
/* RUN_DIR/checkpoints */
tutti_status tutti__run_folder_checkpoints(const tutti__run_folder *folder, char path[4096]);
/* The last step in metrics.jsonl; 0: none. */
uint64_t tutti__run_folder_last_step(const tutti__run_folder *folder);
/* Whether the run is completed, by summary.json. */
bool tutti__run_folder_is_complete(const tutti__run_folder *folder);
/* A line of metrics.jsonl, in one write: a record's fields, or an object of them under `name`. If it cannot be written, which
 * is reported once, it is kept, and retried with the next. */
void tutti__run_folder_line(tutti__run_folder *folder, const char *name, tutti__metric_table table,
                            const void *record);
/* The same for a line that is text already, with its newline. NULL: there was no memory for it. */
void tutti__run_folder_text(tutti__run_folder *folder, const char *line, size_t n);
/* time: {"compute_s": ...}; confusion: a matrix, or NULL. Borrowed. */
tutti_status tutti__run_folder_summary(const tutti__run_folder *folder,
                                       const tutti__summary *summary, const json_t *time,
                                       const json_t *confusion);
/* Tries a last time to write the kept lines. */
tutti_status tutti__run_folder_flush(tutti__run_folder *folder);
/* Writes the module's values as `name`, such as model.safetensors. */
tutti_status tutti__run_folder_weights(const tutti__run_folder *folder, const char *name,
                                       const tutti_module *m);
/* Makes `name` a hard link to the file in the checkpoint of `step`, which needs no space. */
tutti_status tutti__run_folder_link_weights(const tutti__run_folder *folder, const char *name,
                                            uint64_t step);
/* Whether the checkpoint of `step` exists, and has STEM ("model"), in one file or in parts. */
bool tutti__run_folder_has_parts(const tutti__run_folder *folder, const char *stem, uint64_t step);
/* The same for all parts of STEM there, and their index, or its one file if ranks have not written parts. */
tutti_status tutti__run_folder_link_parts(const tutti__run_folder *folder, const char *stem,
                                          uint64_t step);
/* Moves the parts of an earlier run. */
tutti_status tutti__run_folder_move_parts(const char *from_dir, const char *to_dir);
void tutti__run_folder_close(tutti__run_folder *folder);
/* Closes it, and removes what opening and beginning have made: its files if it was blank, and folders that were made and are
 * empty again. An earlier run that was moved aside comes back, and then aside is "". Nothing of another owner is touched. Not if it
 * was begun and held other files, which would keep a config.json without a lock. */
void tutti__run_folder_withdraw(tutti__run_folder *folder);

#endif
