/* mpi_open.c -- a communicator for a group, and the exchange before its ranks know each other.   SPDX-License-Identifier: MIT */
#include "comm/backend/backend.h"
#include "comm/backend/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAP_NS = 20000 };
static const double SPIN_MS = 0.5;

static tutti_status fail(const tutti__mpi *mpi, const char *what, int error)
{
    char text[256];

    mpi->error_text(error, text, sizeof text);
    return tutti__fail(TUTTI_ERR_PEER, "%s reports, in %s: %s", mpi->name, what, text);
}

static tutti_status fail_late(const tutti__comm *comm)
{
    return tutti__fail(
        TUTTI_ERR_PEER,
        "timed out after %.3g s waiting for the other %d rank%s: one has died, hangs, or "
        "makes its groups in another order",
        comm->timeout_ms / 1e3, comm->size - 1, comm->size == 2 ? "" : "s");
}

/* On an error the request goes on, and so must what it uses. */
static tutti_status wait_for(const tutti__comm *comm, const tutti__mpi *mpi,
                             tutti__mpi_request *request, double deadline)
{
    double begin = tutti__now_ms();

    for (;;) {
        bool done;
        size_t bytes;
        int error = mpi->test(request, 1, &done, &bytes);

        if (error)
            return fail(mpi, "init", error);
        if (done)
            return TUTTI_OK;
        if (comm->parent && tutti__comm_failed(comm->parent))
            return tutti__comm_error(comm->parent, NULL);
        if (tutti__now_ms() >= deadline)
            return fail_late(comm);
        if (tutti__now_ms() - begin > SPIN_MS)
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

static tutti_status make_comm(const tutti__comm *comm, const tutti__mpi *mpi,
                              tutti__mpi_comm *mpi_comm, double deadline)
{
    tutti__mpi_request request;
    int error = mpi->dup(tutti__mpi_world_comm(), mpi_comm, &request);

    return error ? fail(mpi, "making a communicator", error)
                 : wait_for(comm, mpi, &request, deadline);
}

tutti_status tutti__mpi_open(tutti__tcp **tcp_p, tutti__comm *comm, const tutti__tcp *parent,
                             const int *ranks, int tag, double deadline)
{
    const tutti__mpi *mpi = tutti__mpi_loaded();
    tutti__mpi_comm *mpi_comm = tutti__alloc(sizeof *mpi_comm); /* MPI writes it later */
    tutti_status status = TUTTI_OK;
    int error = 0;

    *tcp_p = NULL;
    if (!mpi_comm)
        return TUTTI_ERR_MEMORY;
    if (parent)
        error = mpi->sub(tutti__mpi_wire_comm(parent), ranks, comm->size, tag, mpi_comm);
    else
        status = make_comm(comm, mpi, mpi_comm, deadline);
    if (status != TUTTI_OK) { /* without freeing what MPI may still write */
        tutti__mpi_note_open();
        tutti__mpi_note_closed(true);
        return status;
    }
    if (!error)
        error = mpi->return_errors(*mpi_comm);
    status = error ? fail(mpi, "making a communicator", error)
                   : tutti__mpi_wire_new(tcp_p, comm, mpi, *mpi_comm);
    free(mpi_comm);
    return status;
}

tutti_status tutti__mpi_exchange(tutti__tcp *tcp, const void *mine, void *all, size_t bytes,
                                 double deadline)
{
    const tutti__mpi *mpi = tutti__mpi_loaded();
    size_t n = (size_t)tcp->comm->size;
    char *staging = tutti__alloc((n + 1) * bytes);
    tutti__mpi_request request;
    tutti_status status;
    int error;

    if (!staging)
        return TUTTI_ERR_MEMORY;
    memcpy(staging + n * bytes, mine, bytes);
    error =
        mpi->all_gather(tutti__mpi_wire_comm(tcp), staging + n * bytes, staging, bytes, &request);
    if (error)
        return fail(mpi, "init", error);
    status = wait_for(tcp->comm, mpi, &request, deadline);
    if (status != TUTTI_OK) { /* the staging stays */
        tutti__mpi_wire_keep(tcp);
        return status;
    }
    memcpy(all, staging, n * bytes);
    free(staging);
    return TUTTI_OK;
}
