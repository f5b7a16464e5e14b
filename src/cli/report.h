/* report.h -- what `tutti report` knows of runs, between the files that read and the file that writes.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_REPORT_H
#define TUTTI_CLI_REPORT_H

#include "base/base.h"
#include "data/dataset.h"
#include <jansson.h>
#include <stdio.h>

/* ---- Curves ------------------------------------------------------------------------------------------ */

enum {
    TUTTI__CELLS = 1024, /* of a column at most: about the pixels of a curve's width */
    TUTTI__COLUMNS = 96,
    TUTTI__COLUMN_NAME = 64
};

/* What some consecutive lines say of one figure; n 0: nothing. */
typedef struct tutti__cell {
    double sum, min, max;
    uint64_t n;
} tutti__cell;

typedef struct tutti__column {
    char name[TUTTI__COLUMN_NAME];
    tutti__cell cells[TUTTI__CELLS];
} tutti__column;

/* Any number of lines in bounded memory: a cell stands for as many lines as need be, a power of two. Empty: all zero. */
typedef struct tutti__curves {
    uint64_t lines, lines_a_cell; /* 0: no line yet */
    size_t n;
    tutti__column *columns[TUTTI__COLUMNS];
    bool crowded; /* there were more figures than columns */
} tutti__curves;

void tutti__curves_begin_line(tutti__curves *curves);
/* A figure of the line that has begun last. */
tutti_status tutti__curves_put(tutti__curves *curves, const char *name, double value);
/* {"lines": 70, "lines_a_cell": 1, "columns": {"loss": {"mean": [...], "min": [...], "max": [...]}, ...}}; min and max only
 * where a cell stands for several lines. */
void tutti__curves_print(FILE *out, const tutti__curves *curves);
void tutti__curves_free(tutti__curves *curves);

/* ---- Runs --------------------------------------------------------------------------------------------- */

enum { TUTTI__REPORT_NOTES = 16 };

typedef struct tutti__report_run {
    const char *path;         /* as it was given */
    char *label;              /* tells it from the others */
    json_t *config, *summary; /* objects; NULL: missing */
    tutti__curves steps, evals;
    char *notes[TUTTI__REPORT_NOTES]; /* what is missing or damaged */
    size_t n_notes;
} tutti__report_run;

/* Reads the files of run->path. What is missing or damaged becomes a note; a failure is a folder that is none or holds no
 * run, or no memory. tick: of MB. */
tutti_status tutti__report_read(tutti__report_run *run, const tutti__tick *tick);
/* The end of each path, as long as need be to tell them apart. */
tutti_status tutti__report_label(tutti__report_run *runs, size_t n);
void tutti__report_free(tutti__report_run *run);

/* The page. */
tutti_status tutti__report_print(FILE *out, const tutti__report_run *runs, size_t n);

/* All ranks' traces of a run folder as one file. */
tutti_status tutti__report_trace(const char *run_dir, const char *out);

/* The text to a file, or to standard output ("-"). */
tutti_status tutti__report_write(const char *path, const char *text, size_t bytes);

#endif
