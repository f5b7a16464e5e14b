/* launcher_environment.c -- the group that the launcher's variables describe.   SPDX-License-Identifier: MIT
 *
 * A table lists, for each launcher, the variables of the four numbers; the rest determines the store's address. If the
 * variable that shows a launcher is set, all of its variables must be: an incomplete environment is an error, because a
 * guess could train a wrong model without notice. */
#include "comm/bootstrap/launcher_environment.h"

#include "comm/bootstrap/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMEDY "start the ranks with `tutti run -n N PROGRAM`, which sets all of them"
#define REMEDY_IN_A_JOB                                                                            \
    "start the ranks with srun, which gives each its rank, or with `tutti run -n N PROGRAM`"

typedef struct launcher {
    const char *source, *detected_by; /* present if this is set */
    const char *rank, *world_size, *local_rank, *local_world_size;
} launcher;

/* Open MPI and hydra (which alone sets MPI_LOCALRANKID) before Slurm: mpirun inside a Slurm job starts its daemons by
 * srun, whose variables the ranks inherit. Other PMIs after it, because srun sets PMI variables too. */
static const launcher LAUNCHERS[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     NULL},
    {"PMI", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

static const launcher TORCHRUN = {"RANK",       "WORLD_SIZE", "RANK",
                                  "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

static const char *get(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

/* A variable of this launcher that is set, for messages that others are missing. */
static const char *one_that_is_set(const launcher *from)
{
    const char *names[] = {from->detected_by, from->rank, from->world_size, from->local_rank};

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++)
        if (get(names[i]))
            return names[i];
    return from->local_world_size;
}

static const char *remedy(const char *source)
{
    if (strcmp(source, "Slurm") == 0)
        return TUTTI__SLURM_REMEDY;
    return get("SLURM_JOB_ID") ? REMEDY_IN_A_JOB : REMEDY;
}

static tutti_status number(const launcher *from, const char *name, int low, int high, int *value_p)
{
    const char *text = get(name);
    long value;

    if (!text)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s is not set, although %s is: a rank needs %s, %s, %s and %s; %s",
            name, one_that_is_set(from), from->rank, from->world_size, from->local_rank,
            from->local_world_size ? from->local_world_size : "the list of tasks",
            remedy(from->source));
    TUTTI_TRY(tutti__parse_variable(name, text, low, high, &value));
    *value_p = (int)value;
    return TUTTI_OK;
}

static tutti_status local_size(const launcher *from, tutti__env_group *group)
{
    const char *tasks = get("SLURM_STEP_TASKS_PER_NODE");
    int node = 0;

    if (from == &TORCHRUN && !get(from->local_world_size)) {
        /* hand-made launchers rarely set it; it is found by comparing hosts */
        group->local_world_size = 0;
        return TUTTI_OK;
    }
    if (from->local_world_size)
        return number(from, from->local_world_size, 1, group->world_size, &group->local_world_size);
    if (!tasks)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "SLURM_STEP_TASKS_PER_NODE is not set, although %s is: " TUTTI__SLURM_REMEDY,
            from->detected_by);
    if (get("SLURM_NODEID"))
        TUTTI_TRY(number(from, "SLURM_NODEID", 0, 1 << 20, &node));
    return tutti__tasks_on_node(tasks, node, &group->local_world_size);
}

static tutti_status read_numbers(const launcher *from, tutti__env_group *group)
{
    group->source = from->source;
    TUTTI_TRY(number(from, from->rank, 0, TUTTI__MAX_RANKS - 1, &group->rank));
    TUTTI_TRY(number(from, from->world_size, 1, TUTTI__MAX_RANKS, &group->world_size));
    if (group->rank >= group->world_size)
        return tutti__fail(TUTTI_ERR_ARG, "%s is %d, but %s is %d: ranks go from 0 to %d",
                           from->rank, group->rank, from->world_size, group->world_size,
                           group->world_size - 1);
    TUTTI_TRY(number(from, from->local_rank, 0, group->world_size - 1, &group->local_rank));
    TUTTI_TRY(local_size(from, group));
    if (group->local_world_size > 0 && group->local_rank >= group->local_world_size)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is %d, but only %d ranks are on this host: it goes from 0 to %d",
                           from->local_rank, group->local_rank, group->local_world_size,
                           group->local_world_size - 1);
    return TUTTI_OK;
}

