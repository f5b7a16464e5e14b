/* flag.c -- a flag of a command line and its value.   SPDX-License-Identifier: MIT */
#include "base/flag.h"

#include "base/base.h"

#include <string.h>

const char *tutti__flag_value(const char *flag, int argc, char **argv, int *i, bool *missing_p)
{
    size_t n = strlen(flag);

    if (strncmp(argv[*i], flag, n) != 0)
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    if (argv[*i][n] != '\0')
        return NULL;
    *missing_p = *i + 1 >= argc;
    return *missing_p ? NULL : argv[++*i];
}

tutti_status tutti__fail_unknown(const char *what, const char *command, const char *name,
                                 const char *const *names, size_t n)
{
    const char *nearest = tutti__nearest(name, names, n);

    return tutti__fail(TUTTI_ERR_ARG, "there is no %s \"%.60s\"%s%s%s%s%s%s", what, name,
                       nearest ? " (did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?)" : "", command ? "; see " : "", command ? command : "",
                       command ? " --help" : "");
}
