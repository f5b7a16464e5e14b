/* connections.c -- what all wires have: init, teardown, scratch.   SPDX-License-Identifier: MIT */
#include "comm/transport/tcp/tcp.h"

#include "comm/control/control.h"
#include "comm/transport/tcp/channel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void tutti__tcp_wake(const tutti__tcp *tcp)
{
    if (write(tcp->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        return; /* full: it is readable, which is sufficient */
}

char *tutti__tcp_scratch(tutti__tcp *tcp, size_t bytes)
{
    if (tcp->scratch_bytes >= bytes)
        return tcp->scratch;
    free(tcp->scratch);
    tcp->scratch = malloc(bytes);
    tcp->scratch_bytes = tcp->scratch ? bytes : 0;
    if (!tcp->scratch)
        (void)tutti__comm_fail(tcp->comm, TUTTI_ERR_MEMORY, tcp->comm->rank,
                               "rank %d has no memory for %zu bytes", tcp->comm->rank, bytes);
    return tcp->scratch;
}

void tutti__tcp_free(tutti__tcp *tcp)
{
    if (tcp)
        tcp->wire->close(tcp);
}

void tutti__tcp_abandon(tutti__tcp *tcp)
{
    if (tcp->control)
        tutti__control_on_data(tcp->control, NULL);
    tutti__tcp_free(tcp);
}

/* ---- Of any wire --------------------------------------------------------------------------------------------------- */

tutti_status tutti__tcp_init(tutti__tcp *tcp, const tutti__wire_ops *wire, tutti__comm *comm,
                             int n_sockets)
{
    size_t size = (size_t)comm->size;

    tcp->wire = wire;
    tcp->comm = comm;
    tcp->n_sockets = n_sockets;
    tcp->spin = comm->tuning.spin >= 0 && comm->local_size <= tutti__cores();
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->everyone = calloc(size, sizeof *tcp->everyone);
    tcp->src = calloc(size, sizeof *tcp->src);
    tcp->rows = calloc(size, sizeof *tcp->rows);
    tcp->channels = calloc(size * (size_t)n_sockets, sizeof *tcp->channels);
    if (tcp->wake < 0 || !tcp->everyone || !tcp->src || !tcp->rows || !tcp->channels)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory, or no descriptor, for the connections of %d ranks",
                           comm->size);
    for (int r = 0; r < comm->size; r++)
        tcp->everyone[r] = r;
    return TUTTI_OK;
}

void tutti__tcp_clear(tutti__tcp *tcp)
{
    if (tcp->wake >= 0)
        close(tcp->wake);
    for (int r = 0; tcp->rows && r < tcp->comm->size; r++)
        free(tcp->rows[r].out);
    free(tcp->everyone);
    free(tcp->src);
    free(tcp->scratch);
    free(tcp->rows);
    free(tcp->channels);
}
