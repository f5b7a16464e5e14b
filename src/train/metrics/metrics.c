/* metrics.c -- records to JSON, by the table of metrics.def.   SPDX-License-Identifier: MIT */
#include "train/metrics/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW(record, type, name, tag, help)                                                         \
    {#name, TUTTI__METRIC_##type, offsetof(record, name), tag, help},

static const tutti__metric_row step_rows[] = {
#define STEP(type, name, tag, help) ROW(tutti__step_metrics, type, name, tag, help)
#include "train/metrics/metrics.def"
};
static const tutti__metric_row eval_rows[] = {
#define EVAL(type, name, tag, help) ROW(tutti__eval_metrics, type, name, tag, help)
#include "train/metrics/metrics.def"
};
static const tutti__metric_row sample_rows[] = {
#define SAMPLE(type, name, tag, help) ROW(tutti__sample_metrics, type, name, tag, help)
#include "train/metrics/metrics.def"
};
static const tutti__metric_row system_rows[] = {
#define SYSTEM(type, name, tag, help) ROW(tutti__system_metrics, type, name, tag, help)
#include "train/metrics/metrics.def"
};
static const tutti__metric_row gpu_rows[] = {
#define GPU(type, name, tag, help) ROW(tutti__gpu_metrics, type, name, tag, help)
#include "train/metrics/metrics.def"
};
static const tutti__metric_row summary_rows[] = {
#define SUMMARY(type, name, tag, help) ROW(tutti__summary, type, name, tag, help)
#include "train/metrics/metrics.def"
};

const tutti__metric_table tutti__step_table = {step_rows, TUTTI__COUNT_OF(step_rows)};
const tutti__metric_table tutti__eval_table = {eval_rows, TUTTI__COUNT_OF(eval_rows)};
const tutti__metric_table tutti__sample_table = {sample_rows, TUTTI__COUNT_OF(sample_rows)};
const tutti__metric_table tutti__system_table = {system_rows, TUTTI__COUNT_OF(system_rows)};
const tutti__metric_table tutti__gpu_table = {gpu_rows, TUTTI__COUNT_OF(gpu_rows)};
const tutti__metric_table tutti__summary_table = {summary_rows, TUTTI__COUNT_OF(summary_rows)};

_Static_assert(TUTTI__COUNT_OF(eval_rows) + TUTTI__OWN_METRICS <= 32 &&
                   TUTTI__COUNT_OF(summary_rows) + TUTTI__OWN_METRICS <= 64,
               "the rows of tutti__metric_tables");

static tutti__metric_table extend(tutti__metric_table table, tutti__metric_row *rows,
                                  const char *const *names, size_t n, size_t offset)
{
    memcpy(rows, table.rows, table.n * sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[table.n + i] = (tutti__metric_row){.name = names[i],
                                                .type = TUTTI__METRIC_SOME,
                                                .offset = offset + i * sizeof(double),
                                                .help = "a metric of the program's own"};
    return (tutti__metric_table){rows, table.n + n};
}

void tutti__metric_tables_set(tutti__metric_tables *tables,
                              const char *const names[TUTTI__OWN_METRICS], size_t n)
{
    tables->eval =
        extend(tutti__eval_table, tables->eval_rows, names, n, offsetof(tutti__eval_metrics, own));
    tables->summary =
        extend(tutti__summary_table, tables->summary_rows, names, n, offsetof(tutti__summary, own));
    for (size_t i = 0; i < n; i++) {
        snprintf(tables->tags[i], sizeof tables->tags[i], "%.31s/validation", names[i]);
        tables->eval_rows[tutti__eval_table.n + i].tag = tables->tags[i];
    }
}

double *tutti__eval_value(const tutti__metric_row *row, tutti__eval_metrics *record)
{
    return (double *)(void *)((char *)record + row->offset);
}

tutti__eval_metrics tutti__no_scores(void)
{
    tutti__eval_metrics none = {.epoch = 0};

    for (size_t i = 0; i < TUTTI__COUNT_OF(eval_rows); i++)
        if (eval_rows[i].type != TUTTI__METRIC_INT)
            *tutti__eval_value(&eval_rows[i], &none) = NAN;
    for (size_t i = 0; i < TUTTI__OWN_METRICS; i++)
        none.own[i] = NAN;
    return none;
}

void tutti__summary_set_scores(tutti__summary *summary, const tutti__eval_metrics *scores)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(eval_rows); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(summary_rows); k++)
            if (strcmp(eval_rows[i].name, summary_rows[k].name) == 0)
                memcpy((char *)summary + summary_rows[k].offset,
                       (const char *)scores + eval_rows[i].offset, sizeof(double));
    memcpy(summary->own, scores->own, sizeof summary->own);
}

static const void *value_of(const tutti__metric_row *row, const void *record)
{
    return (const char *)record + row->offset;
}

double tutti__metric_number(const tutti__metric_row *row, const void *record)
{
    switch (row->type) {
    case TUTTI__METRIC_INT:
        return (double)*(const int64_t *)value_of(row, record);
    case TUTTI__METRIC_REAL:
    case TUTTI__METRIC_SOME:
    case TUTTI__METRIC_F32:
        return *(const double *)value_of(row, record);
    case TUTTI__METRIC_TEXT:
        break;
    }
    return NAN;
}

double tutti__eval_by_name(const tutti__eval_metrics *eval, const char *name)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(eval_rows); i++)
        if (strcmp(eval_rows[i].name, name) == 0)
            return tutti__metric_number(&eval_rows[i], eval);
    return NAN;
}

/* Readers that guess a column's type by its first lines must not see 2 before 2.5. */
static void real_text(double value, bool is_f32, char text[TUTTI__METRIC_TEXT_SIZE])
{
    if (!isfinite(value)) {
        strcpy(text, "null");
        return;
    }
    snprintf(text, TUTTI__METRIC_TEXT_SIZE, "%.9g", value);
    for (int digits = 6; is_f32 && digits < 9; digits++) {
        snprintf(text, TUTTI__METRIC_TEXT_SIZE, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
        snprintf(text, TUTTI__METRIC_TEXT_SIZE, "%.9g", value);
    }
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
}

void tutti__metric_number_text(const tutti__metric_row *row, const void *record,
                               char text[TUTTI__METRIC_TEXT_SIZE])
{
    if (row->type == TUTTI__METRIC_INT)
        snprintf(text, TUTTI__METRIC_TEXT_SIZE, "%" PRId64,
                 *(const int64_t *)value_of(row, record));
    else
        real_text(tutti__metric_number(row, record), row->type == TUTTI__METRIC_F32, text);
}

/* JSON of one value. A REAL has 9 significant digits, an F32 as few as give the same F32 again. */
static void metric_print(FILE *out, const tutti__metric_row *row, const void *record)
{
    const char *text;
    char number[TUTTI__METRIC_TEXT_SIZE];

    if (row->type == TUTTI__METRIC_TEXT) {
        text = *(const char *const *)value_of(row, record);
        if (text && *text)
            tutti__json_string(out, text);
        else
            fputs("null", out);
        return;
    }
    tutti__metric_number_text(row, record, number);
    fputs(number, out);
}

void tutti__metrics_print(FILE *out, tutti__metric_table table, const void *record,
                          const char *separator)
{
    for (size_t i = 0; i < table.n; i++) {
        if (table.rows[i].type == TUTTI__METRIC_SOME &&
            !isfinite(tutti__metric_number(&table.rows[i], record)))
            continue;
        fprintf(out, "%s\"%s\": ", i ? separator : "", table.rows[i].name);
        metric_print(out, &table.rows[i], record);
    }
}
