/* backend.h -- engines other than our own that may carry a group's collectives.   SPDX-License-Identifier: MIT
 *
 * Each is a folder of its own name, or no_<name>.c where the build has none. */
#ifndef TUTTI_COMM_BACKEND_H
#define TUTTI_COMM_BACKEND_H

#include "comm/engine/device.h"

/* Loads the site's MPI and initialises it, once a process, in at most timeout_ms. Which rank this is of how many, is MPI's to
 * say. Errors: UNSUPPORTED with the remedy where no module fits; TIMEOUT; INTERNAL with MPI's own words. */
tutti_status tutti__mpi_start(int timeout_ms, int *rank_p, int *size_p);
/* "Open MPI v4.1.4"; "MPI" before the start. */
const char *tutti__mpi_version(void);

/* The modules for backend mpi that lie where they are looked for: their kinds ("openmpi") and paths. Returns how many, at
 * most n. */
typedef struct tutti__mpi_file {
    char kind[16], path[1100];
} tutti__mpi_file;
size_t tutti__mpi_files(tutti__mpi_file *files, size_t n);

/* An engine for all of MPI_COMM_WORLD, or, in a split, for these members of the parent's communicator (`parent`: its
 * engine). `tag`, from 0 to 32,767, is the same on all members and other than that of a split at the same time. */
tutti_status tutti__mpi_open(tutti__engine **engine_p, tutti__comm *comm, tutti__engine *parent,
                             const int *ranks, int tag, double deadline);
/* all[r] = what rank r gives, `bytes` each. For the set-up, when peers have no names yet. */
tutti_status tutti__mpi_exchange(tutti__engine *engine, const void *mine, void *all, size_t bytes,
                                 double deadline);

/* NCCL, for what a group of ours has on GPUs. Whether it can be had is found with the first such call, by all ranks;
 * `required`: then its lack is that call's failure, and here already UNSUPPORTED where this rank has no NCCL or no GPU.
 * Borrows all it is given. */
tutti_status tutti__nccl_carrier_new(tutti__carrier **carrier_p, tutti__comm *comm,
                                     tutti__devices *devices, tutti__engine *engine, bool required);
/* "2.28.9": the NCCL that would be used here. UNSUPPORTED with the remedy. */
tutti_status tutti__nccl_version(char *text, size_t capacity);

#endif
