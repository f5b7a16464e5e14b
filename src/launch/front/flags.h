/* flags.h -- the command line of `tutti run`.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FLAGS_H
#define TUTTI_LAUNCH_FLAGS_H

#include "launch/chaos/chaos.h"
#include "launch/front/flags_nodes.h"

#include <signal.h>

/* Owns what opts points to. Zero it before the first use. */
typedef struct tutti__run_line {
    tutti__launch_opts opts;
    bool help, env; /* --help or --env: do not run anything */
    char **argv;    /* of the worker, with python3 before a script */
    tutti__streams *redirect, *tee;
    bool *shown;
    int signals[NSIG];
    char *filter_text[2];
    const char **filters[2];
    cpu_set_t *binding;
    tutti__chaos_plan chaos;
    char flips[128]; /* TUTTI_CHAOS_FLIP, of chaos */
    tutti__node_names names;
} tutti__run_line;

/* argv[0] is "run". ARG for a bad command line. Free in either case. */
tutti_status tutti__run_line_read(tutti__run_line *line, int argc, char **argv);
void tutti__run_line_free(tutti__run_line *line);

#endif
