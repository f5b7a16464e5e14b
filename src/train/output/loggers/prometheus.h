/* prometheus.h -- the latest figures in a file for node_exporter's textfile collector.   SPDX-License-Identifier: MIT
 *
 * https://prometheus.io/docs/instrumenting/exposition_formats: gauges with labels run, model and data, and gpu. The file is
 * replaced atomically, so that a collector never reads a part of it; when the run ends, tutti_running becomes 0. */
#ifndef TUTTI_TRAIN_PROMETHEUS_H
#define TUTTI_TRAIN_PROMETHEUS_H

#include "train/output/logger.h"

/* The records to write; NULL: not known yet. Borrowed. */
typedef struct tutti__prometheus_figures {
    const tutti__step_metrics *step;
    const tutti__eval_metrics *eval;
    tutti__metric_table eval_table; /* of *eval */
    const tutti__system_sample *system;
    bool running;
} tutti__prometheus_figures;

/* run: the run folder's name. */
tutti_status tutti__prometheus_write(const char *path, const char *run,
                                     const tutti__train_config *config,
                                     const tutti__prometheus_figures *now);

#endif
