/* mesh.c -- a connection between every pair of ranks.   SPDX-License-Identifier: MIT
 *
 * Every rank listens before its address is published; then each connects to the ranks below it, and accepts those above. A
 * rank accepts only after its own connections are answered, and rank 0 makes none, so there is no cyclic waiting. Clients
 * that are not members, or belong to another user, are rejected. */
#include "comm/bootstrap/mesh.h"

#include "comm/bootstrap/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct candidate {
    int fd;
    double deadline; /* for authentication */
    tutti__acceptor acceptor;
} candidate;

enum { MAX_CANDIDATES = 1024, PROBE_MS = 50, PROVE_MS = 10000 };

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
        "does not connect; is it stopped, or much slower? This rank waits for %.4g s "
        "(TUTTI_TIMEOUT_S)",
        boot->comm->name, boot->comm->rank, boot->comm->size, tutti__waiting_seconds(waiting), peer,
        tutti__waiting_state(theirs->host, theirs->pid), boot->comm->timeout_ms / 1e3);
}

/* Returns when the called rank has answered, or at the deadline. All ranks above it wait; the next one logs that. */
static void await_answer(const tutti__bootstrap *boot, int fd, int rank, double deadline)
{
    tutti__waiting waiting = tutti__waiting_begin();
    double next;
    int n = 0;

    while (n <= 0 && tutti__now_ms() < deadline) {
        next = tutti__waiting_next(&waiting);
        n = tutti__sockets_poll((struct pollfd[2]){{fd, POLLIN, 0}}, 1,
                                tutti__poll_ms(next < deadline ? next : deadline));
        if (n < 0 && errno != EINTR)
            return;
        if (tutti__waiting_due(&waiting) && n == 0 && rank + 1 == boot->comm->rank)
            say_silent(boot, rank, &waiting);
    }
}

static tutti_status call_rank(const tutti__bootstrap *boot, const tutti__address *address, int rank,
                              uint32_t channel, int *fd_p, double deadline)
{
    const tutti__claim mine = claim_of(boot, boot->comm->rank, channel),
                       theirs = claim_of(boot, rank, channel);
    tutti__greeting greeting;
    char peer[128];
    int fd, error = 0;
    tutti_status status;

    tutti__comm_peer_text(boot->comm, rank, peer, sizeof peer);
    while ((fd = tutti__connect_once(address, deadline)) < 0) {
        error = errno;
        /* EAGAIN: its accept queue is full */
        if (error != EAGAIN || tutti__now_ms() >= deadline || tutti__sockets_called_off())
            return fail_call(peer, strerror(error));
        poll(NULL, 0, 1);
    }
    status = tutti__greet_begin(&greeting, fd, &boot->secret, &mine, peer, deadline);
    if (status == TUTTI_OK) {
        await_answer(boot, fd, rank, deadline);
        status = tutti__greet_end(&greeting, fd, &boot->secret, &mine, &theirs, peer, deadline);
    }
    if (status == TUTTI_ERR_PEER)
        status = fail_call(peer, "it closed the connection");
    if (status == TUTTI_ERR_TIMEOUT)
        status = tutti__fail(
            status, "waited %.3g s for an answer of %s%s", boot->comm->timeout_ms / 1e3, peer,
            tutti__waiting_state(boot->comm->peers[rank].host, boot->comm->peers[rank].pid));
    if (status != TUTTI_OK)
        close(fd);
    else
        *fd_p = fd;
    return status;
}

/* ---- Accepting ---------------------------------------------------------------------------------------------- */

/* Assigns the candidate its connection, if it is expected. */
static char seat(const tutti__bootstrap *boot, const candidate *v, const tutti__mesh *mesh)
{
    const tutti__claim *claim = &v->acceptor.claim;
    /* 0 becomes no valid rank */
    uint32_t rank = claim->rank - 1, size = (uint32_t)boot->comm->size;
    size_t at;

    if (claim->attempt < boot->secret.attempt)
        return TUTTI__STALE;
    if (claim->group != boot->comm->id || rank <= (uint32_t)boot->comm->rank || rank >= size ||
        claim->channel >= (uint32_t)mesh->n_connections)
        return TUTTI__UNKNOWN;
    at = (size_t)claim->channel * size + rank;
    if (mesh->addresses[at].length == 0)
        return TUTTI__UNKNOWN;
    if (mesh->fds[at] >= 0)
        return TUTTI__TAKEN;
    if (!boot->secret.set && tutti__of_another_user(v->fd))
        return TUTTI__OTHER_USER;
    mesh->fds[at] = v->fd;
    return TUTTI__WELCOME;
}

