/* show_fields.c -- describes samples of named arrays: the range of each, and the classes.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "tensor/tensor.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CLASSES 1000 /* that are listed */
#define MOST_COLUMNS 200  /* of a row x, whose statistics are listed */

/* The values of an array, or of one of its columns. */
typedef struct range {
    double least, most, sum, squares;
    size_t n, not_finite;
} range;

typedef struct survey {
    void *arrays[TUTTI_MAX_FIELDS];
    range fields[TUTTI_MAX_FIELDS];
    range *columns;  /* of a row x; NULL: too many, or not a row */
    range *targets;  /* of a row of numbers to predict; likewise */
    size_t *classes; /* how often each occurs in y; NULL: too many, or targets */
} survey;

static void add(range *r, double value)
{
    if (!isfinite(value)) {
        r->not_finite++;
        return;
    }
    r->least = r->n == 0 || value < r->least ? value : r->least;
    r->most = r->n == 0 || value > r->most ? value : r->most;
    r->sum += value;
    r->squares += value * value;
    r->n++;
}

static double value_of(const tutti_field *field, const void *p, size_t i)
{
    return field->dtype == TUTTI_U8    ? (double)((const uint8_t *)p)[i]
           : field->dtype == TUTTI_I64 ? (double)((const int64_t *)p)[i]
                                       : (double)((const float *)p)[i];
}

static void look_at(const tutti_dataset *dataset, survey *s)
{
    const tutti_dataset_info *info = &dataset->info;

    for (int k = 0; k < info->n_fields; k++) {
        const tutti_field *field = &dataset->fields[k];

        for (size_t i = 0; i < (size_t)tutti_shape_count(field->shape); i++) {
            const double value = value_of(field, s->arrays[k], i);

            add(&s->fields[k], value);
            if (k == 0 && s->columns)
                add(&s->columns[i], value);
            if (k == 1 && s->targets)
                add(&s->targets[i], value);
            if (k == 1 && s->classes && value >= 0 && value < info->classes)
                s->classes[(size_t)value]++;
        }
    }
}

static double deviation(const range *r)
{
    const double mean = r->sum / (double)r->n;

    return sqrt(fmax(r->squares / (double)r->n - mean * mean, 0));
}

static void print_range(FILE *out, const char *name, const char *what, const range *r)
{
    const double n = (double)r->n;

    fprintf(out, "%-20s %-20s %12.6g %12.6g %12.6g %12.6g", name, what, r->least, r->most,
            r->n ? r->sum / n : 0, r->n ? deviation(r) : 0);
    if (r->not_finite)
        fprintf(out, "   %zu not finite", r->not_finite);
    fputc('\n', out);
}

static void print_classes(FILE *out, const tutti_dataset_info *info, const survey *s)
{
    fprintf(out, "\n%-4s %-20s %8s\n", "", "class", "values");
    for (int i = 0; i < info->classes; i++) {
        char name[64];

        tutti__printable(info->class_names ? info->class_names[i] : "", name, sizeof name);
        fprintf(out, "%-4d %-20s %8zu\n", i, name, s->classes[i]);
    }
}

/* n columns of x or y. names: what a table calls them; NULL: "x[0]". */
static void print_columns(FILE *out, const char *of, const range *columns, int n,
                          const char *const *names)
{
    char title[32], name[64];

    snprintf(title, sizeof title, "columns of %s", of);
    for (int i = 0; i < n; i++) {
        if (names)
            tutti__printable(names[i], name, sizeof name);
        else
            snprintf(name, sizeof name, "%s[%d]", of, i);
        print_range(out, i ? "" : title, name, &columns[i]);
    }
}

/* A table's names of x's columns, n of them; NULL: it has none. free() the list, and release `fit` after use. */
static const char **feature_names(const tutti_dataset *dataset, int n, json_t **fit_p)
{
    const char *text = tutti_dataset_fitted(dataset);
    const json_t *list;
    const char **names;

    *fit_p = text ? json_loads(text, 0, NULL) : NULL;
    list = json_object_get(*fit_p, "features");
    if (n == 0 || json_array_size(list) != (size_t)n ||
        !(names = tutti__alloc((size_t)n * sizeof *names)))
        return NULL;
    for (int i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, (size_t)i));

        names[i] = name ? name : "";
    }
    return names;
}

static void print(FILE *out, const tutti_dataset *dataset, const survey *s)
{
    const tutti_dataset_info *info = &dataset->info;
    json_t *fit;
    const char **features = feature_names(dataset, s->columns ? info->channels : 0, &fit);
    char text[64], name[64];

    fprintf(out, "data set   %s, %s\n", info->name, info->split);
    fprintf(out, "samples    %zu %s\n", info->count,
            tutti__dataset_text(dataset, info->count, text));
    if (info->classes > 0)
        fprintf(out, "classes    %d\n", info->classes);
    fprintf(out, "\n%-20s %-20s %12s %12s %12s %12s\n", "array", "of a sample", "min", "max",
            "mean", "std");
    for (int k = 0; k < info->n_fields; k++) {
        const tutti_field *field = &dataset->fields[k];

        snprintf(text, sizeof text, "%s %s", tutti_dtype_name(field->dtype),
                 tutti__shape_text(field->shape));
        print_range(out, tutti__printable(field->name, name, sizeof name), text, &s->fields[k]);
    }
    if (s->columns)
        print_columns(out, "x", s->columns, info->channels, features);
    if (s->targets)
        print_columns(out, "y", s->targets, info->targets, info->class_names);
    if (s->classes)
        print_classes(out, info, s);
    free(features);
    json_decref(fit);
}

static tutti_status allocate(const tutti_dataset *dataset, survey *s)
{
    const tutti_dataset_info *info = &dataset->info;

    for (int k = 0; k < info->n_fields; k++)
        if (!(s->arrays[k] = tutti__alloc(dataset->bytes[k])))
            return TUTTI_ERR_MEMORY;
    if (dataset->fields[0].shape.n == 1 && info->channels <= MOST_COLUMNS &&
        !(s->columns = tutti__alloc((size_t)info->channels * sizeof *s->columns)))
        return TUTTI_ERR_MEMORY;
    if (info->classes == 0 && dataset->fields[1].shape.n == 1 && info->targets <= MOST_COLUMNS &&
        !(s->targets = tutti__alloc((size_t)info->targets * sizeof *s->targets)))
        return TUTTI_ERR_MEMORY;
    if (info->classes > 0 && info->classes <= MOST_CLASSES &&
        !(s->classes = tutti__alloc((size_t)info->classes * sizeof *s->classes)))
        return TUTTI_ERR_MEMORY;
    return TUTTI_OK;
}

tutti_status tutti__data_show_fields(const tutti_dataset *dataset, FILE *out,
                                     const tutti__tick *tick)
{
    survey s = {.columns = NULL};
    tutti_status status = allocate(dataset, &s);

    for (size_t i = 0; status == TUTTI_OK && i < dataset->info.count; i++) {
        status = tutti__dataset_read(dataset, i, NULL, s.arrays);
        if (status == TUTTI_OK) {
            look_at(dataset, &s);
            status = tutti__tick_call(tick, i + 1, dataset->info.count);
        }
    }
    if (status == TUTTI_OK)
        print(out, dataset, &s);
    for (int k = 0; k < TUTTI_MAX_FIELDS; k++)
        free(s.arrays[k]);
    free(s.columns);
    free(s.targets);
    free(s.classes);
    return status;
}
