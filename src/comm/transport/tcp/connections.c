/* connections.c -- opening and closing a group's TCP connections.   SPDX-License-Identifier: MIT */
#include "comm/transport/tcp/tcp.h"

#include "comm/control/control.h"
#include "comm/transport/tcp/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST_CONNECTING = 64 }; /* at the same time */

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
    if (!tcp)
        return;
    for (int i = 0; tcp->sockets && i < tcp->n_sockets * tcp->comm->size; i++)
        if (tcp->sockets[i] >= 0)
            close(tcp->sockets[i]);
    for (int i = 0; tcp->connecting && i < tcp->n_sockets * tcp->comm->size; i++)
        tutti__data_drop(tcp->connecting[i]);
    if (tcp->wake >= 0)
        close(tcp->wake);
    for (int r = 0; tcp->rows && r < tcp->comm->size; r++)
        free(tcp->rows[r].out);
    free(tcp->sockets);
    free(tcp->connecting);
    free(tcp->everyone);
    free(tcp->src);
    free(tcp->scratch);
    free(tcp->rows);
    free(tcp->channels);
    free(tcp->polls);
    free(tcp->called);
    pthread_mutex_destroy(&tcp->lock);
    free(tcp);
}

void tutti__tcp_abandon(tutti__tcp *tcp)
{
    if (tcp->control)
        tutti__control_on_data(tcp->control, NULL);
    tutti__tcp_free(tcp);
}

static void data_came(void *self)
{
    tutti__tcp_wake(self);
}

static void called(void *self, int rank, const tutti__signature *call)
{
    tutti__tcp *tcp = self;

    pthread_mutex_lock(&tcp->lock);
    tcp->called[rank] = *call;
    atomic_store(&tcp->any_called, true);
    pthread_mutex_unlock(&tcp->lock);
    tutti__tcp_wake(tcp);
}

tutti_status tutti__tcp_open(tutti__tcp **tcp_p, tutti__comm *comm, struct tutti__control *control,
                             int n_sockets)
{
    size_t size = (size_t)comm->size, n = size * (size_t)n_sockets;
    tutti__tcp *tcp = tutti__alloc(sizeof *tcp);

    *tcp_p = tcp;
    if (!tcp)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&tcp->lock, NULL);
    tcp->comm = comm;
    tcp->control = control;
    tcp->n_sockets = n_sockets;
    tcp->spin = comm->tuning.spin >= 0 && comm->local_size <= tutti__cores();
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->sockets = malloc(n * sizeof *tcp->sockets);
    tcp->connecting = calloc(n, sizeof *tcp->connecting);
    tcp->everyone = calloc(size, sizeof *tcp->everyone);
    tcp->src = calloc(size, sizeof *tcp->src);
    tcp->rows = calloc(size, sizeof *tcp->rows);
    tcp->channels = calloc(n, sizeof *tcp->channels);
    tcp->polls = calloc(n + 1, sizeof *tcp->polls);
    tcp->called = calloc(size, sizeof *tcp->called);
    for (size_t i = 0; i < n && tcp->sockets; i++)
        tcp->sockets[i] = -1;
    if (tcp->wake < 0 || !tcp->sockets || !tcp->connecting || !tcp->everyone || !tcp->src ||
        !tcp->rows || !tcp->channels || !tcp->polls || !tcp->called) {
        tutti__tcp_free(tcp);
        *tcp_p = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory, or no descriptor, for the connections of %d ranks",
                           comm->size);
    }
    for (int r = 0; r < comm->size; r++)
        tcp->everyone[r] = r;
    if (control)
        tutti__control_on_data(control, &(tutti__data_events){data_came, called, tcp});
    return TUTTI_OK;
}

static size_t index_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return (size_t)c->part * (size_t)tcp->comm->size + (size_t)c->rank;
}

tutti__data_connecting *tutti__tcp_connecting(const tutti__tcp *tcp, const tutti__channel *c)
{
    return tcp->connecting[index_of(tcp, c)];
}

/* Begins it, if it is not being made, and goes on with it. */
static int connect_on(tutti__tcp *tcp, const tutti__channel *c, int *fd)
{
    tutti__data_connecting **connecting = &tcp->connecting[index_of(tcp, c)];
    int error;

    if (!*connecting && tcp->n_connecting == MOST_CONNECTING)
        return 0;
    if (!*connecting) {
        *connecting =
            tutti__data_begin(tcp->control, c->rank, 1 + c->part, tcp->schedule.op->deadline);
        if (!*connecting)
            return ENOMEM;
        tcp->n_connecting++;
    }
    error = tutti__data_advance(*connecting, fd);
    if (error)
        return error == EINPROGRESS ? 0 : error; /* tutti__tcp_free drops it */
    tutti__data_drop(*connecting);
    *connecting = NULL;
    tcp->n_connecting--;
    return 0;
}

int tutti__tcp_connect(tutti__tcp *tcp, tutti__channel *c)
{
    int *fd = &tcp->sockets[index_of(tcp, c)], error = 0;

    if (*fd < 0 && tutti__control_connects(tcp->control, c->rank))
        error = connect_on(tcp, c, fd);
    else if (*fd < 0)
        *fd = tutti__control_take_data(tcp->control, c->rank, 1 + c->part);
    c->fd = *fd;
    return error;
}

int tutti__tcp_n_connections(const tutti__tcp *tcp)
{
    int n = 0;

    for (int i = 0; i < tcp->n_sockets * tcp->comm->size; i++)
        n += tcp->sockets[i] >= 0;
    return n;
}
