/* no_mpi.c -- replaces mpi/ in a build without MPI.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"

tutti_status tutti__mpi_start(int timeout_ms, int *rank_p, int *size_p)
{
    (void)timeout_ms;
    *rank_p = *size_p = 0;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "backend mpi: Tutti was built where no MPI was found; install one "
                       "(libopenmpi-dev openmpi-bin, or libmpich-dev mpich) and build again, or "
                       "use backend native");
}

const char *tutti__mpi_version(void)
{
    return "MPI";
}

size_t tutti__mpi_files(tutti__mpi_file *files, size_t n)
{
    (void)files;
    (void)n;
    return 0;
}

tutti_status tutti__mpi_open(struct tutti__tcp **tcp_p, tutti__comm *comm,
                             const struct tutti__tcp *parent, const int *ranks, int tag,
                             double deadline)
{
    int rank, size;

    (void)parent;
    (void)ranks;
    (void)tag;
    (void)deadline;
    *tcp_p = NULL;
    return tutti__mpi_start(comm->timeout_ms, &rank, &size);
}

tutti_status tutti__mpi_exchange(struct tutti__tcp *tcp, const void *mine, void *all, size_t bytes,
                                 double deadline)
{
    (void)tcp;
    (void)mine;
    (void)all;
    (void)bytes;
    (void)deadline;
    return tutti__fail(TUTTI_ERR_INTERNAL, "backend mpi is not in this build");
}
