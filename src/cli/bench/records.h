/* records.h -- figures that were measured and can be measured again: bench/records.json.   SPDX-License-Identifier: MIT
 *
 * An object, with a member for each record:
 *   "start": {"title": TEXT, "peer": NAME, "command": for bash, in the repository's root; it prints Markdown tables,
 *             "needs": TEXT, what of a machine the peer takes, "measured": TEXT, when and where,
 *             "figures": [{"what": TEXT, "unit": TEXT, "better": "higher" or "lower", "ours": NUMBER, "peer": NUMBER,
 *                          "our_cell": [ROW, COLUMN], "peer_cell": [ROW, COLUMN], "asked": NUMBER, may be absent}]}
 * A cell is in the first row that contains the text ROW, in a table whose head has a column COLUMN; its figure is the first number
 * in it. */
#ifndef TUTTI_CLI_RECORDS_H
#define TUTTI_CLI_RECORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <tutti/status.h>

typedef struct tutti__bench_figure {
    const char *what, *unit;
    bool higher; /* is better */
    double ours, peer;
    double asked; /* the least advantage; 0: none */
    const char *our_cell[2], *peer_cell[2];
} tutti__bench_figure;

typedef struct tutti__bench_record {
    const char *name, *title, *peer, *command, *needs, *measured;
    tutti__bench_figure *figures;
    size_t n;
} tutti__bench_record;

typedef struct tutti__bench_records {
    char path[4096];
    json_t *root; /* has the texts */
    tutti__bench_record *list;
    size_t n;
} tutti__bench_records;

/* path NULL: bench/records.json in the working directory, or in the repository that this command was built in. Errors name the
 * record and member. */
tutti_status tutti__bench_records_open(tutti__bench_records *records, const char *path);
void tutti__bench_records_close(tutti__bench_records *records);

/* How many times better ours is: over the peer's if more is better, else under it. */
double tutti__bench_advantage(const tutti__bench_figure *figure, double ours, double peer);

/* The number in a cell of the Markdown tables in `text`; false: there is none. */
bool tutti__bench_cell(const char *text, const char *const cell[2], double *number_p);

#endif
