/* worker_environment.h -- the variables that a worker gets (worker_env.def).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_WORKER_ENVIRONMENT_H
#define TUTTI_LAUNCH_WORKER_ENVIRONMENT_H

#include "launch/job/launch_job.h"

#include <stdio.h>

typedef struct tutti__worker_environment {
    char **list;  /* NULL-terminated; our variables come first, then those of this process */
    size_t n_own; /* the ones to free */
} tutti__worker_environment;

/* start: how many processes had this local rank before, in this round. False: no memory. Free in either case. */
bool tutti__worker_environment_make(tutti__worker_environment *e, const tutti__job *job, int rank,
                                    int start, const char *error_file, int agent_fd);
void tutti__worker_environment_free(tutti__worker_environment *e);
/* As rows of a Markdown table. */
void tutti__worker_environment_print(FILE *file);

#endif
