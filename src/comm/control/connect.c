/* connect.c -- connections that are made when they are needed.   SPDX-License-Identifier: MIT
 *
 * The first frame to a rank without a connection makes the control thread connect to it; until then frames wait in the link's queue.
 * If both ends connect at once, the higher rank's connection stays: the lower one accepts it and gives up its own, the higher
 * one does not accept. A rank that no longer listens has left, or has died; of a death its neighbours tell in a moment, so a
 * rank that is still thought to be there then has left. */
#include "comm/control/control_state.h"

#include "comm/core/failure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* GRACE: in which a death is told. CROSSED: until a process that says that its own connection is about to come is asked again. */
enum { GRACE_MS = 300, CROSSED_MS = 50 };

typedef struct tutti__connecting {
    tutti__connector connector;
    tutti__claim theirs;
    char who[96];
    double again_ms, deadline; /* again: when to try next; 0: it is being tried */
    double full_ms;            /* since when the peer has no descriptor */
} tutti__connecting;

/* ---- Outgoing --------------------------------------------------------------------------------------------------- */

static void drop(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    tutti__connecting *connecting = link->connecting;
    short events;
    int fd;

    atomic_fetch_sub(&links->n_wanted, 1);
    if (!connecting)
        return;
    fd = tutti__connector_fd(&connecting->connector, &events);
    if (fd >= 0)
        epoll_ctl(links->epoll, EPOLL_CTL_DEL, fd, NULL);
    tutti__connector_close(&connecting->connector);
    free(connecting);
    link->connecting = NULL;
}

/* The peer does not listen any more. */
static void be_refused(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];

    drop(links, at);
    pthread_mutex_lock(&links->lock);
    tutti__link_use(links, at, TUTTI__LINK_OPEN);
    link->over = link->unwritable = true;
    link->refused_ms = tutti__now_ms();
    tutti__link_clear(links, at);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    atomic_fetch_add(&links->n_refused, 1);
}

/* Why there is no connection. */
typedef struct failure {
    tutti__address at;
    int error; /* 0: it is in `text`, with the status */
    tutti_status status;
    char text[512];
} failure;

/* A peer that has no descriptor left is the cause itself. */
static tutti__verdict judge_failure(const tutti__comm *comm, int rank, const void *why)
{
    const failure *f = why;
    tutti__verdict verdict = {.set = true, .lost = -1};
    char who[128], peer[128];

    if (f->error) {
        verdict.cause = tutti__connect_cause(comm, rank, &f->at, f->error);
        return verdict;
    }
    tutti__comm_peer_text(comm, comm->rank, who, sizeof who);
    tutti__comm_peer_text(comm, rank, peer, sizeof peer);
    verdict.cause.status = f->status == TUTTI_ERR_MEMORY ? f->status : TUTTI_ERR_PEER;
    verdict.cause.culprit = rank;
    snprintf(verdict.cause.text, sizeof verdict.cause.text, "%s cannot connect to %s: %s", who,
             peer, f->text);
    return verdict;
}

/* It is not being made any more. error 0: the thread's message says why, and `status`. */
static void give_up(tutti__links *links, int at, int error, tutti_status status)
{
    failure f = {.at = tutti__address_unpack(&links->directory->places[at].control),
                 .error = error,
                 .status = status};

    if (!error)
        snprintf(f.text, sizeof f.text, "%s", tutti_last_error());
    tutti__link_end(links, at, judge_failure, &f);
}

static void watch(tutti__links *links, int at, int operation)
{
    short events;
    int fd = tutti__connector_fd(&links->at[at].connecting->connector, &events);
    struct epoll_event event = {.events = events & POLLOUT ? EPOLLOUT : EPOLLIN,
                                .data.u32 = (uint32_t)at};

    if (fd >= 0)
        epoll_ctl(links->epoll, operation, fd, &event);
}

static void fail(tutti__links *links, int at)
{
    tutti__connecting *connecting = links->at[at].connecting;
    const tutti__connector *c = &connecting->connector;
    const bool crossed = !c->error && c->handshake.next == TUTTI__AWAIT_VERDICT &&
                         c->handshake.answer[0] == TUTTI__CROSSED;
    const tutti_status status = c->status;
    const int error = c->error,
              pause = !crossed ? tutti__link_again(c, &connecting->full_ms, connecting->deadline)
                      : tutti__now_ms() < connecting->deadline ? CROSSED_MS
                                                               : 0;

    if (error == ECONNREFUSED) {
        be_refused(links, at);
    } else if (pause > 0) {
        connecting->again_ms = tutti__now_ms() + pause;
        tutti__connector_close(&connecting->connector);
        atomic_store(&links->at[at].state, TUTTI__LINK_WANTED);
    } else {
        drop(links, at);
        give_up(links, at, error, status);
    }
}

void tutti__connect_advance(tutti__links *links, int at)
{
    tutti__connector *c = &links->at[at].connecting->connector;
    int fd, error;

    if (!tutti__connector_advance(c)) {
        watch(links, at, EPOLL_CTL_MOD);
        return;
    }
    if (c->state == TUTTI__CONNECTOR_FAILED) {
        fail(links, at);
        return;
    }
    fd = tutti__connector_take(c);
    epoll_ctl(links->epoll, EPOLL_CTL_DEL, fd, NULL);
    error = tutti__link_opened(links, at, fd);
    drop(links, at);
    if (error)
        give_up(links, at, error, TUTTI_OK);
}

