/* logs.h -- what a run tells while it runs, to all who were asked for.   SPDX-License-Identifier: MIT
 *
 * Rank 0's. A log that cannot be written is said and left out: it does not cost the run. What was not asked for opens no file
 * and takes no memory. */
#ifndef TUTTI_TRAIN_LOGS_H
#define TUTTI_TRAIN_LOGS_H

#include "train/config.h"
#include "train/gpus.h"
#include "train/metrics.h"
#include "train/run_folder.h"

typedef struct tutti__sinks tutti__sinks; /* all but metrics.jsonl */

typedef struct tutti__logs {
    tutti__run_folder *folder; /* borrowed; NULL: not begun, every call does nothing */
    tutti__sinks *sinks;       /* NULL: none was asked for */
} tutti__logs;

/* Begins, in a folder that has been begun, after `step` steps (0: not resumed). The configuration and gpus are borrowed. */
void tutti__logs_begin(tutti__logs *logs, tutti__run_folder *folder,
                       const tutti__train_config *config, const tutti__gpus *gpus, uint64_t step);
void tutti__logs_step(tutti__logs *logs, const tutti__step_metrics *m);
void tutti__logs_eval(tutti__logs *logs, const tutti__eval_metrics *m);
/* After each update, while its gradients are there: histograms, if they are due. whole: gradients are means over all ranks in
 * all elements (ZeRO has that in this rank's share only). */
void tutti__logs_tensors(tutti__logs *logs, tutti_module *m, uint64_t step, bool whole);
/* The run's end, also a failed one's; frees what the logs hold. */
void tutti__logs_end(tutti__logs *logs, const tutti__summary *summary);
/* Another rank writes them from here on. own: it does not yet, and what is not written is written now. */
void tutti__logs_leave(tutti__logs *logs, bool own);

#endif
