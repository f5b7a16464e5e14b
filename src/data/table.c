/* table.c -- reads a table: which column is what, and its numbers.   SPDX-License-Identifier: MIT */
#include "data/table.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Names ----------------------------------------------------------------------------------------------- */

/* The slot that holds the name, or the free one where it belongs. */
static size_t *slot_of(const tutti__columns *list, const char *name)
{
    size_t at = (size_t)tutti__hash64(name, strlen(name));

    while (list->slots[at &= list->n_slots - 1] &&
           strcmp(list->name[list->slots[at] - 1], name) != 0)
        at++;
    return &list->slots[at];
}

static tutti_status grow(tutti__columns *list)
{
    const size_t room = list->room ? 2 * list->room : 16;
    char **grown = realloc(list->name, room * sizeof *grown);
    size_t *slots = tutti__alloc(2 * room * sizeof *slots);

    if (grown)
        list->name = grown;
    if (!grown || !slots) {
        free(slots);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a table's names");
    }
    free(list->slots);
    list->slots = slots;
    list->n_slots = 2 * room;
    list->room = room;
    for (size_t i = 0; i < list->n; i++)
        *slot_of(list, list->name[i]) = i + 1;
    return TUTTI_OK;
}

tutti_status tutti__columns_add(tutti__columns *list, const char *name)
{
    if (list->n == list->room)
        TUTTI_TRY(grow(list));
    list->name[list->n] = strdup(name);
    if (!list->name[list->n])
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a table's names");
    *slot_of(list, name) = list->n + 1;
    list->n++;
    return TUTTI_OK;
}

size_t tutti__columns_find(const tutti__columns *list, const char *name)
{
    return list->n == 0 ? SIZE_MAX : *slot_of(list, name) - 1;
}

void tutti__columns_free(tutti__columns *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->name[i]);
    free(list->name);
    free(list->slots);
    *list = (tutti__columns){NULL};
}

/* ---- Columns --------------------------------------------------------------------------------------------- */

/* The place of each of the file's columns. */
typedef struct roles {
    tutti__columns header;
    size_t *feature, *target; /* [header.n]; SIZE_MAX: none */
} roles;

static tutti_status fail_column(const tutti__table *table, const roles *r, const char *name)
{
    const char *nearest =
        tutti__nearest(name, (const char *const *)(uintptr_t)r->header.name, r->header.n);
    char list[600] = "";
    size_t n = 0;

    for (size_t i = 0; i < r->header.n && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", r->header.name[i]);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s has no column \"%.100s\"%s%.100s%s; it has %s%s",
                       table->path, name, nearest ? " (did you mean \"" : "",
                       nearest ? nearest : "", nearest ? "\"?)" : "", list,
                       n < sizeof list ? "" : ", ...");
}

/* Adds the names of a list "a,b" that are columns. */
static tutti_status add_names(const tutti__table *table, const roles *r, const char *list,
                              tutti__columns *names)
{
    char *copy = strdup(list), *rest = copy, *name;
    tutti_status status = copy ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory");

    while (status == TUTTI_OK && (name = strsep(&rest, ",")))
        if (tutti__columns_find(&r->header, name) == SIZE_MAX)
            status = fail_column(table, r, name);
        else if (tutti__columns_find(names, name) != SIZE_MAX)
            status = tutti__fail(TUTTI_ERR_ARG, "column \"%.100s\" is named twice in \"%.200s\"",
                                 name, list);
        else
            status = tutti__columns_add(names, name);
    free(copy);
    return status;
}

/* The columns by the options. */
static tutti_status choose(const tutti__table *table, const roles *r, const tutti_table_opts *opts,
                           tutti__table_fit *fit)
{
    const bool named = opts->target && *opts->target;
    const bool all = !opts->features || !*opts->features;

    TUTTI_TRY(named ? add_names(table, r, opts->target, &fit->targets)
                    : tutti__columns_add(&fit->targets, r->header.name[r->header.n - 1]));
    if (!all)
        TUTTI_TRY(add_names(table, r, opts->features, &fit->features));
    for (size_t i = 0; i < r->header.n && all; i++)
        if (tutti__columns_find(&fit->targets, r->header.name[i]) == SIZE_MAX)
            TUTTI_TRY(tutti__columns_add(&fit->features, r->header.name[i]));
    for (size_t i = 0; i < fit->features.n; i++)
        if (tutti__columns_find(&fit->targets, fit->features.name[i]) != SIZE_MAX)
            return tutti__fail(TUTTI_ERR_ARG, "%s: column \"%.100s\" is in target and in features",
                               table->path, fit->features.name[i]);
    if (fit->features.n == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has no column beside the target \"%.100s\"",
                           table->path, fit->targets.name[0]);
    return TUTTI_OK;
}

