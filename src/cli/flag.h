/* flag.h -- a flag of a command line and its value.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_FLAG_H
#define TUTTI_CLI_FLAG_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/status.h>

/* The value of `flag`, in argv[*i] ("--flag=VALUE") or the next argument, to which *i then moves; NULL: another flag, or
 * (*missing_p) this one without a value. Borrowed from argv. */
const char *tutti__flag_value(const char *flag, int argc, char **argv, int *i, bool *missing_p);
/* ARG: unknown flag `arg`, with the nearest of the n names. */
tutti_status tutti__flag_unknown(const char *arg, const char *const *names, size_t n);

#endif
