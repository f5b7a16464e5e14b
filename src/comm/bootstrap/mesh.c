/* mesh.c -- a connection between every pair of ranks.   SPDX-License-Identifier: MIT
 *
 * Every rank listens before its address is published; then each connects to the ranks below it, and accepts those above. A
 * rank accepts only after its own connections are answered, and rank 0 makes none, so there is no cyclic waiting. Clients
 * that are not members, or belong to another user, are rejected. */
#include "comm/bootstrap/mesh.h"

#include "comm/bootstrap/acceptor.h"
#include "comm/bootstrap/connector.h"
#include "comm/bootstrap/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_UNPROVEN = 16384,
    FLOOD = 100, /* strangers within a second, besides the probes of each rank */
    PROBE_MS = 50
};

/* The claim of this rank, or of `rank`. */
static tutti__claim claim_of(const tutti__bootstrap *boot, int rank, uint32_t channel)
{
    return (tutti__claim){.kind = 'G',
                          .attempt = boot->secret.attempt,
                          .job = boot->secret.job,
                          .process = boot->secret.process,
                          .group = boot->comm->id,
                          .rank = (uint32_t)rank + 1,
                          .channel = channel};
}

static tutti_status fail_call(const char *peer, const char *reason)
{
    return tutti__fail(TUTTI_ERR_PEER,
                       "%s was lost while the group was being made (%s): its process ended or its "
                       "host went away; see its last lines for the reason",
                       peer, reason);
}

/* ---- Connecting -------------------------------------------------------------------------------------------- */

/* Logs that the rank has published its address, but does not connect. */
static void say_silent(const tutti__bootstrap *boot, int rank, const tutti__waiting *waiting)
{
    const tutti__peer *theirs = &boot->comm->peers[rank];
    char peer[128];

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    tutti_log(
        TUTTI_LOG_WARN, "comm",
        "group \"%s\": rank %d of %d has waited %.0f s for %s%s: it has published its address, but "
        "does not connect; is it stopped, much slower, or behind a firewall? This rank waits for "
        "%.4g s "
        "(TUTTI_TIMEOUT_S)",
        boot->comm->name, boot->comm->rank, boot->comm->size, tutti__waiting_seconds(waiting), peer,
        tutti__waiting_state(theirs->host, theirs->pid), boot->comm->timeout_ms / 1e3);
}

/* Logs that the rank's host does not answer, although the rank could publish its address. */
static void say_unreachable(const tutti__bootstrap *boot, int rank, const char *at,
                            const tutti__waiting *waiting)
{
    char peer[128];

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    tutti_log(TUTTI_LOG_WARN, "comm",
              "group \"%s\": rank %d of %d cannot reach %s at %s, and has tried for %.0f s: is a "
              "firewall or a link between this host and that one? (all TCP ports must be open "
              "between the hosts of a job)",
              boot->comm->name, boot->comm->rank, boot->comm->size, peer, at,
              tutti__waiting_seconds(waiting));
}

/* Returns when the connector has ended. All ranks above the called one wait for its answer; the next one logs that. */
static void await_answer(const tutti__bootstrap *boot, tutti__connector *connector, int rank,
                         const char *at)
{
    tutti__waiting waiting = tutti__waiting_begin();

    while (!tutti__connector_wait(connector, tutti__waiting_next(&waiting))) {
        if (!tutti__waiting_due(&waiting))
            continue;
        if (connector->state == TUTTI__CONNECTOR_CONNECTING)
            say_unreachable(boot, rank, at, &waiting);
        else if (rank + 1 == boot->comm->rank)
            say_silent(boot, rank, &waiting);
    }
}

/* The kernel of a host that can be reached connects at once, whatever its rank does. Elastic workers can do without the rank, and do
 * not wait longer for it than for its heartbeat; others wait for the network. */
static int reach_ms(const tutti__bootstrap *boot)
{
    return tutti__sockets_heeds() ? boot->heartbeat_ms : 0;
}

