/* wire.c -- sockets that give and take as fast as they can.   SPDX-License-Identifier: MIT
 *
 * A lane is what passes over one socket in one flow, a row of messages each way. The flow runs while any lane has
 * something left: every socket is given what may go and asked for what may come; if none moves, the thread polls, after
 * trying again for a moment where little is on its way and a wake-up would take longer than the rest. */
#include "comm/transport/tcp/wire.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    VERDICT_MS = 500,
    SPIN_BYTES = 256 << 10,
    SPIN_US = 50,
    AT_ONCE = 8,
    MANY_BYTES = 4 << 20,
    PAGE = 4096
};

/* One direction. */
typedef struct direction {
    size_t head; /* bytes of the fingerprint done */
    size_t step; /* messages done */
    size_t done; /* bytes of the next */
} direction;

typedef struct channel {
    int fd, i, channel; /* to ranks[i] of the flow */
    direction out, in;
    bool checked;                 /* the heard fingerprint is ours */
    tutti__signature said, heard; /* of an uneven operation they count what this lane carries */
} channel;

struct tutti__wire {
    int *sockets, channels;
    int wake; /* rung when a peer has failed or left */
    bool spin;
    channel *channels_; /* of the flow that runs: channel by channel */
    int n_channels, used_channels;
    struct pollfd *polls;
    int *everyone;
    tutti__room room;
    char *scratch;
    size_t scratch_bytes;
};

/* ---- A lane --------------------------------------------------------------------------------------------------- */

/* The part of a message that one of the channels carries. */
static struct iovec part_of(struct iovec whole, int channel, int channels)
{
    size_t part = (whole.iov_len / (size_t)channels + PAGE) / PAGE * PAGE,
           begin = (size_t)channel * part;

    if (channels == 1)
        return whole;
    begin = begin < whole.iov_len ? begin : whole.iov_len;
    return (struct iovec){
        (char *)whole.iov_base + begin,
        whole.iov_len - begin < part || channel == channels - 1 ? whole.iov_len - begin : part};
}

typedef bool message_of(tutti__schedule *schedule, int i, size_t step, struct iovec *io);

/* What may move now: up to AT_ONCE pieces. Empty messages at the front are done by looking at them. */
static int gather(const tutti__wire *wire, tutti__schedule *schedule, const channel *l,
                  direction *w, char *head, message_of *message, struct iovec *io)
{
    int n = 0;
    size_t step = w->step, skip = w->done;

    if (schedule->heads && w->head < sizeof schedule->op->signature)
        io[n++] = (struct iovec){head + w->head, sizeof schedule->op->signature - w->head};
    for (; n < AT_ONCE && step < schedule->n_steps; step++, skip = 0) {
        if (!message(schedule, l->i, step, &io[n]))
            break;
        io[n] = part_of(io[n], l->channel, wire->used_channels);
        io[n].iov_base = (char *)io[n].iov_base + skip;
        io[n].iov_len -= skip;
        if (io[n].iov_len > 0)
            n++;
        else if (n == 0)
            w->step = step + 1;
    }
    return n;
}

/* Notes that `bytes` of the gathered pieces have moved. */
static void advance(const tutti__wire *wire, tutti__schedule *schedule, const channel *l,
                    direction *w, message_of *message, size_t bytes)
{
    struct iovec io;

    if (schedule->heads && w->head < sizeof schedule->op->signature) {
        size_t left = sizeof schedule->op->signature - w->head, n = bytes < left ? bytes : left;

        w->head += n;
        bytes -= n;
    }
    while (bytes > 0 && message(schedule, l->i, w->step, &io)) {
        size_t left = part_of(io, l->channel, wire->used_channels).iov_len - w->done;

        if (bytes < left) {
            w->done += bytes;
            return;
        }
        bytes -= left;
        w->done = 0;
        w->step++;
    }
}

static size_t total(const struct iovec *io, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += io[i].iov_len;
    return bytes;
}

