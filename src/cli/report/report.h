/* report.h -- `tutti report`'s data about runs, shared by the files that read and write.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_REPORT_H
#define TUTTI_CLI_REPORT_H

#include "base/base.h"
#include "data/dataset.h"
#include <jansson.h>
#include <stdio.h>

/* ---- Curves ------------------------------------------------------------------------------------------ */

enum {
    TUTTI__CELLS = 1024, /* of a column at most: about the width of a curve in pixels */
    TUTTI__COLUMNS = 96,
    TUTTI__COLUMN_NAME = 64
};

/* Statistics of one figure over some consecutive lines; n 0: none. */
typedef struct tutti__cell {
    double sum, min, max;
    uint64_t n;
} tutti__cell;

typedef struct tutti__column {
    char name[TUTTI__COLUMN_NAME];
    tutti__cell cells[TUTTI__CELLS];
} tutti__column;

/* Any number of lines in bounded memory: a cell covers as many lines as necessary, a power of two. Empty: all zero. */
typedef struct tutti__curves {
    uint64_t lines, lines_a_cell; /* 0: no line yet */
    size_t n;
    tutti__column *columns[TUTTI__COLUMNS];
    bool crowded; /* there were more figures than columns */
} tutti__curves;

void tutti__curves_begin_line(tutti__curves *curves);
/* Adds a figure of the current line. */
tutti_status tutti__curves_put(tutti__curves *curves, const char *name, double value);
/* {"lines": 70, "lines_a_cell": 1, "columns": {"loss": {"mean": [...], "min": [...], "max": [...]}, ...}}; min and max only
 * if a cell covers several lines. */
void tutti__curves_print(FILE *out, const tutti__curves *curves);
void tutti__curves_free(tutti__curves *curves);

/* ---- Runs --------------------------------------------------------------------------------------------- */

enum { TUTTI__REPORT_NOTES = 16 };

typedef struct tutti__report_run {
    const char *path;         /* as it was given */
    char *label;              /* distinguishes it from the others */
    json_t *config, *summary; /* objects; NULL: missing */
    char *sample;             /* the last text of a language model; NULL: none */
    json_t *lr_find;          /* of a learning-rate range test; else NULL */
    tutti__curves steps, evals;
    char *notes[TUTTI__REPORT_NOTES]; /* what is missing or damaged */
    size_t n_notes;
} tutti__report_run;

/* Reads the files of run->path. Missing or damaged files become notes; it fails if the folder does not exist or is no
 * run, or no memory. tick: of MB. */
tutti_status tutti__report_read(tutti__report_run *run, const tutti__tick *tick);
/* Labels each run with the end of its path, as long as necessary to distinguish them. */
tutti_status tutti__report_label(tutti__report_run *runs, size_t n);
void tutti__report_free(tutti__report_run *run);

/* Writes the page. */
tutti_status tutti__report_print(FILE *out, const tutti__report_run *runs, size_t n);

/* All ranks' traces of a run folder as one, JSON; the caller frees it. */
tutti_status tutti__report_trace(const char *run_dir, char **text_p);

#endif
