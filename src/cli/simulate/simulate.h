/* simulate.h -- `tutti simulate`: what its two kinds of simulation are asked.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_SIMULATE_H
#define TUTTI_CLI_SIMULATE_H

#include "cli/sizes.h"
#include "simulate/collective.h"

#include <jansson.h>

enum { TUTTI__SIMULATE_LIST = 64 /* ranks, deaths, cuts of a command line, at most */ };

/* Calls of a collective. */
typedef struct tutti__simulate_calls {
    int ranks[TUTTI__SIMULATE_LIST];
    int n_ranks;
    int hosts, per_host; /* 0: not given */
    tutti__sim_links links;
    tutti__op_kind op;
    tutti__sizes sizes;
    int64_t chunk; /* bytes */
    int root;
    const char *algorithm; /* a name, "auto" or "all" */
    uint64_t seed;
    double jitter_us, loss;
    const char *kill, *slow, *partition; /* texts; NULL: not given */
    int data;                            /* 0: as it fits, else 1 + a tutti__sim_data_kind */
    bool verbose;
    const char *json;
} tutti__simulate_calls;

/* Prints a table, and a line for programs for each call. *wrong_p: elements that were not what the operation says. */
tutti_status tutti__simulate_calls_run(const tutti__simulate_calls *ask, uint64_t *wrong_p);

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

/* ---- Results (results.c) ----------------------------------------------------------------------------------------------- */

/* Where tables go: standard error if standard output gets the JSON. */
FILE *tutti__simulate_out(const char *json);
/* JSON to the file, or "-": to standard output. Takes `root`; NULL: there was no memory for it. */
tutti_status tutti__simulate_write(const char *path, json_t *root);

/* ---- Faults of a command line (faults.c) ----------------------------------------------------------------------------- */

/* Those of --kill, --slow and --partition for this many ranks and hosts, "any" chosen by the seed. */
typedef struct tutti__simulate_faults {
    tutti__sim_death deaths[TUTTI__SIMULATE_LIST];
    tutti__sim_slow slow[TUTTI__SIMULATE_LIST];
    tutti__cut cuts[TUTTI__SIMULATE_LIST];
    int n_deaths, n_slow, n_cuts;
} tutti__simulate_faults;

/* Errors: ARG for a text that is none, or a rank or host that there is not. */
tutti_status tutti__simulate_faults_read(tutti__simulate_faults *faults,
                                         const tutti__simulate_calls *ask,
                                         const tutti__machines *machines);

#endif
