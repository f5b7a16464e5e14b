/* connector.c -- connects to a process of this job, and authenticates.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/connector.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A failure to connect, the deadline, or a call that was called off: errno. */
static void fail(tutti__connector *c, int error)
{
    if (c->state == TUTTI__CONNECTOR_CONNECTING) {
        c->error = error;
        c->status =
            tutti__fail(TUTTI_ERR_IO, "cannot connect to %s: %s", c->opts.who, strerror(error));
    } else {
        c->status = tutti__client_handshake_fail(&c->handshake, c->opts.who, error);
    }
    c->state = TUTTI__CONNECTOR_FAILED;
}

static void limit(tutti__connector *c, int ms)
{
    double end = tutti__now_ms() + ms;

    c->deadline = ms > 0 && end < c->opts.deadline ? end : c->opts.deadline;
}

void tutti__connector_begin(tutti__connector *c, const tutti__address *address,
                            const tutti__connector_opts *opts)
{
    *c = (tutti__connector){.opts = *opts, .state = TUTTI__CONNECTOR_CONNECTING};
    limit(c, opts->connect_ms);
    c->fd = tutti__connect_begin(address);
    if (c->fd < 0)
        fail(c, errno);
}

static void on_connected(tutti__connector *c)
{
    int error = tutti__connect_end(c->fd);

    if (error) {
        fail(c, error);
        return;
    }
    c->state = TUTTI__CONNECTOR_AUTHENTICATING;
    limit(c, c->opts.authenticate_ms);
}

bool tutti__connector_advance(tutti__connector *c)
{
    short events;
    struct pollfd p = {.fd = tutti__connector_fd(c, &events)};
    int state;

    p.events = events;
    if (c->state == TUTTI__CONNECTOR_CONNECTING && poll(&p, 1, 0) > 0)
        on_connected(c);
    if (c->state == TUTTI__CONNECTOR_AUTHENTICATING) {
        state = tutti__client_handshake_step(&c->handshake, c->fd, c->opts.secret, &c->opts.claim,
                                             c->opts.theirs, c->opts.who);
        c->status = c->handshake.status;
        c->error = c->handshake.replaced ? ECONNREFUSED : 0;
        if (state != 0)
            c->state = state > 0 ? TUTTI__CONNECTOR_OPEN : TUTTI__CONNECTOR_FAILED;
    }
    if (c->state != TUTTI__CONNECTOR_IDLE && c->state < TUTTI__CONNECTOR_OPEN &&
        tutti__now_ms() >= c->deadline)
        fail(c, ETIMEDOUT);
    if (c->state == TUTTI__CONNECTOR_FAILED && c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
    }
    return c->state >= TUTTI__CONNECTOR_OPEN;
}

void tutti__connector_cancel(tutti__connector *c, int error)
{
    fail(c, error);
}

bool tutti__connector_wait(tutti__connector *c, double until)
{
    while (!tutti__connector_advance(c)) {
        double next = until < c->deadline ? until : c->deadline;
        struct pollfd p[2] = {0};
        int n;

        p[0].fd = tutti__connector_fd(c, &p[0].events);
        n = tutti__sockets_poll(p, 1, tutti__poll_ms(next));
        if (n < 0 && errno != EINTR)
            fail(c, errno);
        else if (n == 0 && tutti__now_ms() >= until && until < c->deadline)
            return false;
    }
    return true;
}

int tutti__connector_fd(const tutti__connector *c, short *events_p)
{
    *events_p = c->state == TUTTI__CONNECTOR_CONNECTING ? POLLOUT : POLLIN;
    return c->state == TUTTI__CONNECTOR_CONNECTING || c->state == TUTTI__CONNECTOR_AUTHENTICATING
               ? c->fd
               : -1;
}

int tutti__connector_take(tutti__connector *c)
{
    int fd = c->fd;

    *c = (tutti__connector){.fd = -1};
    return fd;
}

const char *tutti__connector_why(const tutti__connector *c)
{
    return c->handshake.replaced ? "another process listens at its address" : strerror(c->error);
}

void tutti__connector_close(tutti__connector *c)
{
    if (c->state != TUTTI__CONNECTOR_IDLE && c->fd >= 0)
        close(c->fd);
    *c = (tutti__connector){.fd = -1};
}
