/* backend.h -- other libraries that a group may use: MPI for its messages, NCCL for buffers of GPUs.
 * SPDX-License-Identifier: MIT
 *
 * Each has its own folder; no_mpi.c replaces mpi/ in a build without MPI. */
#ifndef TUTTI_COMM_BACKEND_H
#define TUTTI_COMM_BACKEND_H

#include "comm/engine/device_buffers.h"

struct tutti__tcp;

/* Loads the site's MPI and initialises it, once a process, in at most timeout_ms. MPI determines this process's rank and
 * the number of ranks. Errors: UNSUPPORTED with the remedy if no module fits; TIMEOUT; INTERNAL with MPI's message. */
tutti_status tutti__mpi_start(int timeout_ms, int *rank_p, int *size_p);
/* "Open MPI v4.1.4"; "MPI" before the start. */
const char *tutti__mpi_version(void);

/* The modules for backend mpi that are found: their kinds ("openmpi") and paths. Returns how many, at most n. */
typedef struct tutti__mpi_file {
    char kind[16], path[1100];
} tutti__mpi_file;
size_t tutti__mpi_files(tutti__mpi_file *files, size_t n);

/* Messages between all of MPI_COMM_WORLD, or, in a split, between these members of the parent's group (`parent`: its
 * messages). `tag`, from 0 to 32,767, is the same on all members and differs from that of a concurrent split. */
tutti_status tutti__mpi_open(struct tutti__tcp **tcp_p, tutti__comm *comm,
                             const struct tutti__tcp *parent, const int *ranks, int tag,
                             double deadline);
/* all[r] = what rank r gives, `bytes` each. For the set-up, before peers have names. */
tutti_status tutti__mpi_exchange(struct tutti__tcp *tcp, const void *mine, void *all, size_t bytes,
                                 double deadline);

/* NCCL, for a native group's buffers on GPUs. The first such call determines, on all ranks, whether it is available;
 * `required`: that call fails without it, and this call fails at once with UNSUPPORTED if this rank has no NCCL or no GPU.
 * Borrows all its arguments. */
tutti_status tutti__nccl_backend_new(tutti__device_backend **backend_p, tutti__comm *comm,
                                     tutti__devices *devices, tutti__engine *engine, bool required);

#endif
