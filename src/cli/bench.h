/* bench.h -- what `tutti bench` is asked to measure.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_BENCH_H
#define TUTTI_CLI_BENCH_H

#include "comm/comm.h"
#include "comm/core/operation.h"

enum { TUTTI__BENCH_SIZES = 64 };

typedef struct tutti__bench {
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
    const char *json; /* file, or NULL */
} tutti__bench;

/* What the user calls it. */
const char *tutti__bench_name(tutti__op_kind kind);
/* Joins the group that the environment describes, measures, prints the table on rank 0. *wrong_p: elements that were. */
tutti_status tutti__bench_collective(const tutti__bench *bench, int64_t *wrong_p);

#endif
