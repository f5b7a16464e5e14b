/* tcp_progress.c -- moves what the schedule allows, over all connections.   SPDX-License-Identifier: MIT
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

/* VERDICT_MS: the control thread may be starved of CPU; only a connection that breaks alone takes so long. */
enum { VERDICT_MS = 5000, SPIN_BYTES = 256 << 10, SPIN_US = 50, LAG_MS = 500, MOST_LOOK_MS = 2000 };

static const tutti__tcp_row *row_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return &tcp->rows[c->rank];
}

/* ---- Failure ------------------------------------------------------------------------------------------------------ */

/* A connection is closed, or refused. This rank learns in a moment whether the peer died or left: whether it has. */
static bool await_verdict(const tutti__tcp *tcp, int rank)
{
    double deadline = tutti__now_ms() + VERDICT_MS;

    while (!tutti__comm_failed(tcp->comm) && !tutti__comm_has_left(tcp->comm, rank) &&
           tutti__now_ms() < deadline) {
        uint64_t wakes;

        poll(&(struct pollfd){tcp->wake, POLLIN, 0}, 1, tutti__poll_ms(deadline));
        if (read(tcp->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
            break;
    }
    return tutti__comm_failed(tcp->comm) || tutti__comm_has_left(tcp->comm, rank);
}

static tutti_status lost(tutti__tcp *tcp, int rank)
{
    (void)await_verdict(tcp, rank);
    return tutti__comm_fail_lost(tcp->comm, rank);
}

/* Whether the peer has begun the operation. */
static bool is_heard(const tutti__channel *c)
{
    return !c->first || c->checked || c->part > 0;
}

static bool all_are_heard(const tutti__tcp *tcp)
{
    for (int i = 0; i < tcp->n_channels; i++)
        if (!is_heard(&tcp->channels[i]))
            return false;
    return true;
}

/* Of the peers for which it waits, those that do not answer a connection are missed first: others may wait for them too. */
static tutti_status late(tutti__tcp *tcp)
{
    bool *missing = calloc((size_t)tcp->comm->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];

        missing[c->rank] =
            missing[c->rank] || (tcp->n_connecting > 0 ? tutti__tcp_connecting(tcp, c) != NULL
                                                       : tutti__channel_events(c, row_of(tcp, c)));
    }
    status = tutti__comm_fail_late(tcp->comm, tcp->schedule.op, missing);
    free(missing);
    return status;
}

/* Checks that the peer's call is ours, and that it sends what this rank expects. */
static tutti_status check_heard(tutti__tcp *tcp, const tutti__channel *c)
{
    const tutti__operation *op = tcp->schedule.op;
    const tutti__tcp_row *row = row_of(tcp, c);
    tutti__signature heard = c->heard;
    size_t expected = row->n_in > 0 ? row->in[0].iov_len : 0;

    if (!tutti__op_traits_of(op)->uneven || heard.op != op->signature.op)
        return tutti__comm_check_signature(tcp->comm, &op->signature, c->rank, &heard);
    heard.count = 0;
    TUTTI_TRY(tutti__comm_check_signature(tcp->comm, &op->signature, c->rank, &heard));
    return tutti__comm_check_sent(tcp->comm, &op->signature, c->rank, tcp->comm->rank,
                                  (size_t)c->heard.count,
                                  expected / tutti_dtype_size((tutti_dtype)op->signature.dtype));
}

/* When it gives up: later if all its peers have begun the operation, since they may wait for one that has not, whose peers know best. */
static double deadline_of(const tutti__tcp *tcp)
{
    const tutti__operation *op = tcp->schedule.op;
    double lag = (double)op->timeout_ms / 16;

    return op->deadline + (!all_are_heard(tcp) ? 0 : lag < LAG_MS ? lag : LAG_MS);
}

/* One of a later sequence comes from a rank that has completed ours; one before it was waiting in a call that this rank has completed. */
static tutti_status check_other(tutti__tcp *tcp, int rank, const tutti__signature *theirs)
{
    tutti__signature heard = *theirs;

    if (tutti__op_table[heard.op < TUTTI__N_OPS ? heard.op : 0].uneven)
        heard.count = 0;
    return tutti__comm_check_signature(tcp->comm, &tcp->schedule.op->signature, rank, &heard);
}

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
    return from < 0 ? TUTTI_OK : check_other(tcp, from, &other);
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

/* Nothing has moved for a while. Another call than ours may have other peers: of ranks that are not in the schedule, looks at what call they
 * have sent. */
static tutti_status look_around(tutti__tcp *tcp)
{
    const tutti__operation *op = tcp->schedule.op;

    tcp->look_ms = 2 * tcp->look_ms < MOST_LOOK_MS ? 2 * tcp->look_ms : MOST_LOOK_MS;
    if (tcp->schedule.announce) {
        tutti_status (*announce)(void *) = tcp->schedule.announce;

        tcp->schedule.announce = NULL;
        TUTTI_TRY(announce(tcp->schedule.self));
    }
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
        TUTTI_TRY(check_other(tcp, r, &heard));
    }
    call(tcp);
    return TUTTI_OK;
}

