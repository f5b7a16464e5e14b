/* connect.c -- connections that are made when they are needed.   SPDX-License-Identifier: MIT
 *
 * The first frame to a rank without a connection makes the control thread connect to it; until then frames wait in the link's queue.
 * If both ends connect at once, the higher rank's connection stays: the lower one accepts it and gives up its own, the higher
 * one does not accept. A rank that no longer listens has left, or has died; of a death its neighbours tell in a moment, so a
 * rank that is still thought to be there then has left. */
#include "comm/control/control_state.h"

#include "comm/bootstrap/connector.h"
#include "comm/core/failure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* GRACE: in which a death is told. RETRY: to a process whose queue or table of descriptors is full. */
enum { GRACE_MS = 300, RETRY_MS = 2, LOOK_MS = 50, MOST_DATA = 65536 };

typedef struct tutti__connecting {
    tutti__connector connector;
    tutti__claim theirs;
    char who[96];
    double again_ms, deadline; /* again: when to try next; 0: it is being tried */
} tutti__connecting;

static void describe(tutti__connector_opts *opts, tutti__claim *theirs, char *who, size_t capacity,
                     const tutti__links *links, int at)
{
    snprintf(who, capacity, "rank %d of group \"%s\"", at, links->name);
    *theirs = tutti__group_claim(&links->secret, links->id, at, 0);
    opts->secret = &links->secret;
    opts->theirs = theirs;
    opts->who = who;
}

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
    link->over = link->deaf = true;
    link->refused_ms = tutti__now_ms();
    tutti__link_clear(links, at);
    pthread_cond_broadcast(&links->changed);
    pthread_mutex_unlock(&links->lock);
    atomic_fetch_add(&links->n_refused, 1);
}

static void give_up(tutti__links *links, int at)
{
    drop(links, at);
    tutti__link_hang_up(links, at);
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

/* By an acceptor that makes room, or a process that ends: which of them shows the next attempt, that the latter refuses. */
static bool was_dropped(const tutti__connector *c)
{
    return c->error == ECONNRESET || (!c->error && c->status == TUTTI_ERR_PEER);
}

static void fail(tutti__links *links, int at)
{
    tutti__connecting *connecting = links->at[at].connecting;
    const tutti__connector *c = &connecting->connector;
    const bool crossed = !c->error && c->handshake.next == TUTTI__AWAIT_VERDICT &&
                         c->handshake.answer[0] == TUTTI__CROSSED,
               full = c->error == EAGAIN || c->status == TUTTI_ERR_MEMORY;
    double now = tutti__now_ms();

    if (c->error == ECONNREFUSED) {
        be_refused(links, at);
    } else if ((crossed || full || was_dropped(c)) && now < connecting->deadline) {
        connecting->again_ms = now + (crossed ? LOOK_MS : RETRY_MS);
        tutti__connector_close(&connecting->connector);
        atomic_store(&links->at[at].state, TUTTI__LINK_WANTED);
    } else {
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "rank %d of group \"%s\" has no connection to rank %d: %s", links->rank,
                  links->name, at, tutti_last_error());
        give_up(links, at);
    }
}

void tutti__connect_advance(tutti__links *links, int at)
{
    tutti__connector *c = &links->at[at].connecting->connector;
    int fd;

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
    drop(links, at);
    if (tutti__link_opened(links, at, fd) != 0)
        tutti__link_hang_up(links, at);
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
            give_up(links, at);
            return;
        }
        connecting->deadline = tutti__now_ms() + links->connect_ms;
    }
    connecting->again_ms = 0;
    describe(&opts, &connecting->theirs, connecting->who, sizeof connecting->who, links, at);
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
    double now;

    if (atomic_load(&links->n_wanted) == 0 && atomic_load(&links->n_refused) == 0)
        return;
    now = tutti__now_ms();
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

int tutti__connect_wait(const tutti__links *links)
{
    double first = links->directory ? tutti__acceptor_deadline(links->acceptor) : 1e300;

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

static tutti__early_data **find_data(tutti__links *links, uint64_t group, int at, int channel)
{
    tutti__early_data **place = &links->data;

    while (*place &&
           ((*place)->group != group || (*place)->rank != at || (*place)->channel != channel))
        place = &(*place)->next;
    return place;
}

static char decide_on_data(tutti__links *links, const tutti__claim *claim)
{
    int at = (int)claim->rank - 1, n = 0;
    bool taken;

    pthread_mutex_lock(&links->lock);
    for (const tutti__early_data *e = links->data; e; e = e->next)
        n++;
    taken = *find_data(links, claim->group, at, (int)claim->channel) != NULL;
    pthread_mutex_unlock(&links->lock);
    return taken ? TUTTI__TAKEN
           : n < MOST_DATA && claim->channel <= TUTTI__MAX_SOCKETS && at > links->rank
               ? TUTTI__WELCOME
               : TUTTI__UNKNOWN;
}

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
        return decide_on_data(links, claim);
    if (claim->group != links->id)
        return TUTTI__UNKNOWN;
    state = atomic_load(&links->at[at].state);
    return state == TUTTI__LINK_OPEN || (state == TUTTI__LINK_CONNECTING && (int)at < links->rank)
               ? TUTTI__CROSSED
               : TUTTI__WELCOME;
}