static tutti_status place_columns(const tutti__table *table, roles *r, const tutti__table_fit *fit)
{
    for (size_t i = 0; i < fit->features.n + fit->targets.n; i++) {
        const bool is_feature = i < fit->features.n;
        const char *name =
            is_feature ? fit->features.name[i] : fit->targets.name[i - fit->features.n];

        if (tutti__columns_find(&r->header, name) == SIZE_MAX)
            return fail_column(table, r, name);
    }
    r->feature = tutti__alloc(r->header.n * sizeof *r->feature);
    r->target = tutti__alloc(r->header.n * sizeof *r->target);
    if (!r->feature || !r->target)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < r->header.n; i++) {
        r->feature[i] = tutti__columns_find(&fit->features, r->header.name[i]);
        r->target[i] = tutti__columns_find(&fit->targets, r->header.name[i]);
    }
    return TUTTI_OK;
}

static tutti_status read_header(tutti__table *table, roles *r)
{
    bool more;

    TUTTI_TRY(tutti__csv_next(&table->csv, &more));
    if (!more)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is empty; its first line is to name the columns",
                           table->path);
    if (table->csv.n < 2 || table->csv.n > TUTTI__TABLE_COLUMNS)
        return tutti__fail(
            TUTTI_ERR_FORMAT, "%s, line %zu: %zu column%s; expected 2 to %d, separated by commas%s",
            table->path, table->csv.line, table->csv.n, tutti__s(table->csv.n),
            TUTTI__TABLE_COLUMNS,
            strpbrk(table->csv.fields[0], ";\t") ? ", not by semicolons or tabs" : "");
    for (size_t i = 0; i < table->csv.n; i++) {
        const char *name = table->csv.fields[i];

        if (!*name || tutti__columns_find(&r->header, name) != SIZE_MAX)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s, line %zu: column %zu is named \"%.100s\"%s; the first line is "
                               "to give each column another name",
                               table->path, table->csv.line, i + 1, name,
                               *name ? ", as an earlier one" : "");
        TUTTI_TRY(tutti__columns_add(&r->header, name));
    }
    return TUTTI_OK;
}

/* ---- Values ---------------------------------------------------------------------------------------------- */

static bool is_missing(const char *text)
{
    static const char *const WORDS[] = {"", "NA", "N/A", "NaN", "-nan", "null", "None", "?"};

    for (size_t i = 0; i < TUTTI__COUNT_OF(WORDS); i++)
        if (strcasecmp(text, WORDS[i]) == 0)
            return true;
    return false;
}

static tutti_status fail_value(const tutti__table *table, size_t row, size_t line,
                               const char *column, const char *text, bool is_feature)
{
    char shown[200];

    tutti__printable(text, shown, sizeof shown);
    if (is_missing(text))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s, row %zu (line %zu), column \"%.100s\": the value is missing "
                           "(\"%.60s\"); fill it in, or leave out the row%s",
                           table->path, row + 1, line, column, shown,
                           is_feature ? " or, with --features, the column" : "");
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s, row %zu (line %zu), column \"%.100s\": \"%.60s\" is not a finite "
                       "decimal number of F32 (up to 3.4e38)%s",
                       table->path, row + 1, line, column, shown,
                       is_feature ? "; encode texts as numbers, or leave out the column with "
                                    "--features"
                                  : "");
}

bool tutti__table_number(char *text, double *value_p)
{
    char *end;
    bool is;
    char kept;

    text += strspn(text, " \t");
    end = text + strlen(text);
    while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    kept = *end;
    *end = '\0';
    is = text[strspn(text, "+-.0123456789eE")] == '\0' && tutti__parse_double(text, value_p) &&
         fabs(*value_p) <= (double)FLT_MAX;
    *end = kept;
    return is;
}

static tutti_status make_room(tutti__table *table, size_t features, size_t targets)
{
    const size_t room = table->room ? 2 * table->room : 1024;
    double *x;
    char **target;
    size_t *line;

    if (table->count < table->room)
        return TUTTI_OK;
    if ((x = realloc(table->x, room * features * sizeof *x)))
        table->x = x;
    if ((target = realloc(table->target, room * targets * sizeof *target)))
        table->target = target;
    if ((line = realloc(table->line, room * sizeof *line)))
        table->line = line;
    if (!x || !target || !line)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu rows of %s", room, table->path);
    table->room = room;
    return TUTTI_OK;
}

