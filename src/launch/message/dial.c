/* dial.c -- connects, authenticates, and opens a connection, without blocking.   SPDX-License-Identifier: MIT */
#include "launch/message/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum { PIECE_MS = 200 }; /* for the rest of a partly received answer */

static void end(tutti__dial *d, tutti__dial_state state, bool hung_up)
{
    tutti__connection_close(&d->connection);
    d->state = state;
    d->hung_up = hung_up;
}

void tutti__dial_begin(tutti__dial *d, const tutti__secret *secret, const tutti__address *address,
                       double deadline)
{
    int fd;

    *d = (tutti__dial){.secret = secret,
                       .claim = {.kind = 'L', .job = secret->job, .process = secret->process},
                       .connection = {.fd = -1},
                       .deadline = deadline,
                       .state = TUTTI__DIAL_FAILED};
    if (address->length == 0)
        return;
    fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)&address->at, address->length) != 0 &&
        errno != EINPROGRESS) {
        d->state = errno == ECONNREFUSED ? TUTTI__DIAL_REFUSED : TUTTI__DIAL_FAILED;
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    tutti__connection_open(&d->connection, fd);
    d->state = TUTTI__DIAL_CONNECTING;
}

static void on_connected(tutti__dial *d)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(d->connection.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error)
        end(d, error == ECONNREFUSED ? TUTTI__DIAL_REFUSED : TUTTI__DIAL_FAILED,
            error == ECONNRESET);
    else if (tutti__greet_begin(&d->greeting, d->connection.fd, d->secret, &d->claim,
                                "another node", tutti__now_ms() + PIECE_MS) != TUTTI_OK)
        end(d, TUTTI__DIAL_FAILED, true);
    else
        d->state = TUTTI__DIAL_ANSWER;
}

void tutti__dial_advance(tutti__dial *d)
{
    short events;
    struct pollfd p = {.fd = tutti__dial_fd(d, &events)};
    tutti_status status;

    while (d->state >= TUTTI__DIAL_CONNECTING && d->state <= TUTTI__DIAL_VERDICT) {
        double limit = tutti__now_ms() + PIECE_MS;

        p.fd = tutti__dial_fd(d, &events);
        p.events = events;
        if (poll(&p, 1, 0) <= 0) {
            if (tutti__now_ms() >= d->deadline)
                end(d, TUTTI__DIAL_FAILED, false);
            return;
        }
        if (d->state == TUTTI__DIAL_CONNECTING) {
            on_connected(d);
            continue;
        }
        status = d->state == TUTTI__DIAL_ANSWER
                     ? tutti__greet_prove(&d->greeting, d->connection.fd, d->secret, &d->claim,
                                          NULL, "another node", limit)
                     : tutti__greet_verdict(d->connection.fd, &d->claim, "another node", limit);
        if (status != TUTTI_OK)
            end(d, TUTTI__DIAL_FAILED, true);
        else
            d->state++;
    }
}

tutti__connection tutti__dial_take(tutti__dial *d)
{
    tutti__connection connection = d->connection;

    *d = (tutti__dial){.connection = {.fd = -1}};
    return connection;
}

void tutti__dial_close(tutti__dial *d)
{
    if (d->state >= TUTTI__DIAL_CONNECTING && d->state <= TUTTI__DIAL_OPEN)
        tutti__connection_close(&d->connection);
    *d = (tutti__dial){.connection = {.fd = -1}};
}

int tutti__dial_fd(const tutti__dial *d, short *events_p)
{
    *events_p = d->state == TUTTI__DIAL_CONNECTING ? POLLOUT : POLLIN;
    if (d->state == TUTTI__DIAL_OPEN && d->connection.n_out > 0)
        *events_p |= POLLOUT;
    return d->state >= TUTTI__DIAL_CONNECTING && d->state <= TUTTI__DIAL_OPEN ? d->connection.fd
                                                                              : -1;
}
