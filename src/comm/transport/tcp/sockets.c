/* sockets.c -- the wire of sockets, with one or more connections to a peer.   SPDX-License-Identifier: MIT
 *
 * Every socket is written and read as far as possible; if none moves, the thread polls the descriptors, for small
 * schedules after spinning a moment, since a wake-up would take longer than the rest. */
#include "comm/bootstrap/socket.h"
#include "comm/control/control.h"
#include "comm/transport/tcp/channel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* MOST_CONNECTING: at the same time. */
enum { SPIN_BYTES = 256 << 10, SPIN_NS = 50000, MOST_CONNECTING = 64 };

typedef struct socket_wire {
    tutti__tcp base;
    int *sockets;                        /* by part and rank; -1: not connected yet */
    tutti__data_connecting **connecting; /* instead of a socket */
    int n_connecting;
    struct pollfd *polls;
    /* Of ranks that wait for a connection from this one: their calls, until this rank has come to them. */
    pthread_mutex_t lock;
    tutti__signature *called; /* [rank]; group 0: none. Under the lock */
    _Atomic bool any_called;
} socket_wire;

static socket_wire *wire_of(tutti__tcp *tcp)
{
    return (socket_wire *)tcp;
}

static const tutti__tcp_row *row_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return &tcp->rows[c->rank];
}

/* ---- Calls of others ----------------------------------------------------------------------------------------------- */

/* Compares ours to the calls in which others wait for a connection from this rank. */
static tutti_status check_called(tutti__tcp *tcp)
{
    socket_wire *w = wire_of(tcp);
    const tutti__signature *mine = &tcp->schedule.op->signature;
    tutti__signature other = *mine;
    int from = -1;
    bool any = false;

    if (!atomic_load(&w->any_called))
        return TUTTI_OK;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__signature *call = &w->called[r];

        if (call->group == mine->group && call->sequence == mine->sequence &&
            !tutti__signature_equal(call, mine)) {
            other = *call;
            from = r;
        }
        if (call->sequence <= mine->sequence)
            call->group = 0;
        any = any || call->group != 0;
    }
    atomic_store(&w->any_called, any);
    pthread_mutex_unlock(&w->lock);
    return from < 0 ? TUTTI_OK : tutti__tcp_check_other(tcp, from, &other);
}

/* Tells those that have yet to connect in which call this rank waits, since theirs may be another, without this rank. */
static void call(const tutti__tcp *tcp)
{
    const tutti__signature *mine = &tcp->schedule.op->signature;
    const tutti__frame head = {.kind = TUTTI__FRAME_CALL, .bytes = sizeof *mine};

    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];

        if (c->fd < 0 && c->part == 0 && tcp->control &&
            !tutti__control_connects(tcp->control, c->rank))
            tutti__control_send(tcp->control, c->rank, &head, mine);
    }
}

/* Of ranks that are not in the schedule, looks at what call they have sent. */
static tutti_status look(tutti__tcp *tcp)
{
    socket_wire *w = wire_of(tcp);
    const tutti__operation *op = tcp->schedule.op;

    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__signature heard;
        int *fd = &w->sockets[r];

        if (*fd < 0 && tcp->control && r != tcp->comm->rank &&
            !tutti__control_connects(tcp->control, r))
            *fd = tutti__control_take_data(tcp->control, r, 1);
        if (*fd < 0 || tcp->rows[r].channel > 0 ||
            recv(*fd, &heard, sizeof heard, MSG_PEEK | MSG_DONTWAIT) != sizeof heard ||
            heard.group != op->signature.group || heard.sequence > op->signature.sequence)
            continue;
        TUTTI_TRY(tutti__tcp_check_other(tcp, r, &heard));
    }
    call(tcp);
    return TUTTI_OK;
}

/* ---- Connecting --------------------------------------------------------------------------------------------------- */

static size_t index_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return (size_t)c->part * (size_t)tcp->comm->size + (size_t)c->rank;
}

/* NULL: it is connected, the peer has yet to connect, or too many are being made. */
static tutti__data_connecting *connecting_of(tutti__tcp *tcp, const tutti__channel *c)
{
    return wire_of(tcp)->connecting[index_of(tcp, c)];
}

/* Begins it, if it is not being made, and goes on with it. */
static int connect_on(tutti__tcp *tcp, const tutti__channel *c, int *fd)
{
    socket_wire *w = wire_of(tcp);
    tutti__data_connecting **connecting = &w->connecting[index_of(tcp, c)];
    int error;

    if (!*connecting && w->n_connecting == MOST_CONNECTING)
        return 0;
    if (!*connecting) {
        *connecting =
            tutti__data_begin(tcp->control, c->rank, 1 + c->part, tcp->schedule.op->deadline);
        if (!*connecting)
            return ENOMEM;
        w->n_connecting++;
    }
    error = tutti__data_advance(*connecting, fd);
    if (error)
        return error == EINPROGRESS ? 0 : error; /* close_sockets drops it */
    tutti__data_drop(*connecting);
    *connecting = NULL;
    w->n_connecting--;
    return 0;
}

