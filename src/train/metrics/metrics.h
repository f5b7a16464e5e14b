/* metrics.h -- a run's metrics, as records of named, typed fields.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_METRICS_H
#define TUTTI_TRAIN_METRICS_H

#include "base/base.h"
#include <stdio.h>

typedef enum tutti__metric_type {
    TUTTI__METRIC_INT,  /* int64_t */
    TUTTI__METRIC_REAL, /* double; NaN: not known */
    TUTTI__METRIC_SOME, /* double; NaN: there is none, and it is left out */
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
#define TUTTI__METRIC_MEMBER_SOME(name) double name;
#define TUTTI__METRIC_MEMBER_F32(name)  double name;
#define TUTTI__METRIC_MEMBER_TEXT(name) const char *name;

/* A line of metrics.jsonl. */
typedef struct tutti__step_metrics {
#define STEP(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__step_metrics;

enum { TUTTI__OWN_METRICS = 8 }; /* of a program, at most */

/* An evaluation. */
typedef struct tutti__eval_metrics {
#define EVAL(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
    double own[TUTTI__OWN_METRICS]; /* the program's; NaN: not known, or none */
} tutti__eval_metrics;

/* A text that a language model wrote after an evaluation. */
typedef struct tutti__sample_metrics {
#define SAMPLE(type, name, tag, help) TUTTI__METRIC_MEMBER_##type(name)
#include "train/metrics/metrics.def"
} tutti__sample_metrics;

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
    double own[TUTTI__OWN_METRICS]; /* likewise */
} tutti__summary;

/* A record's fields; `n` rows. */
typedef struct tutti__metric_table {
    const tutti__metric_row *rows;
    size_t n;
} tutti__metric_table;
extern const tutti__metric_table tutti__step_table, tutti__eval_table, tutti__sample_table,
    tutti__system_table, tutti__gpu_table, tutti__summary_table;

/* The tables of evaluations and of the summary, with a program's metrics behind the others. */
typedef struct tutti__metric_tables {
    tutti__metric_table eval, summary;
    tutti__metric_row eval_rows[32], summary_rows[64];
    char tags[TUTTI__OWN_METRICS][48];
} tutti__metric_tables;
/* names: borrowed. The tables point into *tables. */
void tutti__metric_tables_set(tutti__metric_tables *tables,
                              const char *const names[TUTTI__OWN_METRICS], size_t n);

/* Of an evaluation that has no results. */
tutti__eval_metrics tutti__no_scores(void);
/* Copies what both have of the results of an evaluation: val_loss and so on. */
void tutti__summary_set_scores(tutti__summary *summary, const tutti__eval_metrics *scores);
/* The value of a row of tutti__eval_table, to be set. */
double *tutti__eval_value(const tutti__metric_row *row, tutti__eval_metrics *record);

/* The figure of an evaluation with this name in metrics.def; NaN: there is none, or it is not known. */
double tutti__eval_by_name(const tutti__eval_metrics *eval, const char *name);
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
