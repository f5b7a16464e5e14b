/* launcher_environment.h -- the group that the environment describes.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_LAUNCHER_ENVIRONMENT_H
#define TUTTI_COMM_BOOTSTRAP_LAUNCHER_ENVIRONMENT_H

#include "base/base.h"

/* A rank keeps a table of all. */
enum { TUTTI__MAX_RANKS = 16384 };

typedef struct tutti__env_group {
    int rank, world_size, local_rank;
    int local_world_size; /* 0: unknown; found by comparing hosts */
    /* of rank 0, or of the launcher, if that hosts the store; "" in a group of one */
    char master_addr[256];
    int master_port;
    char store_file[256]; /* or the store's file (TUTTI_STORE=file:PATH); "": none */
    bool hosted; /* another process hosts the store at master_addr:master_port (TUTTI_STORE) */
    int attempt; /* of an elastic launcher; 0 first */
    const char *source; /* "RANK", "Slurm", "Open MPI", "PMI", "none" */
} tutti__env_group;

/* Errors: ARG for an incomplete environment, naming what is missing and the command that sets it. */
tutti_status tutti__env_group_read(tutti__env_group *group);
/* Its two parts: the ranks; and the store's address, which MPI does not need. */
tutti_status tutti__env_group_read_ranks(tutti__env_group *group);
tutti_status tutti__env_group_read_master(tutti__env_group *group);
/* True if mpirun, srun or another launcher of MPI programs has started this process. */
bool tutti__env_by_mpi_launcher(void);
/* "Open MPI", "Slurm" or "PMI", if its variables are set and complete enough to be read; NULL: none of them. */
const char *tutti__env_mpi_launcher(void);

#endif
