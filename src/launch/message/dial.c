/* dial.c -- connects to another agent.   SPDX-License-Identifier: MIT */
#include "launch/message/dial.h"

#include <errno.h>
#include <string.h>

/* A process that is just starting or ending hangs up: another attempt may succeed. */
static void on_failed(tutti__dial *d)
{
    const tutti__connector *c = &d->connector;

    d->state = c->error == ECONNREFUSED ? TUTTI__DIAL_REFUSED : TUTTI__DIAL_FAILED;
    d->status = c->status;
    d->hung_up = c->error ? c->error == ECONNRESET : c->status != TUTTI_ERR_TIMEOUT;
    if (c->error)
        d->status = tutti__fail(TUTTI_ERR_TIMEOUT, "%s", strerror(c->error));
    else if (c->status == TUTTI_ERR_PEER)
        d->status = tutti__fail(TUTTI_ERR_TIMEOUT, "it hung up");
    else if (c->status == TUTTI_ERR_MEMORY)
        d->status = TUTTI_ERR_TIMEOUT;
}

static void begin(tutti__dial *d, const tutti__connector_opts *opts, tutti__dial_state state)
{
    *d = (tutti__dial){
        .connection = {.fd = -1}, .opts = *opts, .deadline = opts->deadline, .state = state};
    d->opts.claim =
        (tutti__claim){.kind = 'L', .job = opts->secret->job, .process = opts->secret->process};
}

void tutti__dial_begin(tutti__dial *d, const tutti__address *address,
                       const tutti__connector_opts *opts)
{
    begin(d, opts, TUTTI__DIAL_CONNECTING);
    tutti__connector_begin(&d->connector, address, &d->opts);
}

void tutti__dial_begin_host(tutti__dial *d, const char *host, int port,
                            const tutti__connector_opts *opts)
{
    tutti__address address;

    if (tutti__resolve_numeric(&address, host, port) == TUTTI_OK) {
        tutti__dial_begin(d, &address, opts);
        return;
    }
    begin(d, opts, TUTTI__DIAL_LOOKING_UP);
    d->lookup = tutti__lookup_begin(host, port);
    if (!d->lookup) {
        d->state = TUTTI__DIAL_FAILED;
        d->status = TUTTI_ERR_TIMEOUT; /* memory, or a thread, may be free later */
    }
}

static void look_up(tutti__dial *d)
{
    tutti__address address;
    tutti_status status = tutti__lookup_end(&d->lookup, &address);

    if (status == TUTTI_OK) {
        d->state = TUTTI__DIAL_CONNECTING;
        tutti__connector_begin(&d->connector, &address, &d->opts);
    } else if (!d->lookup || tutti__now_ms() >= d->deadline) {
        tutti__lookup_abandon(d->lookup);
        d->lookup = NULL;
        d->state = TUTTI__DIAL_FAILED;
        d->status = TUTTI_ERR_TIMEOUT;
    }
}

void tutti__dial_advance(tutti__dial *d)
{
    if (d->state == TUTTI__DIAL_LOOKING_UP)
        look_up(d);
    if (d->state != TUTTI__DIAL_CONNECTING || !tutti__connector_advance(&d->connector))
        return;
    if (d->connector.state == TUTTI__CONNECTOR_FAILED) {
        on_failed(d);
        return;
    }
    tutti__connection_open(&d->connection, tutti__connector_take(&d->connector));
    d->state = TUTTI__DIAL_OPEN;
}

tutti__connection tutti__dial_take(tutti__dial *d)
{
    tutti__connection connection = d->connection;

    *d = (tutti__dial){.connection = {.fd = -1}};
    return connection;
}

void tutti__dial_close(tutti__dial *d)
{
    tutti__lookup_abandon(d->lookup);
    if (d->state == TUTTI__DIAL_CONNECTING)
        tutti__connector_close(&d->connector);
    else if (d->state == TUTTI__DIAL_OPEN)
        tutti__connection_close(&d->connection);
    *d = (tutti__dial){.connection = {.fd = -1}};
}

int tutti__dial_fd(const tutti__dial *d, short *events_p)
{
    if (d->state == TUTTI__DIAL_CONNECTING)
        return tutti__connector_fd(&d->connector, events_p);
    *events_p = (short)(POLLIN | (d->connection.n_out > 0 ? POLLOUT : 0));
    return d->state == TUTTI__DIAL_OPEN ? d->connection.fd : -1;
}

double tutti__dial_deadline(const tutti__dial *d)
{
    if (d->state == TUTTI__DIAL_LOOKING_UP)
        return tutti__now_ms() + TUTTI__LOOKUP_MS;
    return d->state == TUTTI__DIAL_CONNECTING ? d->connector.deadline : d->deadline;
}
