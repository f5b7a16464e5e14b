/* sockets.c -- the wire of sockets, with one or more connections to a peer.   SPDX-License-Identifier: MIT
 *
 * Every socket is written and read as far as possible; if none moves, the thread polls the descriptors, for small
 * schedules after spinning a moment, since a wake-up would take longer than the rest. */
#include "comm/bootstrap/socket.h"
#include "comm/control/control.h"
#include "comm/transport/tcp/channel.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SPIN_BYTES = 256 << 10, SPIN_NS = 50000 };

static const tutti__tcp_row *row_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return &tcp->rows[c->rank];
}

/* ---- Calls of others ----------------------------------------------------------------------------------------------- */

/* Compares ours to the calls in which others wait for a connection from this rank. */
static tutti_status check_called(tutti__tcp *tcp)
{
    const tutti__signature *mine = &tcp->schedule.op->signature;
    tutti__signature other = *mine;
    int from = -1;
    bool any = false;

    if (!atomic_load(&tcp->any_called))
        return TUTTI_OK;
    pthread_mutex_lock(&tcp->lock);
    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__signature *call = &tcp->called[r];

        if (call->group == mine->group && call->sequence == mine->sequence &&
            !tutti__signature_equal(call, mine)) {
            other = *call;
            from = r;
        }
        if (call->sequence <= mine->sequence)
            call->group = 0;
        any = any || call->group != 0;
    }
    atomic_store(&tcp->any_called, any);
    pthread_mutex_unlock(&tcp->lock);
    return from < 0 ? TUTTI_OK : tutti__tcp_check_other(tcp, from, &other);
}

/* Tells those that have yet to connect in which call this rank waits, since theirs may be another, without this rank. */
static void call(const tutti__tcp *tcp)
{
    const tutti__signature *mine = &tcp->schedule.op->signature;
    const tutti__frame head = {.kind = TUTTI__FRAME_CALL, .bytes = sizeof *mine};

    for (int i = 0; i < tcp->n_channels; i++)
        if (tcp->channels[i].fd < 0 && tcp->channels[i].part == 0 && tcp->control)
            tutti__control_send(tcp->control, tcp->channels[i].rank, &head, mine);
}

/* Of ranks that are not in the schedule, looks at what call they have sent. */
static tutti_status look(tutti__tcp *tcp)
{
    const tutti__operation *op = tcp->schedule.op;

    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__signature heard;
        int *fd = &tcp->sockets[r];

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

/* The connection: 0, and channel->fd, -1 if the peer has yet to connect; or an errno, as tutti__control_connect_data. */
static int get_socket(tutti__tcp *tcp, tutti__channel *c)
{
    int *fd = &tcp->sockets[c->part * tcp->comm->size + c->rank], error = 0;

    if (*fd < 0 && tutti__control_connects(tcp->control, c->rank))
        error = tutti__control_connect_data(tcp->control, c->rank, 1 + c->part,
                                            tcp->schedule.op->deadline, fd);
    else if (*fd < 0)
        *fd = tutti__control_take_data(tcp->control, c->rank, 1 + c->part);
    c->fd = *fd;
    return error;
}

static tutti_status fail_connect(tutti__tcp *tcp, int rank, int error)
{
    char peer[128];

    if (error == ECONNRESET)
        return tutti__tcp_fail_lost(tcp, rank);
    if (error == ETIMEDOUT && tutti__now_ms() >= tcp->schedule.op->deadline)
        return tutti__tcp_fail_late(tcp);
    tutti__comm_peer_text(tcp->comm, rank, peer, sizeof peer);
    return tutti__comm_fail(tcp->comm, TUTTI_ERR_PEER, rank, "rank %d cannot connect to %s: %s",
                            tcp->comm->rank, peer,
                            error == EPROTO ? tutti_last_error() : strerror(error));
}

static tutti_status connect_channel(tutti__tcp *tcp, tutti__channel *c, bool *connected)
{
    /* first: a rank that leaves has connected before */
    bool left = c->fd < 0 && tutti__comm_has_left(tcp->comm, c->rank);
    int error = c->fd < 0 ? get_socket(tcp, c) : 0;

    *connected = c->fd >= 0;
    if (error)
        return fail_connect(tcp, c->rank, error);
    return *connected || !left ? TUTTI_OK : tutti__tcp_fail_lost(tcp, c->rank);
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

static tutti_status sleep_until_ready(tutti__tcp *tcp)
{
    nfds_t n = 0;
    uint64_t wakes;
    int limit = tutti__poll_ms(tutti__tcp_deadline(tcp));

    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];
        short events = tutti__channel_events(c, row_of(tcp, c));

        if (events)
            tcp->polls[n++] = (struct pollfd){c->fd, events, 0};
    }
    tcp->polls[n] = (struct pollfd){tcp->wake, POLLIN, 0};
    if (poll(tcp->polls, n + 1, limit >= 0 && limit < tcp->look_ms ? limit : tcp->look_ms) == 0)
        return tutti__tcp_look_around(tcp);
    if (tcp->polls[n].revents && read(tcp->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
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
    tutti__tcp *tcp = self;

    pthread_mutex_lock(&tcp->lock);
    tcp->called[rank] = *theirs;
    atomic_store(&tcp->any_called, true);
    pthread_mutex_unlock(&tcp->lock);
    tutti__tcp_wake(tcp);
}

static void close_sockets(tutti__tcp *tcp)
{
    for (int i = 0; tcp->sockets && i < tcp->n_sockets * tcp->comm->size; i++)
        if (tcp->sockets[i] >= 0)
            close(tcp->sockets[i]);
    free(tcp->sockets);
    free(tcp->polls);
    free(tcp->called);
    pthread_mutex_destroy(&tcp->lock);
    tutti__tcp_clear(tcp);
    free(tcp);
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
    size_t size = (size_t)comm->size, n = size * (size_t)n_sockets;

    TUTTI_TRY(tutti__tcp_init(tcp, &tutti__sockets, comm, n_sockets));
    tcp->sockets = malloc(n * sizeof *tcp->sockets);
    tcp->polls = calloc(n + 1, sizeof *tcp->polls);
    tcp->called = calloc(size, sizeof *tcp->called);
    for (size_t i = 0; i < n && tcp->sockets; i++)
        tcp->sockets[i] = -1;
    return tcp->sockets && tcp->polls && tcp->called
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks",
                             comm->size);
}

tutti_status tutti__tcp_open(tutti__tcp **tcp_p, tutti__comm *comm, struct tutti__control *control,
                             int n_sockets)
{
    tutti__tcp *tcp = tutti__alloc(sizeof *tcp);
    tutti_status status;

    *tcp_p = tcp;
    if (!tcp)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&tcp->lock, NULL);
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