/* Both return 0 or an errno; EAGAIN: the socket has, or takes, no more now. *moved becomes true if anything moved. */
static int push(const tutti__wire *wire, tutti__schedule *schedule, channel *l, bool *moved)
{
    struct iovec io[AT_ONCE];
    struct msghdr message = {.msg_iov = io};
    int n;

    while ((n = gather(wire, schedule, l, &l->out, (char *)&l->said, schedule->out, io)) > 0) {
        size_t bytes = total(io, n);
        ssize_t sent;

        message.msg_iovlen = (size_t)n;
        sent = sendmsg(l->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno;
        *moved = true;
        advance(wire, schedule, l, &l->out, schedule->out, (size_t)sent);
        if ((size_t)sent < bytes)
            return EAGAIN;
    }
    return 0;
}

static int pull(const tutti__wire *wire, tutti__schedule *schedule, channel *l, bool *moved)
{
    struct iovec io[AT_ONCE];
    int n;

    while ((n = gather(wire, schedule, l, &l->in, (char *)&l->heard, schedule->in, io)) > 0) {
        size_t bytes = total(io, n);
        ssize_t got = readv(l->fd, io, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : ECONNRESET;
        *moved = true;
        advance(wire, schedule, l, &l->in, schedule->in, (size_t)got);
        if ((size_t)got < bytes)
            return EAGAIN;
    }
    return 0;
}

static bool direction_done(const tutti__schedule *schedule, const direction *w)
{
    return w->step == schedule->n_steps &&
           (!schedule->heads || w->head == sizeof schedule->op->signature);
}

static bool channel_done(const tutti__schedule *schedule, const channel *l)
{
    return direction_done(schedule, &l->out) && direction_done(schedule, &l->in);
}

/* ---- A flow --------------------------------------------------------------------------------------------------- */

/* A connection is gone. Whether the peer died or left, this rank hears a moment later. */
static tutti_status lost(tutti_group *group, int rank)
{
    const tutti__wire *wire = group->wire;
    double deadline = tutti__now_ms() + VERDICT_MS;

    while (!tutti__comm_failed(&group->comm) && !tutti__comm_has_left(&group->comm, rank) &&
           tutti__now_ms() < deadline) {
        uint64_t rings;

        poll(&(struct pollfd){wire->wake, POLLIN, 0}, 1, tutti__poll_ms(deadline));
        if (read(wire->wake, &rings, sizeof rings) < 0 && errno != EAGAIN)
            break;
    }
    return tutti__comm_fail_lost(&group->comm, rank);
}

static tutti_status late(tutti_group *group, const tutti__schedule *schedule)
{
    const tutti__wire *wire = group->wire;
    bool *missing = calloc((size_t)group->comm.size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(&group->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int i = 0; i < wire->n_channels; i++)
        if (!channel_done(schedule, &wire->channels_[i]))
            missing[schedule->ranks[wire->channels_[i].i]] = true;
    status = tutti__comm_fail_late(&group->comm, schedule->op, missing);
    free(missing);
    return status;
}

/* Elements of a message. */
static size_t count_of(tutti__schedule *schedule, int i, message_of *message)
{
    struct iovec io = {NULL, 0};

    return message(schedule, i, 0, &io)
               ? io.iov_len / tutti_dtype_size((tutti_dtype)schedule->op->signature.dtype)
               : 0;
}

/* The peer's call is ours, and what it sends is what this rank expects. */
static tutti_status check_heard(tutti_group *group, tutti__schedule *schedule, const channel *l)
{
    const tutti__op *op = schedule->op;
    tutti__signature heard = l->heard;
    int from = schedule->ranks[l->i];

    if (!tutti__op_traits_of(op)->uneven || heard.op != op->signature.op)
        return tutti__comm_check_signature(&group->comm, &op->signature, from, &heard);
    heard.count = 0;
    TUTTI_TRY(tutti__comm_check_signature(&group->comm, &op->signature, from, &heard));
    return tutti__comm_check_sent(&group->comm, &op->signature, from, group->comm.rank,
                                  (size_t)l->heard.count, count_of(schedule, l->i, schedule->in));
}

static tutti_status move(tutti_group *group, tutti__schedule *schedule, channel *l, bool *moved)
{
    int error = push(group->wire, schedule, l, moved);

    if (error == 0 || error == EAGAIN)
        error = pull(group->wire, schedule, l, moved);
    if (schedule->heads && !l->checked && l->in.head == sizeof l->heard) {
        TUTTI_TRY(check_heard(group, schedule, l));
        l->checked = true;
    }
    return error == 0 || error == EAGAIN ? TUTTI_OK : lost(group, schedule->ranks[l->i]);
}

static bool awaits(const tutti__wire *wire, tutti__schedule *schedule, channel *l, direction *w,
                   message_of *message)
{
    struct iovec io[AT_ONCE];

    return gather(wire, schedule, l, w, NULL, message, io) > 0;
}

static tutti_status sleep_until_ready(tutti_group *group, tutti__schedule *schedule)
{
    const tutti__wire *wire = group->wire;
    nfds_t n = 0;
    uint64_t rings;

    for (int i = 0; i < wire->n_channels; i++) {
        channel *l = &wire->channels_[i];
        short events = (short)((awaits(wire, schedule, l, &l->out, schedule->out) ? POLLOUT : 0) |
                               (awaits(wire, schedule, l, &l->in, schedule->in) ? POLLIN : 0));

        if (events)
            wire->polls[n++] = (struct pollfd){l->fd, events, 0};
    }
    wire->polls[n] = (struct pollfd){wire->wake, POLLIN, 0};
    poll(wire->polls, n + 1, tutti__poll_ms(schedule->op->deadline));
    if (wire->polls[n].revents && read(wire->wake, &rings, sizeof rings) < 0 && errno != EAGAIN)
        return tutti__comm_fail(&group->comm, TUTTI_ERR_INTERNAL, group->comm.rank, "eventfd: %s",
                                strerror(errno));
    return TUTTI_OK;
}

static void start(tutti_group *group, tutti__schedule *schedule)
{
    tutti__wire *wire = group->wire;

    wire->n_channels = 0;
    wire->used_channels = schedule->bytes >= MANY_BYTES ? wire->channels : 1;
    for (int c = 0; c < wire->used_channels; c++)
        for (int i = 0; i < schedule->n_ranks; i++) {
            channel *l = &wire->channels_[wire->n_channels];

            if (schedule->ranks[i] == group->comm.rank)
                continue;
            *l = (channel){.fd = wire->sockets[c * group->comm.size + schedule->ranks[i]],
                           .i = i,
                           .channel = c,
                           .said = schedule->op->signature};
            if (tutti__op_traits_of(schedule->op)->uneven)
                l->said.count = count_of(schedule, i, schedule->out);
            wire->n_channels++;
        }
}

static tutti_status run(tutti_group *group, tutti__schedule *schedule)
{
    tutti__wire *wire = group->wire;
    uint64_t patience = wire->spin && schedule->bytes <= SPIN_BYTES ? (uint64_t)SPIN_US * 1000 : 0,
             idle_since = 0;

    for (;;) {
        bool moved = false, open = false;

        for (int i = 0; i < wire->n_channels; i++)
            if (!channel_done(schedule, &wire->channels_[i]))
                TUTTI_TRY(move(group, schedule, &wire->channels_[i], &moved));
        if (moved && schedule->came)
            schedule->came(schedule);
        for (int i = 0; i < wire->n_channels && !open; i++)
            open = !channel_done(schedule, &wire->channels_[i]);
        if (!open)
            return TUTTI_OK;
        if (tutti__comm_failed(&group->comm))
            return tutti__comm_status(&group->comm);
        if (tutti__now_ms() >= schedule->op->deadline)
            return late(group, schedule);
        if (moved) {
            idle_since = 0;
            continue;
        }
        if (patience > 0) {
            uint64_t now = tutti__now_ns();

            idle_since = idle_since ? idle_since : now;
            if (now - idle_since < patience) {
                sched_yield(); /* the peer may wait for this very core */
                continue;
            }
        }
        TUTTI_TRY(sleep_until_ready(group, schedule));
    }
}

tutti_status tutti__wire_run(tutti_group *group, tutti__schedule *schedule)
{
    start(group, schedule);
    return run(group, schedule);
}

size_t tutti__wire_came(const tutti_group *group, const tutti__schedule *schedule, int i)
{
    const tutti__wire *wire = group->wire;
    size_t least = schedule->n_steps;

    for (int j = 0; j < wire->n_channels; j++)
        if (wire->channels_[j].i == i && wire->channels_[j].in.step < least)
            least = wire->channels_[j].in.step;
    return least;
}

/* ---- One message each way ----------------------------------------------------------------------------------------- */

typedef struct exchange {
    tutti__schedule schedule;
    const tutti__pass *passes;
} exchange;

static bool exchange_out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    (void)step;
    *io = ((exchange *)schedule)->passes[i].out;
    return true;
}

static bool exchange_in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    (void)step;
    *io = ((exchange *)schedule)->passes[i].in;
    return true;
}

tutti_status tutti__wire_exchange(tutti_group *group, const tutti__op *op, bool heads)
{
    exchange x = {.schedule = {.op = op,
                               .heads = heads,
                               .n_steps = 1,
                               .bytes = tutti__signature_bytes(&op->signature),
                               .ranks = group->wire->everyone,
                               .n_ranks = group->comm.size,
                               .out = exchange_out,
                               .in = exchange_in},
                  .passes = group->wire->room.passes};

    return tutti__wire_run(group, &x.schedule);
}

/* ---- Coming and going ------------------------------------------------------------------------------------------------ */

void tutti__wire_wake(const tutti_group *group)
{
    if (write(group->wire->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        return; /* full: it is readable, which is all that is wanted */
}

const tutti__room *tutti__wire_room(const tutti_group *group)
{
    return &group->wire->room;
}

const int *tutti__wire_everyone(const tutti_group *group)
{
    return group->wire->everyone;
}

char *tutti__wire_scratch(tutti_group *group, size_t bytes)
{
    tutti__wire *wire = group->wire;

    if (wire->scratch_bytes >= bytes)
        return wire->scratch;
    free(wire->scratch);
    wire->scratch = malloc(bytes);
    wire->scratch_bytes = wire->scratch ? bytes : 0;
    if (!wire->scratch)
        (void)tutti__comm_fail(&group->comm, TUTTI_ERR_MEMORY, group->comm.rank,
                               "rank %d has no memory for %zu bytes", group->comm.rank, bytes);
    return wire->scratch;
}

void tutti__wire_free(tutti_group *group)
{
    tutti__wire *wire = group->wire;

    if (!wire)
        return;
    for (int i = 0; wire->sockets && i < wire->channels * group->comm.size; i++)
        if (wire->sockets[i] >= 0)
            close(wire->sockets[i]);
    if (wire->wake >= 0)
        close(wire->wake);
    free(wire->sockets);
    free(wire->channels_);
    free(wire->polls);
    free(wire->everyone);
    free(wire->room.passes);
    free(wire->room.parts);
    free(wire->room.src);
    free(wire->scratch);
    free(wire);
    group->wire = NULL;
}

tutti_status tutti__wire_new(tutti_group *group, int *sockets, int channels)
{
    size_t n = (size_t)group->comm.size * (size_t)channels;
    tutti__wire *wire = tutti__alloc(sizeof *wire);

    if (!wire) {
        for (size_t i = 0; i < n; i++)
            if (sockets[i] >= 0)
                close(sockets[i]);
        free(sockets);
        return TUTTI_ERR_MEMORY;
    }
    group->wire = wire;
    wire->sockets = sockets;
    wire->channels = channels;
    wire->spin = group->comm.tuning.spin >= 0 && group->comm.local_size <= tutti__cores();
    wire->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    wire->channels_ = calloc(n, sizeof *wire->channels_);
    wire->polls = calloc(n + 1, sizeof *wire->polls);
    wire->everyone = calloc((size_t)group->comm.size, sizeof *wire->everyone);
    wire->room.passes = calloc((size_t)group->comm.size, sizeof *wire->room.passes);
    wire->room.parts = calloc((size_t)group->comm.size, sizeof *wire->room.parts);
    wire->room.src = calloc((size_t)group->comm.size, sizeof *wire->room.src);
    if (!wire->room.passes || !wire->room.parts || !wire->room.src || wire->wake < 0 ||
        !wire->channels_ || !wire->polls || !wire->everyone)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory, or no descriptor, for the connections of %d ranks",
                           group->comm.size);
    for (int r = 0; r < group->comm.size; r++)
        wire->everyone[r] = r;
    return TUTTI_OK;
}
