/* bench.h -- what `tutti bench` is asked to measure.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_BENCH_H
#define TUTTI_CLI_BENCH_H

#include "comm/comm.h"
#include "comm/core/operation.h"
#include "device/cpu/peak.h"
#include "tensor/profile.h"
#include "train/parts.h"

#include <stdio.h>

enum { TUTTI__BENCH_SIZES = 64, TUTTI__BENCH_WORKERS = 16 };

/* What is asked of `tutti bench loader`. */
typedef struct tutti__bench_data {
    const char *name, *dir, *split; /* dir "": none */
    int image_size, batch, prefetch;
    int workers[TUTTI__BENCH_WORKERS];
    size_t n_workers;
    bool augment;
    double seconds; /* of a row */
} tutti__bench_data;

typedef struct tutti__bench {
    const char *name; /* what the user calls it */
    tutti_status (*run)(const struct tutti__bench *bench, int64_t *wrong_p); /* one of the below */
    tutti__op_kind kind;
    tutti_dtype dtype;
    tutti_redop redop;
    const char *dtype_name, *redop_name; /* as in the table; redop "none" where there is none */
    tutti_backend backend;
    bool group_memory;                 /* buffers from tutti_group_alloc */
    int root;                          /* of what has one */
    int64_t in_flight;                 /* asynchronous calls at once; 0: synchronous ones */
    int64_t iterations, warmup;        /* iterations 0: by the size */
    int64_t sizes[TUTTI__BENCH_SIZES]; /* bytes */
    size_t n_sizes;
    tutti__bench_data
        data; /* of the loader, for which the above but `run` and `backend` says nothing */
    tutti__train_config config; /* of steps, which heed `iterations` and `warmup` too */
    tutti__parts parts;         /* its */
    bool layers;                /* of steps: a table by layer too */
    const char *json;           /* file, "-": standard output, or NULL */
} tutti__bench;

/* These join the group that the environment describes, measure, and print the table on rank 0.
 * *wrong_p: elements that were. */
tutti_status tutti__bench_collective(const tutti__bench *bench, int64_t *wrong_p);
tutti_status tutti__bench_ping_pong(const tutti__bench *bench, int64_t *wrong_p);
tutti_status tutti__bench_loader(const tutti__bench *bench, int64_t *wrong_p);
/* Here *wrong_p counts ranks whose parameters are not rank 0's at the end. */
tutti_status tutti__bench_step(const tutti__bench *bench, int64_t *wrong_p);

/* ---- Operations of steps (bench_ops.c) ----------------------------------------------------------------- */

/* What steps of one rank consisted of, in milliseconds a step. */
typedef struct tutti__bench_ops {
    const tutti__profile *profile; /* of `steps` steps */
    size_t steps;
    double step_ms, data_ms, exposed_ms; /* means, not medians: the parts add up */
    double page_faults; /* minor ones, a step: pages that the kernel cleared or mapped */
    int threads;        /* of peak.gflops each */
    tutti__cpu_peak peak;
} tutti__bench_ops;

/* A table by kind of operation, and one by layer if `layers`. */
void tutti__bench_ops_print(FILE *out, const tutti__bench_ops *ops, bool layers);
/* Members of the JSON row, each behind ", ": "ops" is an array, by layer and shape. */
void tutti__bench_ops_json(FILE *json, const tutti__bench_ops *ops);

/* ---- What they have in common (bench_table.c) ---------------------------------------------------------- */

typedef struct tutti__bench_table {
    const tutti__bench *bench;
    tutti_group *group;
    FILE *out;  /* for the table: standard error where standard output gets the JSON */
    FILE *json; /* on rank 0, or NULL */
    char *json_text;
    size_t json_bytes;
} tutti__bench_table;

typedef struct tutti__bench_row {
    size_t bytes, count;
    int root;          /* or -1 */
    int timers;        /* ranks that time an iteration; the times of others are 0 */
    double bus_factor; /* busbw / algbw */
    int64_t iterations;
    double *times; /* microseconds of each iteration */
    int64_t wrong;
} tutti__bench_row;

/* What every row of the JSON file holds. */
typedef struct tutti__bench_figures {
    size_t bytes;
    const char *dtype, *redop, *memory;
    int root;
    int64_t iterations, wrong;
    double median_us, p95_us;
    double algbw, busbw; /* 1e9 bytes a second */
} tutti__bench_figures;

/* Iterations, and room for their times, which the caller frees. `bytes` that one of them moves: many where they are
 * quick. */
tutti_status tutti__bench_row_init(tutti__bench_row *row, const tutti__bench *bench, size_t bytes);

/* All ranks call these; rank 0 prints. Opening empties the JSON file at once: a path that cannot be written is known
 * before the measuring. */
tutti_status tutti__bench_table_open(tutti__bench_table *table, const tutti__bench *bench,
                                     tutti_group *group);
/* The head of the collectives' table. */
void tutti__bench_table_head(const tutti__bench_table *table);
/* A row of the JSON file, where there is one; more: further members, each behind ", ". */
void tutti__bench_json_row(tutti__bench_table *table, const tutti__bench_figures *figures,
                           const char *more);
/* Sorts, and tells the median and the 95th percentile. */
void tutti__bench_sort(double *times, size_t n, double *median_p, double *p95_p);
/* Of each iteration the mean over the ranks that timed it, as in nccl-tests; what was wrong anywhere. Leaves the sums
 * in *row, and the times sorted. */
tutti_status tutti__bench_table_add(tutti__bench_table *table, tutti__bench_row *row);
/* Writes the JSON file if `status` is OK; returns `status`, or its own failure. Also for one that is all zero. */
tutti_status tutti__bench_table_close(tutti__bench_table *table, tutti_status status);

/* A buffer as --memory says. Every rank calls it with the same size. */
tutti_status tutti__bench_alloc(const tutti__bench *bench, tutti_group *group, size_t bytes,
                                char **memory_p);
void tutti__bench_free(const tutti__bench *bench, tutti_group *group, char *memory);

#endif