/* ---- Connecting --------------------------------------------------------------------------------------------------- */

static tutti_status fail_connect(tutti__tcp *tcp, const tutti__channel *c, int error)
{
    const tutti__address at = tutti__control_data_address(tcp->control, c->rank);
    char peer[128];

    if (error == ECONNREFUSED && await_verdict(tcp, c->rank))
        return tutti__comm_fail_lost(tcp->comm, c->rank);
    if (error == ETIME)
        return late(tcp);
    if (error != EPROTO)
        return tutti__fail_connect(tcp->comm, c->rank, &at, error);
    tutti__comm_peer_text(tcp->comm, c->rank, peer, sizeof peer);
    return tutti__comm_fail(
        tcp->comm, tutti__last_status() == TUTTI_ERR_MEMORY ? TUTTI_ERR_MEMORY : TUTTI_ERR_PEER,
        c->rank, "rank %d cannot connect to %s: %s", tcp->comm->rank, peer, tutti_last_error());
}

/* Whether it has its connection; otherwise it is being made. */
static tutti_status connect_channel(tutti__tcp *tcp, tutti__channel *c, bool *connected)
{
    /* first: a rank that leaves has connected before */
    const bool left = c->fd < 0 && tutti__comm_has_left(tcp->comm, c->rank);
    int error = 0;

    *connected = c->fd >= 0;
    if (*connected || c->pending)
        return TUTTI_OK;
    if (!left || tutti__tcp_connecting(tcp, c) || !tutti__control_connects(tcp->control, c->rank))
        error = tutti__tcp_connect(tcp, c);
    *connected = c->fd >= 0;
    if (error)
        return fail_connect(tcp, c, error);
    return *connected || !left || tutti__tcp_connecting(tcp, c) ? TUTTI_OK : lost(tcp, c->rank);
}

/* ---- Moving ------------------------------------------------------------------------------------------------------- */

static tutti_status push(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    int error = tutti__channel_push(c, row_of(tcp, c), moved);

    return error == 0 || error == EAGAIN ? TUTTI_OK : lost(tcp, c->rank);
}

static tutti_status pull(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    int error = tutti__channel_pull(c, row_of(tcp, c), moved);

    if (c->first && !c->checked && c->in.head == sizeof c->heard) {
        TUTTI_TRY(check_heard(tcp, c));
        c->checked = true;
    }
    return error == 0 || error == EAGAIN ? TUTTI_OK : lost(tcp, c->rank);
}

/* Moves everything that can move now. *left: something remains. */
static tutti_status move(tutti__tcp *tcp, bool *moved, bool *left)
{
    *moved = *left = false;
    for (int i = 0; i < tcp->n_channels; i++) {
        tutti__channel *c = &tcp->channels[i];
        bool connected;

        if (!tutti__channel_events(c, row_of(tcp, c)))
            continue;
        TUTTI_TRY(connect_channel(tcp, c, &connected));
        *left = *left || !connected;
        if (!connected)
            continue;
        TUTTI_TRY(push(tcp, c, moved));
        TUTTI_TRY(pull(tcp, c, moved));
        *left = *left || tutti__channel_events(c, row_of(tcp, c));
    }
    return TUTTI_OK;
}

