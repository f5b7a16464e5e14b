/* launch.h -- runs and supervises a program as N workers: `tutti run`, `tutti train -n N`.
 * SPDX-License-Identifier: MIT
 *
 * Workers get torchrun's environment and TUTTI_STORE, the store that the launcher hosts. The first worker that fails
 * stops the others; when tutti__launch returns, none of its descendants is left. */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H

#include "launch/job/launch_job.h"

/* Returns the exit code: 0 if every worker ended with 0; the first failed worker's, or 128 + its signal; 128 + the
 * signal that stopped us, if no worker chose otherwise; 126, 127 if the program cannot be run or found; 2 for bad
 * opts; 4 for lack of memory, processes or disk. Failures are reported on standard error. Call it from a process without
 * other threads. */
int tutti__launch(const tutti__launch_opts *opts);

#endif