/* 1: accepted; 0: not yet; -1: reject it. */
static int hear(const tutti__bootstrap *boot, candidate *v, const tutti__mesh *mesh, bool readable)
{
    const tutti__claim mine = claim_of(boot, boot->comm->rank, 0);
    int state = readable ? tutti__acceptor_step(&v->acceptor, v->fd, &boot->secret, &mine) : 0;
    char verdict;

    if (state == 0 && tutti__now_ms() >= v->deadline) {
        v->acceptor.why = "it did not authenticate within 10 s";
        return -1;
    }
    if (state <= 0)
        return state;
    verdict = seat(boot, v, mesh);
    /* If it is gone by now, the transport will notice. */
    return tutti__acceptor_decide(&v->acceptor, v->fd, verdict) || verdict == TUTTI__WELCOME ? 1
                                                                                             : -1;
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

    if (boot->comm->parent && tutti__comm_failed(boot->comm->parent))
        return tutti__comm_error(boot->comm->parent, NULL);
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

/* Accepts all waiting clients; if there are too many, drops the oldest. */
static tutti_status accept_candidates(int listener, candidate *candidates, int *n_p)
{
    int fd, n = *n_p;

    while ((fd = tutti__accept(listener)) >= 0) {
        if (n == MAX_CANDIDATES) {
            close(candidates[0].fd);
            memmove(candidates, candidates + 1, (size_t)--n * sizeof *candidates);
        }
        candidates[n++] = (candidate){.fd = fd, .deadline = tutti__now_ms() + PROVE_MS};
    }
    *n_p = n;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return TUTTI_OK; /* no client waits, or it is gone */
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "cannot accept the connections of other ranks: %s; raise the limit of open "
                       "files (ulimit -n), a rank needs some, and one or more per peer",
                       strerror(errno));
}

static int count_absent(const tutti__bootstrap *boot, const tutti__mesh *mesh)
{
    int n = 0;

    for (int c = 0; c < mesh->n_connections; c++)
        for (int r = boot->comm->rank + 1; r < boot->comm->size; r++)
            n += mesh->addresses[c * boot->comm->size + r].length > 0;
    return n;
}

static tutti_status accept_all(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                               double deadline)
{
    int missing = count_absent(boot, mesh), n = 0;
    candidate *candidates = missing ? malloc(MAX_CANDIDATES * sizeof *candidates) : NULL;
    struct pollfd *polls = missing ? malloc((MAX_CANDIDATES + 3) * sizeof *polls) : NULL;
    tutti_status status =
        missing && !(candidates && polls)
            ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for connections that are being accepted")
            : TUTTI_OK;
    tutti__waiting waiting = tutti__waiting_begin();
    tutti__refusals refusals = {0};
    char door[128];

    snprintf(door, sizeof door, "rank %d of group \"%s\"", boot->comm->rank, boot->comm->name);

    while (status == TUTTI_OK && missing > 0) {
        int kept = 0, wait, ready;

        for (int i = 0; i < n; i++)
            polls[i + 2] = (struct pollfd){candidates[i].fd, POLLIN, 0};
        for (int i = 0; i < 2; i++)
            polls[i] = (struct pollfd){mesh->listeners[i], POLLIN, 0};
        wait = tutti__poll_ms(deadline);
        ready = tutti__sockets_poll(polls, (size_t)n + 2, wait < PROBE_MS ? wait : PROBE_MS);
        if (ready < 0 && errno == ECANCELED)
            status = tutti__fail(TUTTI_ERR_PEER, "was told to give up making group \"%s\"",
                                 boot->comm->name);
        else if (tutti__now_ms() >= deadline)
            status = fail_absent(boot, mesh);
        else if (ready == 0)
            status = probe_absent(boot, mesh);
        if (status == TUTTI_OK && boot->comm->rank == 0 && tutti__waiting_due(&waiting))
            say_absent(boot, mesh, &waiting);
        for (int i = 0; i < n; i++) {
            int state = hear(boot, &candidates[i], mesh, polls[i + 2].revents != 0);

            if (state > 0) {
                missing--;
            } else if (state < 0) {
                tutti__log_refusal(&refusals, candidates[i].fd, &candidates[i].acceptor, door,
                                   NULL);
                close(candidates[i].fd);
            } else {
                candidates[kept++] = candidates[i];
            }
        }
        n = kept;
        for (int i = 0; i < 2 && status == TUTTI_OK; i++)
            if (mesh->listeners[i] >= 0)
                status = accept_candidates(mesh->listeners[i], candidates, &n);
    }
    while (n > 0)
        close(candidates[--n].fd);
    free(candidates);
    free(polls);
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
