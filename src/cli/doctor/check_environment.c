/* check_environment.c -- environment variables that are set, misspelt, or left over.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *env(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_ours(const char *name)
{
    for (int i = 0; i < TUTTI__N_ENV; i++)
        if (strcmp(name, tutti__env_table[i].name) == 0)
            return true;
    return false;
}

static void report_misspelt(tutti__doctor *d, const char *name)
{
    const char *names[TUTTI__N_ENV], *nearest;

    for (int i = 0; i < TUTTI__N_ENV; i++)
        names[i] = tutti__env_table[i].name;
    nearest = tutti__nearest(name, names, TUTTI__N_ENV);
    tutti__find(d, TUTTI__WARNING, name, "is set, but is not a variable of Tutti: it is ignored");
    if (nearest)
        tutti__remedy(d, "unset it; did you mean %s?", nearest);
    else
        tutti__remedy(d, "unset it; tutti run --env lists those that are read");
}

void tutti__check_variables(tutti__doctor *d)
{
    static const char *const kinds[] = {"TUTTI_",        "PET_",    "NCCL_",
                                        "OMP_",          "GOMP_",   "KMP_",
                                        "DNNL_",         "ONEDNN_", "CUDA_VISIBLE_DEVICES",
                                        "TORCH_ELASTIC_"};
    bool any = false;

    for (char **entry = environ; *entry; entry++) {
        size_t n = strcspn(*entry, "="), kind = 0;
        char name[80];

        snprintf(name, sizeof name, "%.*s", (int)(n < 79 ? n : 79), *entry);
        while (kind < TUTTI__COUNT_OF(kinds) && !begins(name, kinds[kind]))
            kind++;
        if (kind == TUTTI__COUNT_OF(kinds))
            continue;
        any = true;
        if (kind == 0 && !is_ours(name))
            report_misspelt(d, name);
        else
            tutti__find(d, TUTTI__NOTE, name, "%.100s",
                        strcmp(name, "TUTTI_SECRET") == 0 ? "is set (and not shown)"
                        : (*entry)[n]                     ? *entry + n + 1
                                                          : "");
    }
    if (!any)
        tutti__find(d, TUTTI__FINE, "variables",
                    "none of TUTTI_*, PET_*, NCCL_*, OMP_* is set: the defaults hold");
}

void tutti__check_launcher(tutti__doctor *d)
{
    const char *rank = env("RANK"), *size = env("WORLD_SIZE");

    if ((rank || size) && !env("TORCHELASTIC_RUN_ID") && !env("SLURM_STEP_ID") &&
        !env("OMPI_COMM_WORLD_RANK")) {
        tutti__find(d, TUTTI__WARNING, "launcher",
                    "none has started this shell, but RANK is %s and WORLD_SIZE is %s: a program "
                    "started from here waits for the other ranks",
                    rank ? rank : "unset", size ? size : "unset");
        tutti__remedy(d, "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR "
                         "MASTER_PORT, unless this is one rank of several");
    }
}
