/* mesh.c -- a connection between each pair of neighbours.   SPDX-License-Identifier: MIT
 *
 * Every rank listens before its address is published; then each connects to its neighbours below it, and accepts those above,
 * also while it waits for an answer: it would hold them up otherwise, and they others in turn. Clients
 * that are not members, or belong to another user, are rejected. */
#include "comm/bootstrap/mesh.h"

#include "comm/bootstrap/connector.h"
#include "comm/bootstrap/peer_info.h"
#include "comm/bootstrap/waiting.h"
#include "comm/core/frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_UNPROVEN = 16384,
    FLOOD = 100, /* strangers within a second, besides the probes of each rank */
    PROBE_MS = 50,
    TELL_MS = 100
};

tutti__claim tutti__group_claim(const tutti__secret *secret, uint64_t group, int rank,
                                uint32_t channel)
{
    return (tutti__claim){.kind = 'G',
                          .attempt = secret->attempt,
                          .job = secret->job,
                          .process = secret->process,
                          .group = group,
                          .rank = (uint32_t)rank + 1,
                          .channel = channel};
}

tutti_status tutti__bootstrap_fail_lost(const tutti__bootstrap *boot, int rank, const char *reason)
{
    char peer[128];

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    return tutti__comm_fail(boot->comm, TUTTI_ERR_PEER, rank,
                            "%s was lost while the group was being made (%s): its process ended or "
                            "its host went away; see its last lines for the reason",
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

static tutti_status serve(tutti__mesh *mesh)
{
    int error = tutti__acceptor_serve(mesh->acceptor);

    if (!error)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "cannot accept the connections of other ranks: %s; raise the limit of open "
                       "files (ulimit -n), a rank needs some, and one or more per neighbour",
                       strerror(error));
}

/* Returns when the connector has ended, or this rank cannot accept others. Neighbours above the called one wait for its answer too; the
 * next rank logs that. */
static tutti_status await_answer(const tutti__bootstrap *boot, tutti__mesh *mesh,
                                 tutti__connector *c, int rank, const char *at)
{
    tutti__waiting waiting = tutti__waiting_begin();
    tutti_status status = TUTTI_OK;

    while (status == TUTTI_OK && !tutti__connector_advance(c)) {
        double next = tutti__waiting_next(&waiting);
        struct pollfd p[3] = {{0}, {mesh->acceptor->epoll, POLLIN, 0}};

        p[0].fd = tutti__connector_fd(c, &p[0].events);
        if (tutti__sockets_poll(p, 2, tutti__poll_ms(next < c->deadline ? next : c->deadline)) <
                0 &&
            errno == ECANCELED)
            tutti__connector_cancel(c, ECANCELED);
        else if (p[1].revents)
            status = serve(mesh);
        if (!tutti__waiting_due(&waiting))
            continue;
        if (c->state == TUTTI__CONNECTOR_CONNECTING)
            say_unreachable(boot, rank, at, &waiting);
        else if (rank + 1 == boot->comm->rank)
            say_silent(boot, rank, &waiting);
    }
    return status;
}

/* The kernel of a host that can be reached connects at once, whatever its rank does. Elastic workers can do without the rank, and do
 * not wait longer for it than for its heartbeat; others wait for the network. */
static int reach_ms(const tutti__bootstrap *boot)
{
    return tutti__sockets_heeds() ? boot->heartbeat_ms : 0;
}

static tutti_status call_rank(const tutti__bootstrap *boot, tutti__mesh *mesh, int place,
                              double deadline)
{
    const int rank = mesh->ranks[place];
    const tutti__address *address = &mesh->addresses[place];
    const tutti__claim theirs = tutti__group_claim(&boot->secret, mesh->id, rank, 0);
    char peer[128], at[80];
    const tutti__connector_opts opts = {
        .secret = &boot->secret,
        .claim = tutti__group_claim(&boot->secret, mesh->id, boot->comm->rank, 0),
        .theirs = &theirs,
        .who = peer,
        .deadline = deadline,
        .connect_ms = reach_ms(boot)};
    tutti__connector c;
    tutti_status status;

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    tutti__address_text(address, at, sizeof at);
    /* EAGAIN: its accept queue is full */
    for (tutti__connector_begin(&c, address, &opts);
         c.error == EAGAIN && tutti__now_ms() < deadline && !tutti__sockets_called_off();
         tutti__connector_begin(&c, address, &opts))
        poll(NULL, 0, 1);
    status = await_answer(boot, mesh, &c, rank, at);
    if (status != TUTTI_OK) {
        tutti__connector_close(&c);
        return status;
    }
    if (c.error == ECANCELED)
        return tutti__fail(TUTTI_ERR_PEER, "was told to give up making group \"%s\"",
                           boot->comm->name);
    if (c.error == ETIMEDOUT || c.error == EHOSTUNREACH || c.error == ENETUNREACH)
        tutti__sockets_note_unreached(rank);
    if (c.error == ECONNREFUSED || c.error == ECONNRESET)
        return tutti__bootstrap_fail_lost(boot, rank, tutti__connector_why(&c));
    if (c.error)
        return tutti__fail_connect(boot->comm, rank, address, c.error);
    if (c.status == TUTTI_ERR_PEER)
        return tutti__bootstrap_fail_lost(boot, rank, "it closed the connection");
    if (c.status == TUTTI_ERR_TIMEOUT)
        return tutti__comm_fail(
            boot->comm, c.status, rank, "waited %.3g s for an answer of %s%s",
            boot->comm->timeout_ms / 1e3, peer,
            tutti__waiting_state(boot->comm->peers[rank].host, boot->comm->peers[rank].pid));
    if (c.status == TUTTI_OK)
        mesh->fds[place] = tutti__connector_take(&c);
    return c.status;
}

/* ---- Accepting ---------------------------------------------------------------------------------------------- */

typedef struct accepting {
    const tutti__bootstrap *boot;
    tutti__mesh *mesh;
} accepting;

/* The place of a peer, or -1. */
static int place_of(const tutti__mesh *mesh, int rank)
{
    int i = mesh->n - 1;

    while (i >= 0 && mesh->ranks[i] != rank)
        i--;
    return i;
}

/* Whether a connection is expected. A rank that is done with this may already connect for data. */
static char decide(void *context, int fd, const tutti__claim *claim)
{
    const accepting *a = context;
    const tutti__bootstrap *boot = a->boot;
    /* 0 becomes no valid rank */
    uint32_t rank = claim->rank - 1, size = (uint32_t)boot->comm->size;
    int place = rank < size ? place_of(a->mesh, (int)rank) : -1;

    if (claim->attempt < boot->secret.attempt)
        return TUTTI__STALE;
    if (claim->group != a->mesh->id || rank <= (uint32_t)boot->comm->rank || place < 0)
        return TUTTI__UNKNOWN;
    if (!boot->secret.set && tutti__of_another_user(fd))
        return TUTTI__OTHER_USER;
    if (claim->channel > 0)
        return tutti__early_data_decide(a->mesh->early, claim, boot->comm->rank);
    return a->mesh->fds[place] >= 0 ? TUTTI__TAKEN : TUTTI__WELCOME;
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    accepting *a = context;

    if (claim->channel > 0)
        tutti__early_data_keep(&a->mesh->early, fd, claim);
    else
        a->mesh->fds[place_of(a->mesh, (int)claim->rank - 1)] = fd;
}

static bool is_missing(const tutti__bootstrap *boot, const tutti__mesh *mesh, int place)
{
    return mesh->ranks[place] > boot->comm->rank && mesh->fds[place] < 0;
}

static int count_missing(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    int n = 0;

    for (int i = 0; i < mesh->n; i++)
        n += is_missing(boot, mesh, i);
    return n;
}

static tutti_status fail_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    char names[512] = "", peer[128];
    size_t n = 0;
    int first = -1;

    for (int i = 0; i < mesh->n; i++) {
        const tutti__peer *theirs = &boot->comm->peers[mesh->ranks[i]];

        if (!is_missing(boot, mesh, i) || n >= sizeof names)
            continue;
        first = first < 0 ? mesh->ranks[i] : first;
        tutti__comm_peer_text(boot->comm, mesh->ranks[i], peer, sizeof peer);
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s%s", n ? ", " : "", peer,
                              tutti__waiting_state(theirs->host, theirs->pid));
    }
    return tutti__comm_fail(boot->comm, TUTTI_ERR_PEER, first,
                            "waited %.3g s for a connection from %s", boot->comm->timeout_ms / 1e3,
                            names);
}