/* Variables that the user has exported besides the launcher's own, as sbatch scripts often do with WORLD_SIZE, must have
 * the same values. */
static tutti_status check_exported(const launcher *from, const tutti__env_group *group)
{
    const struct {
        const char *name, *theirs;
        int value;
    } numbers[] = {{"WORLD_SIZE", from->world_size, group->world_size},
                   {"RANK", from->rank, group->rank},
                   {"LOCAL_RANK", from->local_rank, group->local_rank}};
    int value;

    for (size_t i = 0; i < TUTTI__COUNT_OF(numbers); i++) {
        if (!get(numbers[i].name))
            continue;
        TUTTI_TRY(number(from, numbers[i].name, 0, TUTTI__MAX_RANKS, &value));
        if (value != numbers[i].value)
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s is %d, but %s started this rank with %s %d: unset %s, or start "
                               "the ranks that it means",
                               numbers[i].name, value, from->source, numbers[i].theirs,
                               numbers[i].value, numbers[i].name);
    }
    return TUTTI_OK;
}

/* "10.0.0.1:29500", "[::1]:29500", "file:/shared/job-7" */
static tutti_status read_store(tutti__env_group *group, const char *text)
{
    const char *file = strncmp(text, "file:", 5) == 0 ? text + 5 : NULL;
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    int64_t port;

    if (file && *file && strlen(file) < sizeof group->store_file) {
        memcpy(group->store_file, file, strlen(file) + 1);
        group->hosted = true;
        return TUTTI_OK;
    }
    if (n > 1 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    if (file || n == 0 || n >= sizeof group->master_addr || !tutti__parse_int64(colon + 1, &port) ||
        port < 1 || port > 65535)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_STORE is \"%.60s\", expected HOST:PORT or file:PATH", text);
    memcpy(group->master_addr, text, n);
    group->master_addr[n] = '\0';
    group->master_port = (int)port;
    group->hosted = true;
    return TUTTI_OK;
}

/* The store's address for launchers that name no master; keeps what the user has set of it. */
static tutti_status derive_slurm(tutti__env_group *group)
{
    const char *nodes = get("SLURM_STEP_NODELIST"), *job = get("SLURM_JOB_ID");

    if (!nodes || !job)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is not set in this Slurm step: start the ranks with srun, or "
                           "set MASTER_ADDR and MASTER_PORT",
                           nodes ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST");
    if (!*group->master_addr)
        TUTTI_TRY(tutti__host_list_get(nodes, 0, group->master_addr, sizeof group->master_addr));
    if (group->master_port == 0)
        group->master_port =
            tutti__derived_port(job, get("SLURM_STEP_ID") ? get("SLURM_STEP_ID") : "");
    return TUTTI_OK;
}

static tutti_status derive_master(tutti__env_group *group)
{
    bool one_host = group->local_world_size == group->world_size;
    const char *job = get("PMIX_NAMESPACE");
    char parent[32];

    if (strcmp(group->source, "Slurm") == 0)
        return derive_slurm(group);
    if (!one_host && (!*group->master_addr || !job))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s started %d ranks on several hosts, but %s not set: give all "
                           "ranks the address of rank 0's host and a free port (mpirun -x "
                           "MASTER_ADDR=... -x MASTER_PORT=...)",
                           group->source, group->world_size,
                           *group->master_addr      ? "MASTER_PORT is"
                           : group->master_port > 0 ? "MASTER_ADDR is"
                                                    : "MASTER_ADDR and MASTER_PORT are");
    /* On one host all ranks have the same parent, mpirun, unless it has given the job a name. */
    snprintf(parent, sizeof parent, "%ld", (long)getppid());
    if (!*group->master_addr)
        snprintf(group->master_addr, sizeof group->master_addr, "127.0.0.1");
    if (group->master_port == 0)
        group->master_port = tutti__derived_port(group->source, job ? job : parent);
    return TUTTI_OK;
}