static tutti_status add_row(tutti__table *table, const roles *r, const tutti__table_fit *fit)
{
    const tutti__csv *csv = &table->csv;
    const size_t row = table->count;

    if (csv->n != r->header.n)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s, row %zu (line %zu): %zu value%s, and the first line names %zu "
                           "columns; expected a value for each, %s",
                           table->path, row + 1, csv->line, csv->n, tutti__s(csv->n), r->header.n,
                           csv->n < r->header.n ? "separated by commas (is the file cut off?)"
                                                : "in double quotes if it contains a comma");
    TUTTI_TRY(make_room(table, fit->features.n, fit->targets.n));
    table->line[row] = csv->line;
    for (size_t i = 0; i < csv->n; i++) {
        if (r->target[i] != SIZE_MAX) {
            table->target[row * fit->targets.n + r->target[i]] = csv->fields[i];
            if (is_missing(csv->fields[i]))
                return fail_value(table, row, csv->line, r->header.name[i], csv->fields[i], false);
        } else if (r->feature[i] != SIZE_MAX &&
                   !tutti__table_number(csv->fields[i],
                                        &table->x[row * fit->features.n + r->feature[i]]))
            return fail_value(table, row, csv->line, r->header.name[i], csv->fields[i], true);
    }
    table->count++;
    return TUTTI_OK;
}

static tutti_status read_rows(tutti__table *table, roles *r, const tutti_table_opts *opts,
                              tutti__table_fit *fit)
{
    bool more = true;

    TUTTI_TRY(read_header(table, r));
    if (fit->features.n == 0)
        TUTTI_TRY(choose(table, r, opts, fit));
    TUTTI_TRY(place_columns(table, r, fit));
    while (more) {
        TUTTI_TRY(tutti__csv_next(&table->csv, &more));
        if (more)
            TUTTI_TRY(add_row(table, r, fit));
    }
    if (table->count == 0)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s has no rows after its first line", table->path);
    return TUTTI_OK;
}

tutti_status tutti__table_read(tutti__table *table, const char *path, const tutti_table_opts *opts,
                               tutti__table_fit *fit)
{
    roles r = {.feature = NULL};
    tutti_status status;

    snprintf(table->path, sizeof table->path, "%s", path);
    status = tutti__csv_open(&table->csv, table->path);
    if (status == TUTTI_OK)
        status = read_rows(table, &r, opts, fit);
    tutti__columns_free(&r.header);
    free(r.feature);
    free(r.target);
    return status;
}

void tutti__table_close(tutti__table *table)
{
    tutti__csv_close(&table->csv);
    free(table->x);
    free(table->target);
    free(table->line);
    *table = (tutti__table){.count = 0};
}

/* ---- A row ------------------------------------------------------------------------------------------------- */

static tutti_status label_of(const tutti__table *table, size_t row, const tutti__table_fit *fit,
                             int64_t *label_p)
{
    const char *text = table->target[row];
    const size_t label = tutti__columns_find(&fit->classes, text);
    char shown[200];
    double value;

    *label_p = (int64_t)label;
    if (label != SIZE_MAX)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s, row %zu (line %zu), column \"%.100s\": \"%.60s\" is not one of the %zu "
                       "classes of the training rows; %s",
                       table->path, row + 1, table->line[row], fit->targets.name[0],
                       tutti__printable(text, shown, sizeof shown), fit->classes.n,
                       tutti__table_number(table->target[row], &value)
                           ? "if they are numbers to predict, use task=regression; else leave out "
                             "the row, or train with rows of this class"
                           : "leave out the row, or train with rows of this class");
}

tutti_status tutti__table_row(const tutti__table *table, size_t row, const tutti__table_fit *fit,
                              float *x, void *y)
{
    const size_t n = fit->features.n, targets = fit->targets.n;
    double value = 0;

    for (size_t i = 0; i < n; i++) {
        value = table->x[row * n + i];
        x[i] = (float)(fit->raw ? value : (value - fit->mean[i]) / fit->std[i]);
    }
    if (fit->classes.n > 0)
        return label_of(table, row, fit, y);
    for (size_t i = 0; i < targets; i++) {
        char *text = table->target[row * targets + i];

        if (!tutti__table_number(text, &value))
            return fail_value(table, row, table->line[row], fit->targets.name[i], text, false);
        ((float *)y)[i] = (float)value;
    }
    return TUTTI_OK;
}
