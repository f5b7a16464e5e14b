/* prometheus.h -- the latest figures in a file for node_exporter's textfile collector.   SPDX-License-Identifier: MIT
 *
 * https://prometheus.io/docs/instrumenting/exposition_formats: gauges with labels run, model and data, and gpu. The file is
 * replaced as a whole, so that a collector never reads half of it; when the run ends, tutti_running becomes 0. */
#ifndef TUTTI_TRAIN_PROMETHEUS_H
#define TUTTI_TRAIN_PROMETHEUS_H

#include "train/config.h"
#include "train/system.h"

/* What is shown; what has not been told yet is NULL. Borrowed. */
typedef struct tutti__prometheus {
    const tutti__step_metrics *step;
    const tutti__eval_metrics *eval;
    const tutti__system_sample *system;
    bool running;
} tutti__prometheus;

/* run: the run folder's name. */
tutti_status tutti__prometheus_write(const char *path, const char *run,
                                     const tutti__train_config *config,
                                     const tutti__prometheus *now);

#endif
