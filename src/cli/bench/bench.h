/* bench.h -- what `tutti bench` measures.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_BENCH_H
#define TUTTI_CLI_BENCH_H

#include "base/terminal.h"
#include "cli/sizes.h"
#include "comm/algorithm/tuner.h"
#include "comm/comm.h"
#include "comm/core/operation.h"
#include "device/cpu/peak.h"
#include "tensor/op_profile.h"
#include "train/config/parts.h"

#include <stdio.h>

enum { TUTTI__BENCH_WORKERS = 16 };

/* Options of `tutti bench loader`. */
typedef struct tutti__bench_data {
    const char *name, *dir, *split; /* dir "": none */
    int image_size, batch, prefetch;
    int workers[TUTTI__BENCH_WORKERS];
    size_t n_workers;
    bool augment;
    double seconds; /* per row */
} tutti__bench_data;

struct tutti__bench_table;
typedef tutti_status tutti__benchmark(struct tutti__bench_table *table, int64_t *wrong_p);

typedef struct tutti__bench {
    const char *name; /* as the user writes it */
    tutti__benchmark *run;
    tutti__op_kind kind;
    tutti_dtype dtype;
    tutti_redop redop;
    const char *dtype_name, *redop_name; /* as in the table; redop "none" if there is none */
    tutti_backend backend;
    bool group_memory;          /* buffers from tutti_group_alloc */
    int root;                   /* if the collective has one */
    int64_t in_flight;          /* asynchronous calls in flight; 0: synchronous calls */
    int64_t iterations, warmup; /* iterations 0: chosen by size and time */
    tutti__sizes sizes;
    tutti__bench_data data; /* of the loader, which of the above uses only `run` and `backend` */
    tutti__train_config config; /* of steps, which also use `iterations` and `warmup` */
    tutti__parts parts;         /* of config */
    bool layers;                /* of steps: also a table by layer */
    const char *json;           /* file, "-": standard output, or NULL */
    bool algorithms,
        explain;      /* of collectives: a row for each algorithm; only which is chosen, and why */
    const char *tune; /* the tuner file to write, or NULL */
    bool tune_all;    /* for all collectives that have algorithms */
} tutti__bench;

/* Measure in the table's group, and print rows on rank 0. *wrong_p, which is 0: the number of wrong elements. */
tutti__benchmark tutti__bench_collective, tutti__bench_ping_pong, tutti__bench_loader;
/* Of one collective, or of all: the fastest algorithm for each size, into the file `tune`. */
tutti__benchmark tutti__bench_tune;
/* With `algorithms` a row for each algorithm and size; with `explain` a line for each size. */
tutti__benchmark tutti__bench_algorithms;
/* Here *wrong_p counts ranks whose parameters differ from rank 0's at the end. */
tutti__benchmark tutti__bench_step;

/* ---- Operations of steps (bench_ops.c) ----------------------------------------------------------------- */

/* The parts of one rank's steps, in milliseconds per step. */
typedef struct tutti__bench_ops {
    const tutti__profile *profile; /* of `steps` steps */
    size_t steps;
    double step_ms, data_ms, exposed_ms; /* means, not medians: the parts add up */
    double page_faults; /* minor ones, per step: pages that the kernel cleared or mapped */
    int threads;        /* of peak.gflops each */
    tutti__cpu_peak peak;
} tutti__bench_ops;

/* A table by kind of operation, and one by layer if `layers`. */
void tutti__bench_ops_print(FILE *out, const tutti__bench_ops *ops, bool layers);
/* Members of the JSON row, each after ", ": "ops" is an array, by layer and shape. */
void tutti__bench_ops_json(FILE *json, const tutti__bench_ops *ops);

/* ---- Common functions (bench_table.c) ---------------------------------------------------------- */

typedef struct tutti__bench_table {
    const tutti__bench *bench;
    tutti_group *group;
    FILE *out;  /* for the table: standard error if standard output gets the JSON */
    FILE *json; /* on rank 0, or NULL */
    char *json_text;
    size_t json_bytes;
    tutti__bar bar; /* on rank 0, while a row is measured */
} tutti__bench_table;