/* The connection: 0, and channel->fd, -1 if it is being made; or an errno, as tutti__data_advance. */
static int get_socket(tutti__tcp *tcp, tutti__channel *c)
{
    socket_wire *w = wire_of(tcp);
    int *fd = &w->sockets[index_of(tcp, c)], error = 0;

    if (*fd < 0 && tutti__control_connects(tcp->control, c->rank))
        error = connect_on(tcp, c, fd);
    else if (*fd < 0)
        *fd = tutti__control_take_data(tcp->control, c->rank, 1 + c->part);
    c->fd = *fd;
    c->connecting = connecting_of(tcp, c) != NULL;
    return error;
}

static tutti_status fail_connect(tutti__tcp *tcp, const tutti__channel *c, int error)
{
    const tutti__address at = tutti__control_data_address(tcp->control, c->rank);
    char peer[128];

    if (error == ECONNREFUSED && tutti__tcp_await_verdict(tcp, c->rank))
        return tutti__comm_fail_lost(tcp->comm, c->rank);
    if (error == ETIME)
        return tutti__tcp_fail_late(tcp);
    if (error != EPROTO)
        return tutti__fail_connect(tcp->comm, c->rank, &at, error);
    tutti__comm_peer_text(tcp->comm, c->rank, peer, sizeof peer);
    return tutti__comm_fail(
        tcp->comm, tutti__last_status() == TUTTI_ERR_MEMORY ? TUTTI_ERR_MEMORY : TUTTI_ERR_PEER,
        c->rank, "rank %d cannot connect to %s: %s", tcp->comm->rank, peer, tutti_last_error());
}

static tutti_status connect_channel(tutti__tcp *tcp, tutti__channel *c, bool *connected)
{
    socket_wire *w = wire_of(tcp);
    bool left;
    int error = 0;

    c->fd = c->fd < 0 ? w->sockets[index_of(tcp, c)] : c->fd;
    *connected = c->fd >= 0;
    if (*connected || c->pending)
        return TUTTI_OK;
    /* first: a rank that leaves has connected before */
    left = tutti__comm_has_left(tcp->comm, c->rank);
    if (!left || connecting_of(tcp, c) || !tutti__control_connects(tcp->control, c->rank))
        error = get_socket(tcp, c);
    *connected = c->fd >= 0;
    if (error)
        return fail_connect(tcp, c, error);
    return *connected || !left || c->connecting ? TUTTI_OK : tutti__tcp_fail_lost(tcp, c->rank);
}

/* ---- Moving ------------------------------------------------------------------------------------------------------- */

static tutti_status push(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    int error = tutti__channel_push(c, row_of(tcp, c), moved);

    return error == 0 || error == EAGAIN ? TUTTI_OK : tutti__tcp_fail_lost(tcp, c->rank);
}

/* What came before the connection's end is still taken: it may be another call than ours. */
static tutti_status pull(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    int error = tutti__channel_pull(c, row_of(tcp, c), moved);

    if (error == 0 || error == EAGAIN || (c->first && !c->checked && c->in.head == sizeof c->heard))
        return TUTTI_OK;
    return tutti__tcp_fail_lost(tcp, c->rank);
}

/* What to wait for; *next: until when at the latest. */
static struct pollfd poll_of(tutti__tcp *tcp, const tutti__channel *c, short events, double *next)
{
    const tutti__data_connecting *connecting = c->fd < 0 ? connecting_of(tcp, c) : NULL;
    struct pollfd p = {c->fd, events, 0};

    if (!connecting)
        return p;
    p.fd = tutti__data_fd(connecting, &p.events);
    *next = tutti__data_next(connecting) < *next ? tutti__data_next(connecting) : *next;
    return p;
}

/* Of many connections that are being made, those that are not ready need not be looked at. */
static void note_pending(tutti__tcp *tcp)
{
    socket_wire *w = wire_of(tcp);
    const double now = w->n_connecting > 0 ? tutti__now_ms() : 0;
    nfds_t n = 0;

    for (int i = 0; i < tcp->n_channels && w->n_connecting > 0; i++) {
        tutti__channel *c = &tcp->channels[i];
        const tutti__data_connecting *connecting;

        if (!tutti__channel_events(c, row_of(tcp, c)))
            continue;
        connecting = c->fd < 0 ? connecting_of(tcp, c) : NULL;
        c->pending = connecting && !w->polls[n].revents && now < tutti__data_next(connecting);
        n++;
    }
}

