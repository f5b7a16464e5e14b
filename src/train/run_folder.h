/* run_folder.h -- the files of one run; rank 0 writes them.   SPDX-License-Identifier: MIT
 *
 *   config.json  metrics.jsonl  summary.json  model.safetensors  trace/rank-%d.json
 *
 * Files of the same names from an earlier run are replaced. */
#ifndef TUTTI_TRAIN_RUN_FOLDER_H
#define TUTTI_TRAIN_RUN_FOLDER_H

#include "train/config.h"
#include <tutti/nn.h>

typedef struct tutti__run_folder {
    char path[TUTTI__CONFIG_TEXT];
    int metrics;   /* file descriptor; -1: closed */
    bool replaced; /* it held a run */
} tutti__run_folder;

typedef struct tutti__metrics {
    uint64_t step;
    int64_t epoch;
    double loss, lr, grad_norm, images_per_s, time_s;
} tutti__metrics;

typedef struct tutti__summary {
    const char *status; /* "completed", "interrupted", "failed" */
    int world_size;
    uint64_t steps;
    int64_t epochs;
    double train_loss, val_accuracy, images_per_s, seconds; /* NaN: not known, null in the file */
    uint64_t gradient_bytes,
        wire_bytes; /* of a rank: to be averaged, and given to collectives for it */
    int64_t parameters;
    char digest[33]; /* "": not known */
} tutti__summary;

/* Makes the folder (config->run_dir, or a new one under runs/), checks that `bytes` more will fit, writes config.json with
 * the folder's name filled in, and opens an empty metrics.jsonl. */
tutti_status tutti__run_folder_open(tutti__run_folder *folder, tutti__train_config *config,
                                    uint64_t bytes);
/* One line, one write. */
tutti_status tutti__run_folder_metrics(tutti__run_folder *folder, const tutti__metrics *m);
tutti_status tutti__run_folder_eval(tutti__run_folder *folder, int64_t epoch, double loss,
                                    double accuracy);
tutti_status tutti__run_folder_summary(const tutti__run_folder *folder,
                                       const tutti__summary *summary);
tutti_status tutti__run_folder_weights(const tutti__run_folder *folder, const tutti_module *m);
void tutti__run_folder_close(tutti__run_folder *folder);

#endif
