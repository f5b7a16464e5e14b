/* table.h -- tables of numbers with a header: rows, the roles of columns, and what is learned from the training rows.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_TABLE_H
#define TUTTI_DATA_TABLE_H

#include "data/csv_read.h"

#include <jansson.h>
#include <tutti/data.h>

#define TUTTI__TABLE_COLUMNS 65536 /* at most */

/* A list of names, which it owns, with a hash table of them: tables may have thousands of columns, and millions of labels. */
typedef struct tutti__columns {
    char **name;
    size_t n, room;
    size_t *slots, n_slots; /* 0: free; else the name's index + 1. At most half of them are used */
} tutti__columns;
tutti_status tutti__columns_add(tutti__columns *list, const char *name);
/* SIZE_MAX: none of them. */
size_t tutti__columns_find(const tutti__columns *list, const char *name);
void tutti__columns_free(tutti__columns *list);

/* What training determines, and evaluation and prediction use. */
typedef struct tutti__table_fit {
    tutti__columns features, targets;
    tutti__columns classes; /* none: regression */
    bool raw;
    double *mean, *std; /* of features */
    char *text;         /* all of this as JSON */
} tutti__table_fit;

/* From such a text. FORMAT, if it is not one. */
tutti_status tutti__table_fit_read(tutti__table_fit *fit, const char *text);
void tutti__table_fit_free(tutti__table_fit *fit);

/* All rows of a file. */
typedef struct tutti__table {
    tutti__csv csv;
    char path[4096];
    size_t count;
    double *x;     /* [count, features] */
    char **target; /* [count, targets], text in csv */
    size_t *line;  /* [count] */
    size_t room;
} tutti__table;

/* Reads a file whose columns are those of fit, or, if fit has none, those that opts names, which become fit's. Close it in any
 * case. */
tutti_status tutti__table_read(tutti__table *table, const char *path, const tutti_table_opts *opts,
                               tutti__table_fit *fit);
void tutti__table_close(tutti__table *table);
/* Learns classes, mean and std from these n rows, and writes fit->text. */
tutti_status tutti__table_learn(const tutti__table *table, const size_t *rows, size_t n,
                                const tutti_table_opts *opts, tutti__table_fit *fit);
/* Whether a field is a finite decimal number, with blanks around it or not; not hexadecimal, which pandas and NumPy take for text.
 * `text` is changed and restored. */
bool tutti__table_number(char *text, double *value_p);
/* Row `row` as x and y: F32 features; a label (int64_t) or F32 targets. */
tutti_status tutti__table_row(const tutti__table *table, size_t row, const tutti__table_fit *fit,
                              float *x, void *y);

#endif
