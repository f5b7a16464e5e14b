/* flag.c -- a flag of a command line and its value.   SPDX-License-Identifier: MIT */
#include "cli/flag.h"

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

tutti_status tutti__flag_unknown(const char *arg, const char *const *names, size_t n)
{
    const char *nearest = tutti__nearest(arg, names, n);

    return tutti__fail(TUTTI_ERR_ARG, "there is no flag \"%.40s\"%s%s%s", arg,
                       nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?" : "");
}