/* Asks a rank that is waited for whether it is still there: one that has published its address listens there until it has connected
 * to all ranks below it, unless it died. If it did, its port may be another process's, which then answers. */
typedef struct probe {
    tutti__connector connector;
    tutti__claim theirs;
    char who[128];
} probe;

static void begin_probe(const tutti__bootstrap *boot, const tutti__mesh *mesh, int place, probe *p)
{
    tutti__comm_peer_text(boot->comm, mesh->ranks[place], p->who, sizeof p->who);
    p->theirs = tutti__group_claim(&boot->secret, mesh->id, mesh->ranks[place], 0);
    tutti__connector_begin(
        &p->connector, &mesh->addresses[place],
        &(tutti__connector_opts){
            .secret = &boot->secret,
            .claim = tutti__group_claim(&boot->secret, mesh->id, boot->comm->rank, TUTTI__PROBE),
            .theirs = &p->theirs,
            .who = p->who,
            .deadline = 1e300});
}

static tutti_status probe_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                                 probe *probes)
{
    tutti_status status = TUTTI_OK;

    for (int i = 0; i < mesh->n && status == TUTTI_OK; i++) {
        tutti__connector *c = &probes[i].connector;

        if (!is_missing(boot, mesh, i)) {
            tutti__connector_close(c);
            continue;
        }
        if (c->state == TUTTI__CONNECTOR_IDLE)
            begin_probe(boot, mesh, i, &probes[i]);
        if (!tutti__connector_advance(c))
            continue;
        if (c->error == ECONNREFUSED)
            status = tutti__bootstrap_fail_lost(boot, mesh->ranks[i], tutti__connector_why(c));
        tutti__connector_close(c);
    }
    return status;
}

