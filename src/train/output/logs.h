/* logs.h -- a run's metrics while it runs, to all configured logs.   SPDX-License-Identifier: MIT
 *
 * On rank 0. If a log cannot be written, that is reported, and it is closed; the run continues. A log that is not configured
 * opens no file and takes no memory. */
#ifndef TUTTI_TRAIN_LOGS_H
#define TUTTI_TRAIN_LOGS_H

#include "train/config/config.h"
#include "train/machine/gpus.h"
#include "train/metrics/metrics.h"
#include "train/folder/run_folder.h"
#include "train/output/loggers/histogram.h"

typedef struct tutti__logs_open tutti__logs_open; /* all but metrics.jsonl */

typedef struct tutti__logs {
    tutti__run_folder *folder; /* borrowed; NULL: not begun, every call does nothing */
    tutti__logs_open *open;    /* NULL: none configured */
} tutti__logs;

/* Begins, in a folder that was begun, after `step` steps (0: not resumed). Borrows the configuration and gpus. program:
 * what trains, "tutti train". */
void tutti__logs_begin(tutti__logs *logs, tutti__run_folder *folder,
                       const tutti__train_config *config, const char *program,
                       const tutti__gpus *gpus, uint64_t step);
void tutti__logs_step(tutti__logs *logs, const tutti__step_metrics *m);
void tutti__logs_eval(tutti__logs *logs, const tutti__eval_metrics *m);
/* A language model's text, after its evaluation. */
void tutti__logs_sample(tutti__logs *logs, const tutti__sample_metrics *m);
/* Of a parameter or its gradient, with the name `tag`. */
void tutti__logs_histogram(tutti__logs *logs, uint64_t step, const char *tag,
                           const tutti__histogram *histogram);
/* The run's end, also a failed one's; frees what the logs hold. */
void tutti__logs_end(tutti__logs *logs, const tutti__summary *summary);
/* Another rank writes the logs from now on. own: not yet, so pending data is written now. */
void tutti__logs_leave(tutti__logs *logs, bool own);

#endif
