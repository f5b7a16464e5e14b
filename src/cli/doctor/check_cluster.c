/* check_cluster.c -- MPI and Slurm.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* ---- MPI ------------------------------------------------------------------------------------------------ */

typedef struct modules {
    tutti__doctor *d;
    char names[128];
} modules;

static void note_module(void *user, const char *kind, const char *problem)
{
    modules *m = user;
    size_t used = strlen(m->names);

    if (!problem) {
        snprintf(m->names + used, sizeof m->names - used, "%s%s", used ? ", " : "", kind);
        return;
    }
    tutti__find(m->d, TUTTI__WARNING, "backend mpi", "the module for %s cannot be loaded: %s", kind,
                problem);
    tutti__remedy(m->d, "install that MPI here, or name its libraries' folder in LD_LIBRARY_PATH; "
                        "the native backend does not need it");
}

/* Open MPI has it in the first line, MPICH in a separate one. */
static const char *version_line(char *text)
{
    char *version = strncmp(text, "HYDRA", 5) == 0 ? strstr(text, "Version:") : NULL;

    if (!version)
        return tutti__first_line(text);
    version += strlen("Version:");
    return tutti__first_line(version + strspn(version, " "));
}

void tutti__check_mpi(tutti__doctor *d)
{
    static const char *const starters[] = {"mpirun", "mpirun.openmpi", "mpirun.mpich"};
    modules m = {.d = d};
    char path[1024], text[4096];
    bool found = false;

    for (size_t i = 0; i < TUTTI__COUNT_OF(starters); i++) {
        const char *const argv[] = {starters[i], "--version", NULL};

        if (!tutti__find_program(starters[i], path, sizeof path))
            continue;
        found = true;
        if (tutti__run_program(argv, text, sizeof text, 1500) == 0)
            tutti__find(d, TUTTI__FINE, "MPI", "%s: %s%s", path,
                        strncmp(text, "HYDRA", 5) == 0 ? "MPICH " : "", version_line(text));
        else
            tutti__find(d, TUTTI__NOTE, "MPI", "%s exists, but does not report its version", path);
    }
    if (!found)
        tutti__find(d, TUTTI__NOTE, "MPI", "there is no mpirun in PATH; only backend mpi needs it");
    if (tutti__try_mpi_modules(note_module, &m) == 0)
        tutti__find(d, TUTTI__NOTE, "backend mpi", "this build has no MPI module (docs/mpi.md)");
    else if (*m.names)
        tutti__find(d, TUTTI__FINE, "backend mpi", "modules for %s", m.names);
}

/* ---- Slurm ---------------------------------------------------------------------------------------------- */

static const char *env(const char *name)
{
    const char *text = getenv(name);

    return text ? text : "";
}

static void describe_job(tutti__doctor *d)
{
    if (!*env("SLURM_JOB_ID"))
        return;
    tutti__find(d, TUTTI__FINE, "Slurm job", "%s%s%s on %s: %s node%s, tasks %s, %s CPUs here",
                env("SLURM_JOB_ID"), *env("SLURM_STEP_ID") ? ", step " : "", env("SLURM_STEP_ID"),
                *env("SLURM_JOB_NODELIST") ? env("SLURM_JOB_NODELIST") : "?",
                *env("SLURM_JOB_NUM_NODES") ? env("SLURM_JOB_NUM_NODES") : "?",
                strcmp(env("SLURM_JOB_NUM_NODES"), "1") == 0 ? "" : "s",
                *env("SLURM_NTASKS") ? env("SLURM_NTASKS") : "?",
                *env("SLURM_CPUS_ON_NODE") ? env("SLURM_CPUS_ON_NODE") : "?");
}

/* Lines "STATE NODES" of sinfo: "12 idle, 3 allocated". */
static void sum_states(char *text, char *sum, size_t bytes)
{
    char *save = NULL;
    size_t used = 0;

    *sum = '\0';
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char state[32];
        int nodes;

        if (sscanf(line, "%31s %d", state, &nodes) == 2 && used < bytes)
            used += (size_t)snprintf(sum + used, bytes - used, "%s%d %s", used ? ", " : "", nodes,
                                     state);
    }
}

void tutti__check_slurm(tutti__doctor *d)
{
    static const char *const sinfo[] = {"sinfo", "--noheader", "--format=%T %D", NULL};
    char path[1024], text[16384], sum[512];
    int code;

    describe_job(d);
    if (!tutti__find_program("srun", path, sizeof path)) {
        tutti__find(d, TUTTI__NOTE, "Slurm", "there is no srun in PATH");
        return;
    }
    code = tutti__run_program(sinfo, text, sizeof text, 3000);
    if (code == 0) {
        sum_states(text, sum, sizeof sum);
        tutti__find(d, TUTTI__FINE, "Slurm", "%s; the controller answers; nodes: %s", path,
                    *sum ? sum : "none");
        return;
    }
    tutti__find(d, TUTTI__WARNING, "Slurm", "%s is there, but sinfo %s%s", path,
                code < 0 ? "gave no answer within 3 s" : "failed: ",
                code < 0 ? "" : tutti__first_line(text));
    tutti__remedy(d, "look at SlurmctldHost in /etc/slurm/slurm.conf, and whether that host "
                     "answers (scontrol ping)");
}
