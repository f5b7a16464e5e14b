/* mpi.h -- messages between ranks that MPI carries.   SPDX-License-Identifier: MIT
 *
 *     mpi_load.c   finds the module of the site's MPI, starts and ends MPI
 *     module.c     that module, built once for each MPI: everything that uses mpi.h
 *     mpi_open.c   a communicator for a group; the exchange before ranks know each other
 *     mpi_wire.c   the wire of schedules (transport/tcp/tcp.h) */
#ifndef TUTTI_COMM_BACKEND_MPI_MPI_H
#define TUTTI_COMM_BACKEND_MPI_MPI_H

#include "comm/backend/mpi/module.h"
#include "comm/transport/tcp/tcp.h"

/* ---- mpi_load.c: one MPI a process */

const tutti__mpi *tutti__mpi_loaded(void); /* NULL before tutti__mpi_start has succeeded */
tutti__mpi_comm tutti__mpi_world_comm(void);
/* For the exit: the number of live groups, and whether the last that ended had failed. */
void tutti__mpi_note_open(void);
void tutti__mpi_note_closed(bool failed);

/* ---- mpi_wire.c */

/* Messages of all ranks of `comm`, over the communicator, which has a rank for each and belongs to the wire from now on. */
tutti_status tutti__mpi_wire_new(tutti__tcp **tcp_p, tutti__comm *comm, const tutti__mpi *mpi,
                                 tutti__mpi_comm mpi_comm);
/* It is never to be freed: a request has been abandoned. */
void tutti__mpi_wire_keep(tutti__tcp *tcp);
/* Its communicator. */
tutti__mpi_comm tutti__mpi_wire_comm(const tutti__tcp *tcp);

#endif
