/* csv_read.h -- CSV files by RFC 4180, record by record.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_CSV_READ_H
#define TUTTI_DATA_CSV_READ_H

#include "base/base.h"

/* A file in memory. Its text is cut in place: fields point into it, and end with NUL. */
typedef struct tutti__csv {
    const char *path; /* borrowed, for messages */
    char *text;
    size_t bytes, at;
    size_t line, next_line; /* of the last record's beginning, from 1 */
    char **fields;          /* of the last record */
    size_t n, room;
} tutti__csv;

/* Errors: NOT_FOUND, IO; FORMAT for a file with NUL bytes. Close it in any case. */
tutti_status tutti__csv_open(tutti__csv *csv, const char *path);
/* The next record, without empty lines; *more_p false at the end. FORMAT, with the line, for a quote out of place. */
tutti_status tutti__csv_next(tutti__csv *csv, bool *more_p);
void tutti__csv_close(tutti__csv *csv);

#endif
