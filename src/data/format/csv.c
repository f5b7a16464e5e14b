/* csv.c -- tables: DIR/train.csv and DIR/test.csv, or parts of one file.   SPDX-License-Identifier: MIT
 *
 * All values are held in memory, as F32. Where there is no file for the test split, its rows are the first of a permutation, the
 * others are the training split's. */
#include "data/data_files.h"
#include "data/dataset.h"
#include "data/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_FRACTION 0.2

typedef struct csv_table {
    tutti__table_fit fit;
    char path[4096];
    size_t count;
    float *x;
    void *y; /* labels or targets */
    size_t x_bytes, y_bytes;
    size_t *row; /* of the file */
    tutti_field fields[2];
} csv_table;

/* Which part of which file. */
typedef struct part {
    char path[4096];
    enum { ALL, TRAIN, TEST } rows;
} part;

/* ---- The split ---------------------------------------------------------------------------------------------- */

static tutti_status find_part(part *p, const tutti_dataset_source *source, const char *split)
{
    const bool is_test = strcmp(split, "test") == 0, is_train = strcmp(split, "train") == 0;
    const bool is_one = is_train || is_test || strcmp(split, "all") == 0;
    char file[128], test[4096];

    p->rows = is_test ? TEST : is_train ? TRAIN : ALL;
    snprintf(p->path, sizeof p->path, "%s", source->dir);
    if (!tutti__is_folder(source->dir)) {
        if (access(source->dir, R_OK) != 0)
            return tutti__fail_errno(errno, "data folder or table %s", source->dir);
        return is_one ? TUTTI_OK
                      : tutti__fail(TUTTI_ERR_ARG,
                                    "%s is one file: its splits are train, test and all, not "
                                    "\"%.60s\"",
                                    source->dir, split);
    }
    snprintf(file, sizeof file, "%.60s.csv", split);
    TUTTI_TRY(tutti__path(p->path, source->dir, file));
    TUTTI_TRY(tutti__path(test, source->dir, "test.csv"));
    if (access(test, F_OK) == 0 || !(is_train || is_test))
        p->rows = ALL;
    else if (is_test) /* a part of the training file */
        TUTTI_TRY(tutti__path(p->path, source->dir, "train.csv"));
    return TUTTI_OK;
}

/* Chooses *n_p rows of `count`. */
static tutti_status choose_rows(const part *p, size_t count, double fraction, size_t **rows_p,
                                size_t *n_p)
{
    const tutti_sampler_opts opts = {.count = count, .world_size = 1, .shuffle = true};
    const size_t n_test = (size_t)llround((double)count * fraction);
    size_t *order = tutti__alloc(count * sizeof *order), n = 0;
    bool *is_test = tutti__alloc(count + 1);
    tutti_status status = order && is_test ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        status = tutti_sampler_indices(&opts, 0, order);
    for (size_t i = 0; status == TUTTI_OK && i < n_test && i < count; i++)
        is_test[order[i]] = true;
    for (size_t i = 0; status == TUTTI_OK && i < count; i++)
        if (p->rows == ALL || is_test[i] == (p->rows == TEST))
            order[n++] = i;
    free(is_test);
    if (status == TUTTI_OK && n == 0)
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s: a test_fraction of %g of its %zu rows leaves none for %s; write "
                             "a test.csv, use another fraction, or do not evaluate",
                             p->path, fraction, count, p->rows == TEST ? "testing" : "training");
    *rows_p = order;
    *n_p = n;
    return status;
}

static tutti_status fraction_of(const tutti_table_opts *opts, double *fraction_p)
{
    *fraction_p = tutti__or(opts->test_fraction, TEST_FRACTION);
    if (*fraction_p >= 0 && *fraction_p < 1)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "test_fraction is %g, expected 0 to below 1", *fraction_p);
}

/* ---- Opening ------------------------------------------------------------------------------------------------ */

static tutti_status learn_from(const tutti__table *table, const part *p, double fraction,
                               const tutti_table_opts *opts, tutti__table_fit *fit)
{
    size_t *rows, n;
    tutti_status status = choose_rows(p, table->count, fraction, &rows, &n);

    if (status == TUTTI_OK)
        status = tutti__table_learn(table, rows, n, opts, fit);
    free(rows);
    return status;
}

/* Learns from another file. */
static tutti_status learn_there(const part *p, double fraction, const tutti_table_opts *opts,
                                tutti__table_fit *fit)
{
    tutti__table table = {.count = 0};
    tutti_status status = tutti__table_read(&table, p->path, opts, fit);

    if (status == TUTTI_OK)
        status = learn_from(&table, p, fraction, opts, fit);
    tutti__table_close(&table);
    return status;
}

