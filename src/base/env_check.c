/* env_check.c -- warns of variables that are not Tutti's.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool known(const char *name)
{
    for (int i = 0; i < TUTTI__N_ENV; i++)
        if (strcmp(name, tutti__env_table[i].name) == 0)
            return true;
    return false;
}

static bool is_of_others(const char *name)
{
    for (size_t i = 0; i < TUTTI__N_ENV_PREFIXES; i++)
        if (strncmp(name, tutti__env_prefixes[i].prefix, strlen(tutti__env_prefixes[i].prefix)) ==
            0)
            return true;
    return false;
}

tutti_status tutti__env_check(void)
{
    static const char *const colors[] = {"auto", "always", "never"};
    const char *names[TUTTI__N_ENV];
    size_t color;

    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_COLOR, colors, TUTTI__COUNT_OF(colors), &color));
    for (int i = 0; i < TUTTI__N_ENV; i++)
        names[i] = tutti__env_table[i].name;
    for (char **entry = environ; *entry; entry++) {
        char name[64];
        size_t bytes = strcspn(*entry, "=");
        const char *nearest;

        snprintf(name, sizeof name, "%.*s", (int)(bytes < 63 ? bytes : 63), *entry);
        if (strncmp(name, "TUTTI_", 6) != 0 || known(name) || is_of_others(name))
            continue;
        nearest = tutti__nearest(name, names, TUTTI__N_ENV);
        tutti_log(TUTTI_LOG_WARN, "env",
                  "%s is not a variable of Tutti and is ignored%s%s%s (tutti run --env lists them)",
                  name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                  nearest ? "?" : "");
    }
    return TUTTI_OK;
}
