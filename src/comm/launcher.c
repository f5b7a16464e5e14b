/* launcher.c -- detects a launcher inside a launcher, which would make as many jobs as there are ranks.
 * SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include "comm/bootstrap/launcher_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int absent)
{
    const char *text = getenv(name);
    int64_t value;

    return text && tutti__parse_int64(text, &value) && value >= 0 && value <= INT32_MAX ? (int)value
                                                                                        : absent;
}

/* Call it only if RANK and LOCAL_RANK are set. */
static const char *name_of_torchrun(void)
{
    if (getenv("TUTTI_SECRET") && getenv("TORCHELASTIC_RUN_ID"))
        return "tutti run";
    return getenv("TORCHELASTIC_RUN_ID") ? "torchrun" : "the launcher that set RANK and LOCAL_RANK";
}

tutti__launcher tutti__launcher_find(void)
{
    static const struct {
        const char *source, *name, *size, *local_rank, *rank;
    } names[] = {{"Open MPI", "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_RANK"},
                 {"PMI", "mpirun", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_RANK"},
                 {"Slurm", "srun", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_PROCID"}};
    const char *source = tutti__env_mpi_launcher();
    tutti__launcher found = {.n_ranks = 1};

    if (getenv("RANK") && getenv("LOCAL_RANK")) {
        found.n_ranks = number("WORLD_SIZE", 1);
        found.name = name_of_torchrun();
        found.first_on_host = number("LOCAL_RANK", 0) == 0;
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(names) && source && found.n_ranks <= 1; i++)
        if (strcmp(names[i].source, source) == 0) {
            found.n_ranks = number(names[i].size, 1);
            found.name = names[i].name;
            found.first_on_host = number(names[i].local_rank, number(names[i].rank, 0)) == 0;
            found.may_start_agents = strcmp(found.name, "srun") == 0;
        }
    return found.n_ranks > 1 ? found : (tutti__launcher){.n_ranks = 1, .first_on_host = true};
}

tutti_status tutti__launcher_refuse(const tutti__launcher *launcher, const char *title,
                                    const char *again)
{
    const char *name = launcher->name;
    char instead[160];

    if (!name)
        return TUTTI_OK;
    if (*again)
        snprintf(instead, sizeof instead,
                 "drop %s, so that they are the ranks of one job, or drop %s: %s %s ...", again,
                 name, title, again);
    else
        snprintf(instead, sizeof instead,
                 "have %s start the program itself, or drop %s: %s -n N PROGRAM", name, name,
                 title);
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s has already started %d processes, and with `%s%s%s` each of them would "
                       "start its own job: %s",
                       name, launcher->n_ranks, title, *again ? " " : "", again, instead);
}
