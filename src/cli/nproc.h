/* nproc.h -- commands that do their work in this process, or in N of them: `-n N`.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_NPROC_H
#define TUTTI_CLI_NPROC_H

#include "base/base.h"

/* Removes -n N from argv[1..]. *n_p 0: not given. */
tutti_status tutti__nproc_take(int *argc, char **argv, int64_t *n_p);
/* The number of -n. */
tutti_status tutti__nproc_parse(const char *text, int64_t *n_p);
/* Under a launcher, -n would start a job on every rank: ARG, with the right command. */
tutti_status tutti__nproc_check(const char *title, int64_t n);

typedef struct tutti__nproc {
    const char *title; /* "tutti train" */
    int argc;          /* argv[0]: the subcommand; argv ends in NULL */
    char **argv;
    int64_t n; /* 0: this process */
    int (*work)(void *user);
    void *user;
    bool quiet; /* of n workers' launcher: errors and warnings only */
} tutti__nproc;

/* Calls work, or starts n workers that run `tutti ARGV`. Returns the exit code. */
int tutti__nproc_run(const tutti__nproc *w);

#endif
