/* metrics.c -- records to JSON, by the table of metrics.def.   SPDX-License-Identifier: MIT */
#include "train/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW(record, type, name, tag, help)                                                         \
    {#name, TUTTI__METRIC_##type, offsetof(record, name), tag, help},

static const tutti__metric_row step_rows[] = {
#define STEP(type, name, tag, help) ROW(tutti__step_metrics, type, name, tag, help)
#include "train/metrics.def"
};
static const tutti__metric_row eval_rows[] = {
#define EVAL(type, name, tag, help) ROW(tutti__eval_metrics, type, name, tag, help)
#include "train/metrics.def"
};
static const tutti__metric_row summary_rows[] = {
#define SUMMARY(type, name, tag, help) ROW(tutti__summary, type, name, tag, help)
#include "train/metrics.def"
};

const tutti__metric_table tutti__step_table = {step_rows, TUTTI__COUNT_OF(step_rows)};
const tutti__metric_table tutti__eval_table = {eval_rows, TUTTI__COUNT_OF(eval_rows)};
const tutti__metric_table tutti__summary_table = {summary_rows, TUTTI__COUNT_OF(summary_rows)};

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
    case TUTTI__METRIC_F32:
        return *(const double *)value_of(row, record);
    case TUTTI__METRIC_TEXT:
        break;
    }
    return NAN;
}

/* Readers that guess a column's type by its first lines must not see 2 before 2.5. */
static void print_real(FILE *out, double value, bool is_f32)
{
    char text[40];

    if (!isfinite(value)) {
        fputs("null", out);
        return;
    }
    snprintf(text, sizeof text, "%.9g", value);
    for (int digits = 6; is_f32 && digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
        snprintf(text, sizeof text, "%.9g", value);
    }
    fputs(text, out);
    if (!strpbrk(text, ".e"))
        fputs(".0", out);
}

void tutti__metric_print(FILE *out, const tutti__metric_row *row, const void *record)
{
    const char *text;

    switch (row->type) {
    case TUTTI__METRIC_INT:
        fprintf(out, "%" PRId64, *(const int64_t *)value_of(row, record));
        break;
    case TUTTI__METRIC_REAL:
    case TUTTI__METRIC_F32:
        print_real(out, tutti__metric_number(row, record), row->type == TUTTI__METRIC_F32);
        break;
    case TUTTI__METRIC_TEXT:
        text = *(const char *const *)value_of(row, record);
        if (text && *text)
            tutti__json_string(out, text);
        else
            fputs("null", out);
        break;
    }
}

void tutti__metrics_print(FILE *out, tutti__metric_table table, const void *record,
                          const char *separator)
{
    for (size_t i = 0; i < table.n; i++) {
        fprintf(out, "%s\"%s\": ", i ? separator : "", table.rows[i].name);
        tutti__metric_print(out, &table.rows[i], record);
    }
}