static tutti_status sleep_until_ready(tutti__tcp *tcp)
{
    socket_wire *w = wire_of(tcp);
    const double look = tutti__now_ms() + tcp->look_ms;
    double next = tutti__tcp_deadline(tcp);
    nfds_t n = 0;
    uint64_t wakes;
    int ready;

    for (int i = 0; i < tcp->n_channels; i++) {
        tutti__channel *c = &tcp->channels[i];
        short events = tutti__channel_events(c, row_of(tcp, c));

        c->pending = false;
        if (events)
            w->polls[n++] = poll_of(tcp, c, events, &next);
    }
    w->polls[n] = (struct pollfd){tcp->wake, POLLIN, 0};
    ready = poll(w->polls, n + 1, tutti__poll_ms(look < next ? look : next));
    note_pending(tcp);
    if (ready == 0)
        return tutti__now_ms() >= look ? tutti__tcp_look_around(tcp) : TUTTI_OK;
    if (w->polls[n].revents && read(tcp->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_INTERNAL, tcp->comm->rank, "eventfd: %s",
                                strerror(errno));
    return TUTTI_OK;
}

static tutti_status idle(tutti__tcp *tcp, uint64_t idle_ns)
{
    TUTTI_TRY(check_called(tcp));
    if (!tcp->spin || tcp->schedule.bytes > SPIN_BYTES || idle_ns >= SPIN_NS)
        return sleep_until_ready(tcp);
    sched_yield(); /* the peer may wait for this core */
    return TUTTI_OK;
}

/* ---- Init, teardown ----------------------------------------------------------------------------------------------- */

static void data_came(void *self)
{
    tutti__tcp_wake(self);
}

static void called(void *self, int rank, const tutti__signature *theirs)
{
    socket_wire *w = wire_of(self);

    pthread_mutex_lock(&w->lock);
    w->called[rank] = *theirs;
    atomic_store(&w->any_called, true);
    pthread_mutex_unlock(&w->lock);
    tutti__tcp_wake(self);
}

static void close_sockets(tutti__tcp *tcp)
{
    socket_wire *w = wire_of(tcp);

    for (int i = 0; w->sockets && i < tcp->n_sockets * tcp->comm->size; i++)
        if (w->sockets[i] >= 0)
            close(w->sockets[i]);
    for (int i = 0; w->connecting && i < tcp->n_sockets * tcp->comm->size; i++)
        tutti__data_drop(w->connecting[i]);
    free(w->sockets);
    free(w->connecting);
    free(w->polls);
    free(w->called);
    pthread_mutex_destroy(&w->lock);
    tutti__tcp_clear(tcp);
    free(w);
}

const tutti__wire_ops tutti__sockets = {.name = "tcp",
                                        .with_shared_memory = "shared memory + tcp",
                                        .connect = connect_channel,
                                        .push = push,
                                        .pull = pull,
                                        .idle = idle,
                                        .look = look,
                                        .close = close_sockets};

static tutti_status make_sockets(tutti__tcp *tcp, tutti__comm *comm, int n_sockets)
{
    socket_wire *w = wire_of(tcp);
    size_t size = (size_t)comm->size, n = size * (size_t)n_sockets;

    TUTTI_TRY(tutti__tcp_init(tcp, &tutti__sockets, comm, n_sockets));
    w->sockets = malloc(n * sizeof *w->sockets);
    w->connecting = calloc(n, sizeof *w->connecting);
    w->polls = calloc(n + 1, sizeof *w->polls);
    w->called = calloc(size, sizeof *w->called);
    for (size_t i = 0; i < n && w->sockets; i++)
        w->sockets[i] = -1;
    return w->sockets && w->connecting && w->polls && w->called
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks",
                             comm->size);
}

tutti_status tutti__tcp_open(tutti__tcp **tcp_p, tutti__comm *comm, struct tutti__control *control,
                             int n_sockets)
{
    socket_wire *w = tutti__alloc(sizeof *w);
    tutti__tcp *tcp = w ? &w->base : NULL;
    tutti_status status;

    *tcp_p = tcp;
    if (!tcp)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&w->lock, NULL);
    status = make_sockets(tcp, comm, n_sockets);
    if (status != TUTTI_OK) {
        close_sockets(tcp);
        *tcp_p = NULL;
        return status;
    }
    tcp->control = control;
    if (control)
        tutti__control_on_data(control, &(tutti__data_events){data_came, called, tcp});
    return TUTTI_OK;
}

void tutti__tcp_give_sockets(tutti__tcp *tcp, const int *sockets)
{
    memcpy(wire_of(tcp)->sockets, sockets,
           (size_t)tcp->n_sockets * (size_t)tcp->comm->size * sizeof *sockets);
}