static void say_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                       const tutti__waiting *waiting)
{
    for (int i = 0; i < mesh->n; i++)
        if (is_missing(boot, mesh, i)) {
            /* one line for the first; others may be waiting for this rank */
            say_silent(boot, mesh->ranks[i], waiting);
            return;
        }
}

static tutti_status accept_missing(const tutti__bootstrap *boot, tutti__mesh *mesh, probe *probes,
                                   double deadline)
{
    tutti__waiting waiting = tutti__waiting_begin();

    while (count_missing(boot, mesh) > 0) {
        int wait = tutti__poll_ms(deadline),
            ready = tutti__sockets_poll((struct pollfd[2]){{mesh->acceptor->epoll, POLLIN, 0}}, 1,
                                        wait < PROBE_MS ? wait : PROBE_MS);

        if (ready < 0 && errno == ECANCELED)
            return tutti__fail(TUTTI_ERR_PEER, "was told to give up making group \"%s\"",
                               boot->comm->name);
        if (tutti__now_ms() >= deadline)
            return fail_absent(boot, mesh);
        if (ready == 0)
            TUTTI_TRY(probe_absent(boot, mesh, probes));
        if (boot->comm->rank == 0 && tutti__waiting_due(&waiting))
            say_absent(boot, mesh, &waiting);
        TUTTI_TRY(serve(mesh));
    }
    return TUTTI_OK;
}

static tutti_status accept_all(const tutti__bootstrap *boot, tutti__mesh *mesh, double deadline)
{
    probe *probes = tutti__alloc((size_t)mesh->n * sizeof *probes);
    tutti_status status = TUTTI_ERR_MEMORY;

    if (probes)
        status = accept_missing(boot, mesh, probes, deadline);
    for (int i = 0; i < mesh->n && probes; i++)
        tutti__connector_close(&probes[i].connector);
    free(probes);
    return status;
}

/* ---- Both ------------------------------------------------------------------------------------------------------ */

tutti_status tutti__mesh_open(const tutti__bootstrap *boot, tutti__mesh *mesh,
                              const int listeners[2])
{
    char name[128];
    tutti_status status;

    mesh->acceptor = tutti__alloc(sizeof *mesh->acceptor);
    if (!mesh->acceptor)
        return TUTTI_ERR_MEMORY;
    snprintf(name, sizeof name, "rank %d of group \"%s\"", boot->comm->rank, boot->comm->name);
    status = tutti__acceptor_open(
        mesh->acceptor, &(tutti__acceptor_opts){.listeners = {listeners[0], listeners[1]},
                                                .secret = &boot->secret,
                                                .claim = tutti__group_claim(&boot->secret, mesh->id,
                                                                            boot->comm->rank, 0),
                                                .name = name,
                                                .max_unproven = MAX_UNPROVEN,
                                                .flood = FLOOD + mesh->n * 1000 / PROBE_MS});
    if (status != TUTTI_OK) {
        free(mesh->acceptor);
        mesh->acceptor = NULL;
    }
    return status;
}

tutti_status tutti__mesh_connect(const tutti__bootstrap *boot, tutti__mesh *mesh, double deadline)
{
    tutti_status status = TUTTI_OK;
    accepting a = {boot, mesh};

    for (int i = 0; i < mesh->n; i++)
        mesh->fds[i] = -1;
    mesh->acceptor->opts.decide = decide;
    mesh->acceptor->opts.welcome = welcome;
    mesh->acceptor->opts.context = &a;
    for (int i = 0; i < mesh->n && mesh->ranks[i] < boot->comm->rank && status == TUTTI_OK; i++)
        status = call_rank(boot, mesh, i, deadline);
    if (status == TUTTI_OK)
        status = accept_all(boot, mesh, deadline);
    return status;
}

void tutti__mesh_tell(const tutti__mesh *mesh, const tutti__cause *cause)
{
    const tutti__wire_head head = {mesh->id, tutti__cause_frame(cause, true)};
    const double deadline = tutti__now_ms() + TELL_MS;

    for (int i = 0; i < mesh->n; i++)
        if (mesh->fds[i] >= 0 && tutti__send_all(mesh->fds[i], &head, sizeof head, deadline) == 0)
            (void)tutti__send_all(mesh->fds[i], cause->text, head.frame.bytes, deadline);
}

void tutti__mesh_close(tutti__mesh *mesh)
{
    if (mesh->acceptor)
        tutti__acceptor_close(mesh->acceptor);
    free(mesh->acceptor);
    mesh->acceptor = NULL;
    while (mesh->early)
        tutti__early_data_drop(&mesh->early);
}