/* Reads the part's file, and learns from the training split, unless the caller knows. */
static tutti_status read_and_learn(tutti__table *table, const part *p, double fraction,
                                   const tutti_dataset_source *source, tutti__table_fit *fit)
{
    part train;
    bool is_here;

    if (source->fit) {
        TUTTI_TRY(tutti__table_fit_read(fit, source->fit));
        return tutti__table_read(table, p->path, source->table, fit);
    }
    TUTTI_TRY(find_part(&train, source, "train"));
    is_here = strcmp(train.path, p->path) == 0; /* then one reading is enough */
    if (!is_here)
        TUTTI_TRY(learn_there(&train, fraction, source->table, fit));
    TUTTI_TRY(tutti__table_read(table, p->path, source->table, fit));
    return is_here ? learn_from(table, &train, fraction, source->table, fit) : TUTTI_OK;
}

/* Keeps the rows of a split, as numbers. */
static tutti_status keep_rows(csv_table *data, const tutti__table *table)
{
    const tutti__table_fit *fit = &data->fit;

    data->x_bytes = fit->features.n * sizeof(float);
    data->y_bytes = fit->classes.n > 0 ? sizeof(int64_t) : fit->targets.n * sizeof(float);
    data->x = malloc(data->count * data->x_bytes);
    data->y = malloc(data->count * data->y_bytes);
    if (!data->x || !data->y)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu rows of %s", data->count,
                           table->path);
    for (size_t i = 0; i < data->count; i++)
        TUTTI_TRY(tutti__table_row(table, data->row[i], fit, data->x + i * fit->features.n,
                                   (char *)data->y + i * data->y_bytes));
    return TUTTI_OK;
}

static void describe(csv_table *data, tutti_dataset_info *info)
{
    const tutti__table_fit *fit = &data->fit;

    data->fields[0] = (tutti_field){
        .name = "x", .dtype = TUTTI_F32, .shape = TUTTI_SHAPE((int64_t)fit->features.n)};
    if (fit->classes.n > 0)
        data->fields[1] = (tutti_field){.name = "labels", .dtype = TUTTI_I64};
    else
        data->fields[1] = (tutti_field){
            .name = "targets", .dtype = TUTTI_F32, .shape = TUTTI_SHAPE((int64_t)fit->targets.n)};
    info->count = data->count;
    info->classes = (int)fit->classes.n;
    info->class_names =
        (const char *const *)(fit->classes.n ? fit->classes.name : fit->targets.name);
    info->fields = data->fields;
    info->n_fields = 2;
}

static tutti_status csv_open(void **self_p, const tutti_dataset_source *source,
                             tutti_dataset_info *info)
{
    csv_table *data = *self_p = tutti__alloc(sizeof *data);
    tutti__table table = {.count = 0};
    double fraction;
    tutti_status status;
    part p;

    if (!data)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(fraction_of(source->table, &fraction));
    TUTTI_TRY(find_part(&p, source, source->split));
    status = read_and_learn(&table, &p, fraction, source, &data->fit);
    if (status == TUTTI_OK)
        status = choose_rows(&p, table.count, fraction, &data->row, &data->count);
    if (status == TUTTI_OK)
        status = keep_rows(data, &table);
    if (status == TUTTI_OK)
        describe(data, info);
    snprintf(data->path, sizeof data->path, "%s", p.path);
    tutti__table_close(&table);
    return status;
}

static tutti_status csv_read(const void *self, size_t index, const uint64_t *chance,
                             void *const *arrays)
{
    const csv_table *data = self;

    (void)chance;
    memcpy(arrays[0], (const char *)data->x + index * data->x_bytes, data->x_bytes);
    memcpy(arrays[1], (const char *)data->y + index * data->y_bytes, data->y_bytes);
    return TUTTI_OK;
}

static void csv_locate(const void *self, size_t index, char *text, size_t size)
{
    const csv_table *data = self;

    snprintf(text, size, "%s, row %zu", data->path, data->row[index] + 1);
}

static const char *csv_fitted(const void *self)
{
    return ((const csv_table *)self)->fit.text;
}

static void csv_close(void *self)
{
    csv_table *data = self;

    tutti__table_fit_free(&data->fit);
    free(data->x);
    free(data->y);
    free(data->row);
    free(data);
}

const tutti_dataset_format tutti__format_csv = {
    .name = "csv",
    .help = "tables, DIR/train.csv and test.csv, or one file",
    .any_split = true,
    .open = csv_open,
    .read_arrays = csv_read,
    .close = csv_close,
    .locate = csv_locate,
    .fitted = csv_fitted,
};
