/* metrics.h -- a run's metrics, as records of named, typed fields.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_METRICS_H
#define TUTTI_TRAIN_METRICS_H

#include "base/base.h"
#include <stdio.h>

typedef enum tutti__metric_type {
    TUTTI__METRIC_INT,  /* int64_t */
    TUTTI__METRIC_REAL, /* double; NaN: not known */
    TUTTI__METRIC_F32,  /* double that holds an F32 */
    TUTTI__METRIC_TEXT  /* const char *, borrowed; NULL or "": not known */
} tutti__metric_type;

typedef struct tutti__metric_row {
    const char *name;
    tutti__metric_type type;
    size_t offset; /* of the value in its record */
    const char *tag, *help;
} tutti__metric_row;

#define TUTTI__METRIC_MEMBER_INT(name)  int64_t name;
#define TUTTI__METRIC_MEMBER_REAL(name) double name;
#define TUTTI__METRIC_MEMBER_F32(name)  double name;
#define TUTTI__METRIC_MEMBER_TEXT(name) const char *name;

/* A line of metrics.jsonl. */
typedef struct tutti__step_metrics {
#define STEP(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__step_metrics;

/* An evaluation. */
typedef struct tutti__eval_metrics {
#define EVAL(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__eval_metrics;

/* A sample of the machine, and one of a GPU. */
typedef struct tutti__system_metrics {
#define SYSTEM(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__system_metrics;
typedef struct tutti__gpu_metrics {
#define GPU(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__gpu_metrics;

/* summary.json */
typedef struct tutti__summary {
#define SUMMARY(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__summary;

/* A record's fields; `n` rows. */
typedef struct tutti__metric_table {
    const tutti__metric_row *rows;
    size_t n;
} tutti__metric_table;
extern const tutti__metric_table tutti__step_table, tutti__eval_table, tutti__system_table,
    tutti__gpu_table, tutti__summary_table;

/* The value of a numeric field as a double; NaN for a TEXT. */
double tutti__metric_number(const tutti__metric_row *row, const void *record);
/* The same as JSON: "null" if unknown. */
enum { TUTTI__METRIC_TEXT_SIZE = 40 };
void tutti__metric_number_text(const tutti__metric_row *row, const void *record,
                               char text[TUTTI__METRIC_TEXT_SIZE]);
/* `"name": value` of all fields, with `separator` between them; no braces. */
void tutti__metrics_print(FILE *out, tutti__metric_table table, const void *record,
                          const char *separator);

#endif