static void keep_data(tutti__links *links, int fd, const tutti__claim *claim)
{
    tutti__early_data *early = malloc(sizeof *early);
    const tutti__control *c = links->controls;

    if (!early) {
        close(fd);
        return;
    }
    *early = (tutti__early_data){.group = claim->group,
                                 .rank = (int)claim->rank - 1,
                                 .channel = (int)claim->channel,
                                 .fd = fd};
    pthread_mutex_lock(&links->lock);
    early->next = links->data;
    links->data = early;
    while (c && c->comm->id != claim->group)
        c = c->next;
    if (c && c->data.came)
        c->data.came(c->data.self);
    pthread_mutex_unlock(&links->lock);
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    tutti__links *links = context;
    int at = (int)claim->rank - 1, state = atomic_load(&links->at[at].state);

    if (claim->channel > 0) {
        keep_data(links, fd, claim);
        return;
    }
    if (state != TUTTI__LINK_NONE)
        drop(links, at);
    if (tutti__link_opened(links, at, fd) != 0)
        tutti__link_hang_up(links, at);
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

/* ---- Data ------------------------------------------------------------------------------------------------------- */

bool tutti__control_connects(const tutti__control *control, int rank)
{
    return control->links->rank > control->members[rank].link;
}

/* One attempt. 0, EAGAIN to try again, or an errno. */
static int connect_once(tutti__control *control, const tutti__address *address,
                        const tutti__connector_opts *opts, int *fd_p)
{
    tutti__connector c;

    tutti__connector_begin(&c, address, opts);
    while (!tutti__connector_wait(&c, tutti__now_ms() + LOOK_MS))
        if (tutti__comm_failed(control->comm)) {
            tutti__connector_close(&c);
            return ECONNRESET;
        }
    if (c.state == TUTTI__CONNECTOR_OPEN) {
        *fd_p = tutti__connector_take(&c);
        return 0;
    }
    if (c.error == EAGAIN || c.status == TUTTI_ERR_MEMORY || was_dropped(&c))
        return EAGAIN;
    return c.error ? c.error : c.status == TUTTI_ERR_TIMEOUT ? ETIMEDOUT : EPROTO;
}

int tutti__control_connect_data(tutti__control *control, int rank, int channel, double deadline,
                                int *fd_p)
{
    const tutti__links *links = control->links;
    const int at = control->members[rank].link;
    const tutti__address address = tutti__address_unpack(&links->directory->places[at].data);
    tutti__claim theirs;
    char who[96];
    tutti__connector_opts opts = {.deadline = deadline};
    int error;

    describe(&opts, &theirs, who, sizeof who, links, at);
    opts.claim =
        tutti__group_claim(&links->secret, control->comm->id, links->rank, (uint32_t)channel);
    while ((error = connect_once(control, &address, &opts, fd_p)) == EAGAIN &&
           tutti__now_ms() < deadline && !tutti__comm_failed(control->comm))
        (void)tutti__sockets_poll((struct pollfd[1]){{0}}, 0, RETRY_MS);
    return error == ECONNREFUSED ? ECONNRESET : error;
}

int tutti__control_take_data(tutti__control *control, int rank, int channel)
{
    tutti__links *links = control->links;
    tutti__early_data **place;
    int fd = -1;

    pthread_mutex_lock(&links->lock);
    place = find_data(links, control->comm->id, control->members[rank].link, channel);
    if (*place) {
        fd = (*place)->fd;
        (*place)->fd = -1;
        tutti__early_data_drop(place);
    }
    pthread_mutex_unlock(&links->lock);
    return fd;
}

void tutti__control_on_data(tutti__control *control, const tutti__data_events *events)
{
    pthread_mutex_lock(&control->links->lock);
    control->data = events ? *events : (tutti__data_events){0};
    pthread_mutex_unlock(&control->links->lock);
}

void tutti__control_drop_data(tutti__control *control)
{
    tutti__links *links = control->links;

    for (tutti__early_data **place = &links->data; *place;)
        if ((*place)->group == control->comm->id)
            tutti__early_data_drop(place);
        else
            place = &(*place)->next;
}
