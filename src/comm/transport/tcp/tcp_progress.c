/* tcp_progress.c -- moves what the schedule allows, over all channels; and how it fails.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/socket.h"
#include "comm/transport/tcp/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* VERDICT_MS: the control thread may be starved of CPU; only a connection that breaks alone takes so long. */
enum { VERDICT_MS = 5000, LAG_MS = 500, MOST_LOOK_MS = 2000 };

static const tutti__tcp_row *row_of(const tutti__tcp *tcp, const tutti__channel *c)
{
    return &tcp->rows[c->rank];
}

/* ---- Failure ------------------------------------------------------------------------------------------------------ */

bool tutti__tcp_await_verdict(const tutti__tcp *tcp, int rank)
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

tutti_status tutti__tcp_fail_lost(tutti__tcp *tcp, int rank)
{
    (void)tutti__tcp_await_verdict(tcp, rank);
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

static bool any_connects(const tutti__tcp *tcp)
{
    for (int i = 0; i < tcp->n_channels; i++)
        if (tcp->channels[i].connecting)
            return true;
    return false;
}

/* Of the peers for which it waits, those that do not answer a connection are missed first: others may wait for them too. */
tutti_status tutti__tcp_fail_late(tutti__tcp *tcp)
{
    const bool connects = any_connects(tcp);
    bool *missing = calloc((size_t)tcp->comm->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(tcp->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int i = 0; i < tcp->n_channels; i++) {
        const tutti__channel *c = &tcp->channels[i];

        missing[c->rank] = missing[c->rank] ||
                           (connects ? c->connecting : tutti__channel_events(c, row_of(tcp, c)));
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

/* Later if all its peers have begun the operation, since they may wait for one that has not, whose peers know best. */
double tutti__tcp_deadline(const tutti__tcp *tcp)
{
    const tutti__operation *op = tcp->schedule.op;
    double lag = (double)op->timeout_ms / 16;

    return op->deadline + (!all_are_heard(tcp) ? 0 : lag < LAG_MS ? lag : LAG_MS);
}

/* One of a later sequence comes from a rank that has completed ours; one before it was waiting in a call that this rank has completed. */
tutti_status tutti__tcp_check_other(tutti__tcp *tcp, int rank, const tutti__signature *theirs)
{
    tutti__signature heard = *theirs;

    if (tutti__op_table[heard.op < TUTTI__N_OPS ? heard.op : 0].uneven)
        heard.count = 0;
    return tutti__comm_check_signature(tcp->comm, &tcp->schedule.op->signature, rank, &heard);
}

/* Another call than ours may have other peers. */
tutti_status tutti__tcp_look_around(tutti__tcp *tcp)
{
    tcp->look_ms = 2 * tcp->look_ms < MOST_LOOK_MS ? 2 * tcp->look_ms : MOST_LOOK_MS;
    if (tcp->schedule.announce) {
        tutti_status (*announce)(void *) = tcp->schedule.announce;

        tcp->schedule.announce = NULL;
        TUTTI_TRY(announce(tcp->schedule.self));
    }
    return tcp->wire->look(tcp);
}

/* ---- Moving ------------------------------------------------------------------------------------------------------- */

static tutti_status pull(tutti__tcp *tcp, tutti__channel *c, bool *moved)
{
    TUTTI_TRY(tcp->wire->pull(tcp, c, moved));
    if (c->first && !c->checked && c->in.head == sizeof c->heard) {
        TUTTI_TRY(check_heard(tcp, c));
        c->checked = true;
    }
    return TUTTI_OK;
}

/* Moves everything that can move now. *left: something remains. */
static tutti_status move(tutti__tcp *tcp, bool *moved, bool *left)
{
    *moved = *left = false;
    if (tcp->wire->poll)
        TUTTI_TRY(tcp->wire->poll(tcp));
    for (int i = 0; i < tcp->n_channels; i++) {
        tutti__channel *c = &tcp->channels[i];
        bool connected;

        if (!tutti__channel_events(c, row_of(tcp, c)))
            continue;
        TUTTI_TRY(tcp->wire->connect(tcp, c, &connected));
        *left = *left || !connected;
        if (!connected)
            continue;
        TUTTI_TRY(tcp->wire->push(tcp, c, moved));
        TUTTI_TRY(pull(tcp, c, moved));
        *left = *left || tutti__channel_events(c, row_of(tcp, c));
    }
    return TUTTI_OK;
}

/* Waits until something has moved; *left: something remains. */
static tutti_status progress(tutti__tcp *tcp, bool *left)
{
    uint64_t idle_since = 0;

    for (;;) {
        uint64_t now;
        bool moved;

        TUTTI_TRY(move(tcp, &moved, left));
        if (!*left)
            return TUTTI_OK;
        if (tutti__comm_failed(tcp->comm))
            return tutti__comm_status(tcp->comm);
        now = tutti__now_ns();
        if ((double)now * 1e-6 >= tcp->schedule.op->deadline &&
            (double)now * 1e-6 >= tutti__tcp_deadline(tcp))
            return tutti__tcp_fail_late(tcp);
        if (moved)
            return TUTTI_OK;
        idle_since = idle_since ? idle_since : now;
        TUTTI_TRY(tcp->wire->idle(tcp, now - idle_since));
    }
}

tutti_status tutti__tcp_push(tutti__tcp *tcp)
{
    bool moved = false, connected;

    for (int i = 0; i < tcp->n_channels; i++) {
        TUTTI_TRY(tcp->wire->connect(tcp, &tcp->channels[i], &connected));
        if (connected)
            TUTTI_TRY(tcp->wire->push(tcp, &tcp->channels[i], &moved));
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
