/* flag.h -- a flag of a command line and its value.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_BASE_FLAG_H
#define TUTTI_BASE_FLAG_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/status.h>

/* The value of `flag`, in argv[*i] ("--flag=VALUE"; "-nVALUE") or the next argument, to which *i then moves; NULL: another flag, or
 * (*missing_p) this one without a value. Borrowed from argv. */
const char *tutti__flag_value(const char *flag, int argc, char **argv, int *i, bool *missing_p);
/* Whether arg, up to any '=', is this flag; hyphens and underscores are the same. Both with or both without leading hyphens. */
bool tutti__flag_is(const char *arg, const char *flag);
/* ARG: this flag (alone, or the argument with the value) takes no value. */
tutti_status tutti__fail_value(const char *flag, const char *value);
/* ARG: there is no `what` ("flag") of this name, or it takes no value; with the nearest of the n names. command: whose --help
 * lists them all; NULL: the caller adds it. */
tutti_status tutti__fail_unknown(const char *what, const char *command, const char *name,
                                 const char *const *names, size_t n);

#endif