/* What to wait for; *next: until when at the latest. */
static struct pollfd poll_of(const tutti__tcp *tcp, const tutti__channel *c, short events,
                             double *next)
{
    const struct tutti__data_connecting *connecting =
        c->fd < 0 ? tutti__tcp_connecting(tcp, c) : NULL;
    struct pollfd p = {c->fd, events, 0};

    if (!connecting)
        return p;
    p.fd = tutti__data_fd(connecting, &p.events);
    *next = tutti__data_next(connecting) < *next ? tutti__data_next(connecting) : *next;
    return p;
}

/* Of many connections that are being made, those that are not ready need not be looked at. */
static void note_pending(const tutti__tcp *tcp)
{
    const double now = tcp->n_connecting > 0 ? tutti__now_ms() : 0;
    nfds_t n = 0;

    for (int i = 0; i < tcp->n_channels && tcp->n_connecting > 0; i++) {
        tutti__channel *c = &tcp->channels[i];
        const struct tutti__data_connecting *connecting;

        if (!tutti__channel_events(c, row_of(tcp, c)))
            continue;
        connecting = c->fd < 0 ? tutti__tcp_connecting(tcp, c) : NULL;
        c->pending = connecting && !tcp->polls[n].revents && now < tutti__data_next(connecting);
        n++;
    }
}

static tutti_status sleep_until_ready(tutti__tcp *tcp)
{
    const double look = tutti__now_ms() + tcp->look_ms;
    double next = deadline_of(tcp);
    nfds_t n = 0;
    uint64_t wakes;
    int ready;

    for (int i = 0; i < tcp->n_channels; i++) {
        tutti__channel *c = &tcp->channels[i];
        short events = tutti__channel_events(c, row_of(tcp, c));

        c->pending = false;
        if (events)
            tcp->polls[n++] = poll_of(tcp, c, events, &next);
    }
    tcp->polls[n] = (struct pollfd){tcp->wake, POLLIN, 0};
    ready = poll(tcp->polls, n + 1, tutti__poll_ms(look < next ? look : next));
    note_pending(tcp);
    if (ready == 0)
        return tutti__now_ms() >= look ? look_around(tcp) : TUTTI_OK;
    if (tcp->polls[n].revents && read(tcp->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_INTERNAL, tcp->comm->rank, "eventfd: %s",
                                strerror(errno));
    return TUTTI_OK;
}

/* Waits until something has moved; *left: something remains. */
static tutti_status progress(tutti__tcp *tcp, bool *left)
{
    uint64_t patience =
                 tcp->spin && tcp->schedule.bytes <= SPIN_BYTES ? (uint64_t)SPIN_US * 1000 : 0,
             idle_since = 0;

    for (;;) {
        bool moved;

        TUTTI_TRY(move(tcp, &moved, left));
        if (!*left)
            return TUTTI_OK;
        TUTTI_TRY(check_called(tcp));
        if (tutti__comm_failed(tcp->comm))
            return tutti__comm_status(tcp->comm);
        if (tutti__now_ms() >= tcp->schedule.op->deadline && tutti__now_ms() >= deadline_of(tcp))
            return late(tcp);
        if (moved)
            return TUTTI_OK;
        if (patience > 0) {
            uint64_t now = tutti__now_ns();

            idle_since = idle_since ? idle_since : now;
            if (now - idle_since < patience) {
                sched_yield(); /* the peer may wait for this core */
                continue;
            }
        }
        TUTTI_TRY(sleep_until_ready(tcp));
    }
}

tutti_status tutti__tcp_push(tutti__tcp *tcp)
{
    bool moved = false, connected;

    for (int i = 0; i < tcp->n_channels; i++) {
        TUTTI_TRY(connect_channel(tcp, &tcp->channels[i], &connected));
        if (connected)
            TUTTI_TRY(push(tcp, &tcp->channels[i], &moved));
    }
    return TUTTI_OK;
}

tutti_status tutti__tcp_wait(tutti__tcp *tcp)
{
    bool left;

    return progress(tcp, &left);
}

tutti_status tutti__tcp_finish(tutti__tcp *tcp)
{
    bool left = true;

    while (left)
        TUTTI_TRY(progress(tcp, &left));
    return TUTTI_OK;
}
