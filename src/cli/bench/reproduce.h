/* reproduce.h -- `tutti bench reproduce`.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_REPRODUCE_H
#define TUTTI_CLI_REPRODUCE_H

/* argv[0] is "reproduce"; returns the exit code. */
int tutti__bench_reproduce(int argc, char **argv);

#endif