static void begin(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    tutti__connector_opts opts = {0};
    tutti__connecting *connecting = link->connecting;
    tutti__address address;

    if (!connecting) {
        connecting = link->connecting = calloc(1, sizeof *connecting);
        if (!connecting) {
            drop(links, at);
            give_up(links, at, ENOMEM, TUTTI_OK);
            return;
        }
        connecting->deadline = tutti__now_ms() + links->connect_ms;
    }
    connecting->again_ms = 0;
    tutti__link_describe(&opts, &connecting->theirs, connecting->who, sizeof connecting->who, links,
                         at);
    opts.claim = tutti__group_claim(&links->secret, links->id, links->rank, 0);
    opts.deadline = connecting->deadline;
    address = tutti__address_unpack(&links->directory->places[at].control);
    tutti__connector_begin(&connecting->connector, &address, &opts);
    atomic_store(&link->state, TUTTI__LINK_CONNECTING);
    if (connecting->connector.state == TUTTI__CONNECTOR_FAILED) {
        fail(links, at);
        return;
    }
    watch(links, at, EPOLL_CTL_ADD);
    tutti__connect_advance(links, at);
}

/* Those that are still thought to be there have left. */
static void judge_refused(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];

    link->refused_ms = 0;
    atomic_fetch_sub(&links->n_refused, 1);
    for (tutti__control *c = links->controls; c; c = c->next) {
        int rank = c->rank_at[at];

        if (rank >= 0 && !atomic_load(&c->comm->failed) && !atomic_load(&c->comm->peers[rank].left))
            tutti__control_farewell(c, rank, rank, 0);
    }
}

void tutti__connect_turn(tutti__links *links)
{
    double now = tutti__now_ms();

    tutti__data_expire(links, now);
    if (atomic_load(&links->n_wanted) == 0 && atomic_load(&links->n_refused) == 0)
        return;
    for (int i = 0; i < links->n_used; i++) {
        int at = links->used[i];
        tutti__link *link = &links->at[at];
        int state = atomic_load(&link->state);

        if (state == TUTTI__LINK_WANTED && (!link->connecting || now >= link->connecting->again_ms))
            begin(links, at);
        else if (state == TUTTI__LINK_CONNECTING && now >= link->connecting->connector.deadline)
            tutti__connect_advance(links, at);
        else if (link->refused_ms > 0 && now >= link->refused_ms + GRACE_MS)
            judge_refused(links, at);
    }
}

int tutti__connect_wait(tutti__links *links)
{
    double first = links->directory ? tutti__acceptor_deadline(links->acceptor) : 1e300,
           expiry = tutti__data_expiry(links);

    first = expiry < first ? expiry : first;
    if (atomic_load(&links->n_wanted) > 0 || atomic_load(&links->n_refused) > 0)
        for (int i = 0; i < links->n_used; i++) {
            const tutti__link *link = &links->at[links->used[i]];
            int state = atomic_load(&link->state);
            double next = state == TUTTI__LINK_WANTED
                              ? (link->connecting ? link->connecting->again_ms : 0)
                          : state == TUTTI__LINK_CONNECTING ? link->connecting->connector.deadline
                          : link->refused_ms > 0            ? link->refused_ms + GRACE_MS
                                                            : 1e300;

            first = next < first ? next : first;
        }
    return first >= 1e300 ? -1 : tutti__poll_ms(first);
}

/* ---- Incoming --------------------------------------------------------------------------------------------------- */

static char decide(void *context, int fd, const tutti__claim *claim)
{
    tutti__links *links = context;
    uint32_t at = claim->rank - 1; /* 0 becomes no valid rank */
    int state;

    if (claim->attempt < links->secret.attempt)
        return TUTTI__STALE;
    if (at >= (uint32_t)links->size || (int)at == links->rank)
        return TUTTI__UNKNOWN;
    if (!links->secret.set && tutti__of_another_user(fd))
        return TUTTI__OTHER_USER;
    if (claim->channel > 0)
        return tutti__data_decide(links, claim);
    if (claim->group != links->id)
        return TUTTI__UNKNOWN;
    /* Without any, this rank has left, and is about to close: it says nothing on a connection that is made now. */
    if (!links->controls)
        return TUTTI__CROSSED;
    state = atomic_load(&links->at[at].state);
    return state == TUTTI__LINK_OPEN || (state == TUTTI__LINK_CONNECTING && (int)at < links->rank)
               ? TUTTI__CROSSED
               : TUTTI__WELCOME;
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    tutti__links *links = context;
    int at = (int)claim->rank - 1, state = atomic_load(&links->at[at].state), error;

    if (claim->channel > 0) {
        tutti__data_welcome(links, fd, claim);
        return;
    }
    if (state != TUTTI__LINK_NONE)
        drop(links, at);
    error = tutti__link_opened(links, at, fd);
    if (error)
        give_up(links, at, error, TUTTI_OK);
}

int tutti__connect_start(tutti__links *links)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)links->size + 1};
    tutti__acceptor *acceptor = links->acceptor;

    if (!links->directory)
        return 0;
    acceptor->opts.secret = &links->secret;
    acceptor->opts.claim = tutti__group_claim(&links->secret, links->id, links->rank, 0);
    acceptor->opts.crossing = true;
    acceptor->opts.flood += 10 * links->size;
    acceptor->opts.decide = decide;
    acceptor->opts.welcome = welcome;
    acceptor->opts.context = links;
    return epoll_ctl(links->epoll, EPOLL_CTL_ADD, acceptor->epoll, &event) == 0 ? 0 : errno;
}

void tutti__connect_stop(tutti__links *links)
{
    for (int i = 0; i < links->n_used; i++)
        if (links->at[links->used[i]].connecting)
            drop(links, links->used[i]);
    if (links->acceptor) {
        tutti__acceptor_close(links->acceptor);
        tutti__listeners_close(&links->listeners);
    }
    while (links->data)
        tutti__early_data_drop(&links->data);
    free(links->acceptor);
    free(links->directory);
}
