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
        return flag[1] == '-' ? NULL : argv[*i] + n; /* -n2 */
    *missing_p = *i + 1 >= argc;
    return *missing_p ? NULL : argv[++*i];
}

static char with_hyphen(char c)
{
    return c == '_' ? '-' : c;
}

bool tutti__flag_is(const char *arg, const char *flag)
{
    size_t i = 0;

    for (; flag[i] && with_hyphen(arg[i]) == with_hyphen(flag[i]); i++)
        ;
    return !flag[i] && (!arg[i] || arg[i] == '=');
}

tutti_status tutti__fail_value(const char *flag, const char *value)
{
    return tutti__fail(TUTTI_ERR_ARG, "%.*s takes no value, but \"%.60s\" was given: leave it out",
                       (int)strcspn(flag, "="), flag, value);
}

tutti_status tutti__fail_unknown(const char *what, const char *command, const char *name,
                                 const char *const *names, size_t n)
{
    const size_t bytes = strcspn(name, "=");
    const char *nearest;

    for (size_t i = 0; i < n && name[bytes]; i++)
        if (strlen(names[i]) == bytes && strncmp(names[i], name, bytes) == 0)
            return tutti__fail_value(name, name + bytes + 1);
    nearest = tutti__nearest(name, names, n);
    return tutti__fail(TUTTI_ERR_ARG, "there is no %s \"%.60s\"%s%s%s%s%s%s", what, name,
                       nearest ? " (did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?)" : "", command ? "; see " : "", command ? command : "",
                       command ? " --help" : "");
}
