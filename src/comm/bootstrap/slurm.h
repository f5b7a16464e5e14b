/* slurm.h -- Slurm's variables for this process.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_SLURM_H
#define TUTTI_COMM_SLURM_H

#include "base/base.h"

/* ---- Host lists: "gpu[07-09,12],r[1-2]n[01-16]" ----------------------------------------------------- */

/* The number of hosts in a list. In Slurm's order: of several brackets the last varies fastest, numbers keep the leading
 * zeros of the first in their range, hosts named twice count twice. ARG if the list is malformed or has more than a
 * million hosts. */
tutti_status tutti__host_list_count(const char *list, int *n_p);
/* Host `index`, from 0. ARG also if there is none, or `host` is too small. */
tutti_status tutti__host_list_get(const char *list, int index, char *host, size_t capacity);

/* Tasks on node `node` of "2(x3),1": ARG if it is malformed or has fewer nodes. */
tutti_status tutti__tasks_on_node(const char *list, int node, int *tasks_p);

/* ---- Steps --------------------------------------------------------------------------------------------- */

/* A port below the ephemeral ones, the same on all ranks of a job and unlikely to be another job's. */
int tutti__derived_port(const char *job, const char *step);

/* Whether this process is a task that srun started, or a descendant of one: not a shell of salloc, `srun --pty bash` or
 * sbatch, and not started by mpirun through srun. */
bool tutti__slurm_is_task(void);

/* For a process with only some of a task's variables, which `tutti run` refuses too. */
#define TUTTI__SLURM_REMEDY                                                                        \
    "start the ranks with srun, and let containers pass SLURM_* on; if this is no task of Slurm: " \
    "unset SLURM_PROCID SLURM_STEP_NUM_TASKS"

typedef struct tutti__slurm_step {
    bool task; /* tutti__slurm_is_task; false: the other members are 0 and "" */
    int n_tasks, rank;
    int n_nodes, node;
    int local_tasks, local_rank;
    char first_host[256]; /* of task 0, by Slurm's name */
    int port;             /* tutti__derived_port: different for each step of each job */
    char name[64];        /* "4711.0": job and step */
    int restarts;         /* how often Slurm has restarted this job (requeue) */
} tutti__slurm_step;

/* ARG, naming the variable, if some are missing or contradict each other. */
tutti_status tutti__slurm_step_read(tutti__slurm_step *step);

#endif