static tutti_status call_rank(const tutti__bootstrap *boot, const tutti__address *address, int rank,
                              uint32_t channel, int *fd_p, double deadline)
{
    const tutti__claim theirs = claim_of(boot, rank, channel);
    char peer[128], at[80];
    const tutti__connector_opts opts = {.secret = &boot->secret,
                                        .claim = claim_of(boot, boot->comm->rank, channel),
                                        .theirs = &theirs,
                                        .who = peer,
                                        .deadline = deadline,
                                        .connect_ms = reach_ms(boot)};
    tutti__connector c;

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    tutti__address_text(address, at, sizeof at);
    /* EAGAIN: its accept queue is full */
    for (tutti__connector_begin(&c, address, &opts);
         c.error == EAGAIN && tutti__now_ms() < deadline && !tutti__sockets_called_off();
         tutti__connector_begin(&c, address, &opts))
        poll(NULL, 0, 1);
    await_answer(boot, &c, rank, at);
    if (c.error == ETIMEDOUT || c.error == EHOSTUNREACH || c.error == ENETUNREACH) {
        tutti__sockets_note_unreached(rank);
        return tutti__fail(TUTTI_ERR_PEER,
                           "%s cannot be reached at %s while the group is being made (%s): is a "
                           "firewall or a link between this host and that one?",
                           peer, at, strerror(c.error));
    }
    if (c.error)
        return fail_call(peer, strerror(c.error));
    if (c.status == TUTTI_ERR_PEER)
        return fail_call(peer, "it closed the connection");
    if (c.status == TUTTI_ERR_TIMEOUT)
        return tutti__fail(
            c.status, "waited %.3g s for an answer of %s%s", boot->comm->timeout_ms / 1e3, peer,
            tutti__waiting_state(boot->comm->peers[rank].host, boot->comm->peers[rank].pid));
    if (c.status == TUTTI_OK)
        *fd_p = tutti__connector_take(&c);
    return c.status;
}

/* ---- Accepting ---------------------------------------------------------------------------------------------- */

typedef struct accepting {
    const tutti__bootstrap *boot;
    const tutti__mesh *mesh;
    int missing;
} accepting;

static size_t place_of(const accepting *a, const tutti__claim *claim)
{
    return (size_t)claim->channel * (size_t)a->boot->comm->size + claim->rank - 1;
}

/* Whether a connection is expected. */
static char decide(void *context, int fd, const tutti__claim *claim)
{
    const accepting *a = context;
    const tutti__bootstrap *boot = a->boot;
    /* 0 becomes no valid rank */
    uint32_t rank = claim->rank - 1, size = (uint32_t)boot->comm->size;

    if (claim->attempt < boot->secret.attempt)
        return TUTTI__STALE;
    if (claim->group != boot->comm->id || rank <= (uint32_t)boot->comm->rank || rank >= size ||
        claim->channel >= (uint32_t)a->mesh->n_connections ||
        a->mesh->addresses[place_of(a, claim)].length == 0)
        return TUTTI__UNKNOWN;
    if (a->mesh->fds[place_of(a, claim)] >= 0)
        return TUTTI__TAKEN;
    if (!boot->secret.set && tutti__of_another_user(fd))
        return TUTTI__OTHER_USER;
    return TUTTI__WELCOME;
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    accepting *a = context;

    a->mesh->fds[place_of(a, claim)] = fd;
    a->missing--;
}

/* The index of a missing connection with this rank, or -1. */
static int absent(const tutti__bootstrap *boot, int rank, const tutti__mesh *mesh)
{
    for (int at = rank; at < mesh->n_connections * boot->comm->size; at += boot->comm->size)
        if (mesh->fds[at] < 0 && mesh->addresses[at].length > 0)
            return at;
    return -1;
}

static tutti_status fail_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    char names[512] = "", peer[128];
    size_t n = 0;

    for (int r = boot->comm->rank + 1; r < boot->comm->size; r++) {
        if (absent(boot, r, mesh) < 0 || n >= sizeof names)
            continue;
        tutti__comm_peer_text(boot->comm, r, peer, sizeof peer);
        n += (size_t)snprintf(
            names + n, sizeof names - n, "%s%s%s", n ? ", " : "", peer,
            tutti__waiting_state(boot->comm->peers[r].host, boot->comm->peers[r].pid));
    }
    return tutti__fail(TUTTI_ERR_PEER, "waited %.3g s for a connection from %s",
                       boot->comm->timeout_ms / 1e3, names);
}