typedef struct tutti__bench_row {
    size_t bytes, count;
    int root;          /* or -1 */
    int timers;        /* ranks that time an iteration; the times of others are 0 */
    double bus_factor; /* busbw / algbw */
    int64_t iterations;
    double *times; /* microseconds of each iteration */
    int64_t wrong;
    const char *algorithm; /* NULL: the one that is chosen, of which the row says nothing */
    double estimate_us;
    double median_us; /* set when it is added; the same on all ranks */
} tutti__bench_row;

/* Members of every row of the JSON file. */
typedef struct tutti__bench_figures {
    size_t bytes;
    const char *dtype, *redop, *memory;
    int root;
    int64_t iterations, wrong;
    double median_us, p95_us;
    double algbw, busbw; /* 1e9 bytes per second */
} tutti__bench_figures;

/* One call and its check; *us_p is its time, unchanged where this rank does not time. */
typedef tutti_status tutti__bench_round(void *stand, double *us_p, int64_t *wrong_p);

/* All ranks call these; rank 0 prints. Opening truncates the JSON file, so that a path that cannot be written is reported
 * before the measurement. */
tutti_status tutti__bench_table_open(tutti__bench_table *table, const tutti__bench *bench,
                                     tutti_group *group);
/* The head of the collectives' table. */
void tutti__bench_table_head(const tutti__bench_table *table);
/* Writes a row of the JSON file, if there is one; more: further members, each after ", ". */
void tutti__bench_json_row(tutti__bench_table *table, const tutti__bench_figures *figures,
                           const char *more);
/* Collective: the warm-up rounds after the first, then the timed ones, into row->times, which the caller frees. Unless their number
 * is given it depends on the `bytes` that a round moves, and all take about a second: rank 0 decides by how long the first took. */
tutti_status tutti__bench_rounds(tutti__bench_table *table, tutti__bench_row *row, size_t bytes,
                                 tutti__bench_round *round, void *stand);
/* Sorts, and returns the median and the 95th percentile. */
void tutti__bench_sort(double *times, size_t n, double *median_p, double *p95_p);
/* Prints the row: times are means over the ranks that timed an iteration, as in nccl-tests; wrong elements of all ranks. Leaves
 * the sums in *row, and the times sorted. */
tutti_status tutti__bench_table_add(tutti__bench_table *table, tutti__bench_row *row);
/* Writes the JSON file if `status` is OK; returns `status`, or its own failure. Also for a table that is all zero. */
tutti_status tutti__bench_table_close(tutti__bench_table *table, tutti_status status);

/* A buffer as --memory says. Every rank calls it with the same size. */
tutti_status tutti__bench_alloc(const tutti__bench *bench, tutti_group *group, size_t bytes,
                                char **memory_p);
void tutti__bench_free(const tutti__bench *bench, tutti_group *group, char *memory);

/* ---- Collectives (bench_collective.c, bench_algorithms.c) ----------------------------------------------- */

/* Measures the bench's collective with a function for each size, in memory for the largest one. */
typedef struct tutti__bench_stand tutti__bench_stand;
typedef tutti_status tutti__bench_size(tutti__bench_stand *stand, int64_t bytes, int64_t *wrong_p,
                                       void *arg);
tutti_status tutti__bench_sizes(tutti__bench_table *table, tutti__bench_size *each, void *arg,
                                int64_t *wrong_p);
/* A row. algorithm NULL: the one that is chosen; else `call`, as the tuner saw it, is what is estimated. */
tutti_status tutti__bench_one(tutti__bench_stand *stand, int64_t bytes,
                              const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                              double *median_us_p, int64_t *wrong_p);
/* One checked call, so that the tuner knows it (tutti__tuner's `last`). */
tutti_status tutti__bench_try(tutti__bench_stand *stand, int64_t bytes, int64_t *wrong_p);

#endif