static tutti_status read_master(const launcher *from, tutti__env_group *group)
{
    const char *store = tutti__env_text(TUTTI__ENV_STORE), *address = get("MASTER_ADDR"),
               *port = get("MASTER_PORT");

    if (*store)
        return read_store(group, store);
    if (from == &TORCHRUN && (!address || !port))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is not set, although %s is %d: it says where rank 0 %s; %s",
                           address ? "MASTER_PORT" : "MASTER_ADDR", from->world_size,
                           group->world_size, address ? "listens" : "runs", remedy(group->source));
    if (address && strlen(address) >= sizeof group->master_addr)
        return tutti__fail(TUTTI_ERR_ARG, "MASTER_ADDR is \"%.60s...\", longer than any host name",
                           address);
    if (address)
        snprintf(group->master_addr, sizeof group->master_addr, "%s", address);
    if (port)
        TUTTI_TRY(number(from, "MASTER_PORT", 1, 65535, &group->master_port));
    if (!address || !port)
        return derive_master(group);
    /* torchrun's agent serves its own store at MASTER_PORT, so ours, in rank 0, needs another. Not the next one: that may
     * be an ephemeral port, and was often taken. */
    if (get("TORCHELASTIC_USE_AGENT_STORE") &&
        strcmp(get("TORCHELASTIC_USE_AGENT_STORE"), "True") == 0)
        group->master_port = tutti__derived_port("torchrun", port);
    return TUTTI_OK;
}

static const launcher *find_mpi_launcher(void)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(LAUNCHERS); i++)
        if (strcmp(LAUNCHERS[i].source, "Slurm") == 0 ? tutti__slurm_is_task()
                                                      : get(LAUNCHERS[i].detected_by) != NULL)
            return &LAUNCHERS[i];
    return NULL;
}

/* The launcher whose variables describe this rank. RANK and LOCAL_RANK together are the innermost launcher's; one of them
 * alone, or WORLD_SIZE, may have been exported to tasks of srun or mpirun, whose own variables are then complete. */
static const launcher *find_launcher(void)
{
    const launcher *mpi = find_mpi_launcher();

    if (get("RANK") && get("LOCAL_RANK"))
        return &TORCHRUN;
    return !mpi && (get("RANK") || get("WORLD_SIZE") || get("LOCAL_RANK")) ? &TORCHRUN : mpi;
}

const char *tutti__env_mpi_launcher(void)
{
    const launcher *from = find_mpi_launcher();

    return from ? from->source : NULL;
}

bool tutti__env_by_mpi_launcher(void)
{
    return find_mpi_launcher() || get("PMIX_RANK") || get("PMI_FD");
}

tutti_status tutti__env_group_read_ranks(tutti__env_group *group)
{
    const launcher *from = find_launcher();

    *group = (tutti__env_group){.world_size = 1, .local_world_size = 1, .source = "none"};
    if (!from)
        return TUTTI_OK;
    TUTTI_TRY(read_numbers(from, group));
    if (from != &TORCHRUN)
        TUTTI_TRY(check_exported(from, group));
    if (get("TUTTI_ATTEMPT"))
        return number(from, "TUTTI_ATTEMPT", 0, 1 << 30, &group->attempt);
    if (get("TORCHELASTIC_RESTART_COUNT"))
        TUTTI_TRY(number(from, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, &group->attempt));
    return TUTTI_OK;
}

tutti_status tutti__env_group_read_master(tutti__env_group *group)
{
    return group->world_size > 1 ? read_master(find_launcher(), group) : TUTTI_OK;
}

tutti_status tutti__env_group_read(tutti__env_group *group)
{
    TUTTI_TRY(tutti__env_group_read_ranks(group));
    return tutti__env_group_read_master(group);
}
