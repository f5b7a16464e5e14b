/* table_fit.c -- what is learned from a table's training rows: classes, and the mean and std of features; as JSON.
 * SPDX-License-Identifier: MIT */
#include "data/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CLASSES 65536

void tutti__table_fit_free(tutti__table_fit *fit)
{
    tutti__columns_free(&fit->features);
    tutti__columns_free(&fit->targets);
    tutti__columns_free(&fit->classes);
    free(fit->mean);
    free(fit->std);
    free(fit->text);
    *fit = (tutti__table_fit){.raw = false};
}

/* ---- Classes --------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Classes that are numbers in their order, so that 10 comes after 9. */
static int by_number(const void *a, const void *b)
{
    double x = 0, y = 0;

    (void)tutti__table_number(*(char *const *)a, &x);
    (void)tutti__table_number(*(char *const *)b, &y);
    return x < y ? -1 : x > y ? 1 : by_text(a, b);
}

static tutti_status learn_classes(const tutti__table *table, const size_t *rows, size_t n,
                                  tutti__table_fit *fit)
{
    char **sorted = tutti__alloc(n * sizeof *sorted);
    bool numbers = true;
    double value;
    tutti_status status = sorted ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (size_t i = 0; status == TUTTI_OK && i < n; i++) {
        sorted[i] = table->target[rows[i]];
        numbers = numbers && tutti__table_number(sorted[i], &value);
    }
    if (status == TUTTI_OK)
        qsort(sorted, n, sizeof *sorted, numbers ? by_number : by_text);
    for (size_t i = 0; status == TUTTI_OK && i < n; i++)
        if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
            status = fit->classes.n == MOST_CLASSES
                         ? tutti__fail(TUTTI_ERR_FORMAT,
                                       "%s: column \"%.100s\" has more than %d different values; "
                                       "is it numbers to predict? (task regression)",
                                       table->path, fit->targets.name[0], MOST_CLASSES)
                         : tutti__columns_add(&fit->classes, sorted[i]);
    free(sorted);
    return status;
}

static tutti_status find_task(const tutti__table *table, const size_t *rows, size_t n,
                              const tutti_table_opts *opts, const tutti__table_fit *fit,
                              bool *classes_p)
{
    const char *task = opts->task ? opts->task : "";
    double value;

    *classes_p = strcmp(task, "classification") == 0;
    if (*classes_p && fit->targets.n > 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: %zu target columns for task classification; expected one column of "
                           "classes",
                           table->path, fit->targets.n);
    for (size_t i = 0; !*task && fit->targets.n == 1 && i < n && !*classes_p; i++)
        *classes_p = !tutti__table_number(table->target[rows[i]], &value);
    return TUTTI_OK;
}

/* ---- Scale ----------------------------------------------------------------------------------------------- */

static tutti_status learn_scale(const tutti__table *table, const size_t *rows, size_t n,
                                tutti__table_fit *fit)
{
    const size_t features = fit->features.n;

    fit->mean = tutti__alloc(features * sizeof *fit->mean);
    fit->std = tutti__alloc(features * sizeof *fit->std);
    if (!fit->mean || !fit->std)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < features; i++) {
        double sum = 0, squares = 0;

        for (size_t k = 0; k < n; k++)
            sum += table->x[rows[k] * features + i];
        fit->mean[i] = sum / (double)n;
        for (size_t k = 0; k < n; k++) {
            const double d = table->x[rows[k] * features + i] - fit->mean[i];

            squares += d * d;
        }
        fit->std[i] = sqrt(squares / (double)n);
        if (!isfinite(fit->std[i]))
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s: the values of column \"%.100s\" are too large for a mean and a "
                               "standard deviation",
                               table->path, fit->features.name[i]);
        if (!(fit->std[i] > 0))
            fit->std[i] = 1; /* a constant column becomes 0 */
    }
    return TUTTI_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static json_t *names_json(const tutti__columns *list)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < list->n; i++)
        if (json_array_append_new(array, json_string(list->name[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *numbers_json(const double *values, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; values && i < n; i++)
        (void)json_array_append_new(array, json_real(values[i]));
    return array;
}

static tutti_status write_text(const tutti__table *table, tutti__table_fit *fit)
{
    json_t *all = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o}", "format", "csv", "features", names_json(&fit->features),
        "targets", names_json(&fit->targets), "classes", names_json(&fit->classes), "mean",
        numbers_json(fit->mean, fit->features.n), "std", numbers_json(fit->std, fit->features.n));

    if (all)
        fit->text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return fit->text
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_FORMAT, "%s: the names of columns and classes must be UTF-8",
                             table->path);
}

tutti_status tutti__table_learn(const tutti__table *table, const size_t *rows, size_t n,
                                const tutti_table_opts *opts, tutti__table_fit *fit)
{
    bool classes;

    fit->raw = opts->raw;
    TUTTI_TRY(find_task(table, rows, n, opts, fit, &classes));
    if (classes)
        TUTTI_TRY(learn_classes(table, rows, n, fit));
    if (!fit->raw)
        TUTTI_TRY(learn_scale(table, rows, n, fit));
    return write_text(table, fit);
}

/* No name may occur twice, also not in `other` (NULL: none): each is a column of its own. */
static bool read_names(const json_t *object, const char *key, size_t most, tutti__columns *list,
                       const tutti__columns *other)
{
    const json_t *array = json_object_get(object, key);

    if (!json_is_array(array) || json_array_size(array) > most)
        return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));

        if (!name || tutti__columns_find(list, name) != SIZE_MAX ||
            (other && tutti__columns_find(other, name) != SIZE_MAX) ||
            tutti__columns_add(list, name) != TUTTI_OK)
            return false;
    }
    return true;
}

/* `positive`: above 0. */
static bool read_numbers(const json_t *object, const char *key, size_t n, bool positive,
                         double **values_p)
{
    const json_t *array = json_object_get(object, key);

    if (!json_is_array(array) || json_array_size(array) != n)
        return false;
    *values_p = tutti__alloc(n * sizeof **values_p);
    for (size_t i = 0; *values_p && i < n; i++) {
        const json_t *value = json_array_get(array, i);

        (*values_p)[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite((*values_p)[i]) ||
            (positive && !((*values_p)[i] > 0)))
            return false;
    }
    return *values_p;
}

tutti_status tutti__table_fit_read(tutti__table_fit *fit, const char *text)
{
    json_t *all = json_loads(text, 0, NULL);
    const json_t *mean = json_object_get(all, "mean");
    const char *format = json_string_value(json_object_get(all, "format"));
    bool good = format && strcmp(format, "csv") == 0 &&
                read_names(all, "features", TUTTI__TABLE_COLUMNS, &fit->features, NULL) &&
                read_names(all, "targets", TUTTI__TABLE_COLUMNS, &fit->targets, &fit->features) &&
                read_names(all, "classes", MOST_CLASSES, &fit->classes, NULL) &&
                fit->features.n > 0 && fit->targets.n > 0 &&
                (fit->classes.n == 0 || fit->targets.n == 1);

    fit->raw = json_array_size(mean) == 0;
    if (good && !fit->raw)
        good = read_numbers(all, "mean", fit->features.n, false, &fit->mean) &&
               read_numbers(all, "std", fit->features.n, true, &fit->std);
    json_decref(all);
    if (!good)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "the columns, classes and scale of the training data (the checkpoint's "
                           "state.json, \"data\") are not those of a table: %.200s",
                           text);
    fit->text = strdup(text);
    return fit->text ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory");
}
