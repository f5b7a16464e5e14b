/* simulate.h -- `tutti simulate`: what its two kinds of simulation are asked.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_SIMULATE_H
#define TUTTI_CLI_SIMULATE_H

#include "base/base.h"

/* Random histories of a job. */
typedef struct tutti__simulate_histories {
    uint64_t n, seed; /* seeds seed, seed + 1, ... */
    int nodes, workers;
    bool verbose; /* print the events of each */
    const char *json;
} tutti__simulate_histories;

/* Prints the results, the last line for programs. *broken_p: how many histories broke an invariant. */
tutti_status tutti__simulate_histories_run(const tutti__simulate_histories *ask,
                                           uint64_t *broken_p);
/* A JSON object or array to the file, or "-": to standard output. Takes `root`, NULL: no memory for it. */
struct json_t;
tutti_status tutti__simulate_write(const char *path, struct json_t *root);

#endif