/* A rank that has published its address listens there until it has connected to all ranks below it, unless it died. */
static tutti_status probe_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    char peer[128];

    if (boot->comm->parent && tutti__comm_failed(boot->comm))
        return tutti__comm_error(boot->comm, NULL);
    for (int r = boot->comm->rank + 1; r < boot->comm->size; r++) {
        int fd, error, at = absent(boot, r, mesh);

        if (at < 0)
            continue;
        fd = tutti__connect_once(&mesh->addresses[at], tutti__now_ms() + PROBE_MS);
        error = errno;
        if (fd >= 0)
            close(fd);
        tutti__comm_peer_text(boot->comm, r, peer, sizeof peer);
        if (fd < 0 && error == ECONNREFUSED)
            return fail_call(peer, strerror(error));
    }
    return TUTTI_OK;
}

static void say_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                       const tutti__waiting *waiting)
{
    for (int r = boot->comm->rank + 1; r < boot->comm->size; r++)
        if (absent(boot, r, mesh) >= 0) {
            /* one line for the first; others may be waiting for this rank */
            say_silent(boot, r, waiting);
            return;
        }
}

static int count_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    int n = 0;

    for (int c = 0; c < mesh->n_connections; c++)
        for (int r = boot->comm->rank + 1; r < boot->comm->size; r++)
            n += mesh->addresses[c * boot->comm->size + r].length > 0;
    return n;
}

static tutti_status accept_until(accepting *a, tutti__acceptor *acceptor, double deadline)
{
    const tutti__bootstrap *boot = a->boot;
    tutti__waiting waiting = tutti__waiting_begin();

    while (a->missing > 0) {
        int wait = tutti__poll_ms(deadline), error,
            ready = tutti__sockets_poll((struct pollfd[2]){{acceptor->epoll, POLLIN, 0}}, 1,
                                        wait < PROBE_MS ? wait : PROBE_MS);

        if (ready < 0 && errno == ECANCELED)
            return tutti__fail(TUTTI_ERR_PEER, "was told to give up making group \"%s\"",
                               boot->comm->name);
        if (tutti__now_ms() >= deadline)
            return fail_absent(boot, a->mesh);
        if (ready == 0)
            TUTTI_TRY(probe_absent(boot, a->mesh));
        if (boot->comm->rank == 0 && tutti__waiting_due(&waiting))
            say_absent(boot, a->mesh, &waiting);
        error = tutti__acceptor_serve(acceptor);
        if (error)
            return tutti__fail(TUTTI_ERR_MEMORY,
                               "cannot accept the connections of other ranks: %s; raise the limit "
                               "of open files (ulimit -n), a rank needs some, and one or more per "
                               "peer",
                               strerror(error));
    }
    return TUTTI_OK;
}

static tutti_status accept_all(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                               double deadline)
{
    accepting a = {boot, mesh, count_absent(boot, mesh)};
    tutti__acceptor acceptor;
    tutti_status status;
    char name[128];

    if (a.missing == 0)
        return TUTTI_OK;
    snprintf(name, sizeof name, "rank %d of group \"%s\"", boot->comm->rank, boot->comm->name);
    TUTTI_TRY(tutti__acceptor_open(
        &acceptor, &(tutti__acceptor_opts){.listeners = {mesh->listeners[0], mesh->listeners[1]},
                                           .secret = &boot->secret,
                                           .claim = claim_of(boot, boot->comm->rank, 0),
                                           .name = name,
                                           .max_unproven = MAX_UNPROVEN,
                                           .flood = FLOOD + boot->comm->size * 1000 / PROBE_MS,
                                           .decide = decide,
                                           .welcome = welcome,
                                           .context = &a}));
    status = accept_until(&a, &acceptor, deadline);
    tutti__acceptor_close(&acceptor);
    return status;
}

tutti_status tutti__mesh_connect(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                                 double deadline)
{
    tutti_status status = TUTTI_OK;
    int at;

    for (int i = 0; i < mesh->n_connections * boot->comm->size; i++)
        mesh->fds[i] = -1;
    for (int r = 0; r < boot->comm->rank; r++)
        while (status == TUTTI_OK && (at = absent(boot, r, mesh)) >= 0)
            status = call_rank(boot, &mesh->addresses[at], r, (uint32_t)(at / boot->comm->size),
                               &mesh->fds[at], deadline);
    if (status == TUTTI_OK)
        status = accept_all(boot, mesh, deadline);
    if (status != TUTTI_OK)
        /* before the others notice that this rank is missing */
        tutti__bootstrap_note_cause(boot, status, NULL);
    for (int i = 0; i < mesh->n_connections * boot->comm->size && status != TUTTI_OK; i++)
        if (mesh->fds[i] >= 0)
            close(mesh->fds[i]);
    return status;
}
