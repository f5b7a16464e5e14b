/* wire.c -- sockets that give and take as fast as they can.   SPDX-License-Identifier: MIT
 *
 * A lane is what passes over one socket in one flow, a row of messages each way. The flow runs while any lane has
 * something left: every socket is given what may go and asked for what may come; if none moves, the thread polls, after
 * trying again for a moment where little is on its way and a wake-up would take longer than the rest. */
#include "comm/transport/tcp/wire.h"

#include "comm/bootstrap/socket.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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

typedef struct tutti__channel {
    int fd, i, channel; /* to ranks[i] of the flow */
    direction out, in;
    bool checked;                 /* the heard fingerprint is ours */
    tutti__signature said, heard; /* of an uneven operation they count what this lane carries */
} channel;

/* ---- A lane --------------------------------------------------------------------------------------------------- */

/* The part of a message that one of the channels carries. */
static struct iovec part_of(struct iovec whole, int socket, int sockets)
{
    size_t part = (whole.iov_len / (size_t)sockets + PAGE) / PAGE * PAGE,
           begin = (size_t)socket * part;

    if (sockets == 1)
        return whole;
    begin = begin < whole.iov_len ? begin : whole.iov_len;
    return (struct iovec){
        (char *)whole.iov_base + begin,
        whole.iov_len - begin < part || socket == sockets - 1 ? whole.iov_len - begin : part};
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
        io[n] = part_of(io[n], l->channel, wire->used_sockets);
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
        size_t left = part_of(io, l->channel, wire->used_sockets).iov_len - w->done;

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
static tutti_status lost(tutti__wire *wire, int rank)
{
    double deadline = tutti__now_ms() + VERDICT_MS;

    while (!tutti__comm_failed(wire->comm) && !tutti__comm_has_left(wire->comm, rank) &&
           tutti__now_ms() < deadline) {
        uint64_t rings;

        poll(&(struct pollfd){wire->wake, POLLIN, 0}, 1, tutti__poll_ms(deadline));
        if (read(wire->wake, &rings, sizeof rings) < 0 && errno != EAGAIN)
            break;
    }
    return tutti__comm_fail_lost(wire->comm, rank);
}

static tutti_status late(tutti__wire *wire, const tutti__schedule *schedule)
{
    bool *missing = calloc((size_t)wire->comm->size, sizeof *missing);
    tutti_status status;

    if (!missing)
        return tutti__comm_fail(wire->comm, TUTTI_ERR_TIMEOUT, -1, "timed out");
    for (int i = 0; i < wire->n_channels; i++)
        if (!channel_done(schedule, &wire->channels[i]))
            missing[schedule->ranks[wire->channels[i].i]] = true;
    status = tutti__comm_fail_late(wire->comm, schedule->op, missing);
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
static tutti_status check_heard(tutti__wire *wire, tutti__schedule *schedule, const channel *l)
{
    const tutti__op *op = schedule->op;
    tutti__signature heard = l->heard;
    int from = schedule->ranks[l->i];

    if (!tutti__op_traits_of(op)->uneven || heard.op != op->signature.op)
        return tutti__comm_check_signature(wire->comm, &op->signature, from, &heard);
    heard.count = 0;
    TUTTI_TRY(tutti__comm_check_signature(wire->comm, &op->signature, from, &heard));
    return tutti__comm_check_sent(wire->comm, &op->signature, from, wire->comm->rank,
                                  (size_t)l->heard.count, count_of(schedule, l->i, schedule->in));
}

static tutti_status move(tutti__wire *wire, tutti__schedule *schedule, channel *l, bool *moved)
{
    int error = push(wire, schedule, l, moved);

    if (error == 0 || error == EAGAIN)
        error = pull(wire, schedule, l, moved);
    if (schedule->heads && !l->checked && l->in.head == sizeof l->heard) {
        TUTTI_TRY(check_heard(wire, schedule, l));
        l->checked = true;
    }
    return error == 0 || error == EAGAIN ? TUTTI_OK : lost(wire, schedule->ranks[l->i]);
}

static bool awaits(const tutti__wire *wire, tutti__schedule *schedule, channel *l, direction *w,
                   message_of *message)
{
    struct iovec io[AT_ONCE];

    return gather(wire, schedule, l, w, NULL, message, io) > 0;
}

static tutti_status sleep_until_ready(tutti__wire *wire, tutti__schedule *schedule)
{
    nfds_t n = 0;
    uint64_t rings;

    for (int i = 0; i < wire->n_channels; i++) {
        channel *l = &wire->channels[i];
        short events = (short)((awaits(wire, schedule, l, &l->out, schedule->out) ? POLLOUT : 0) |
                               (awaits(wire, schedule, l, &l->in, schedule->in) ? POLLIN : 0));

        if (events)
            wire->polls[n++] = (struct pollfd){l->fd, events, 0};
    }
    wire->polls[n] = (struct pollfd){wire->wake, POLLIN, 0};
    poll(wire->polls, n + 1, tutti__poll_ms(schedule->op->deadline));
    if (wire->polls[n].revents && read(wire->wake, &rings, sizeof rings) < 0 && errno != EAGAIN)
        return tutti__comm_fail(wire->comm, TUTTI_ERR_INTERNAL, wire->comm->rank, "eventfd: %s",
                                strerror(errno));
    return TUTTI_OK;
}

static void start(tutti__wire *wire, tutti__schedule *schedule)
{

    wire->n_channels = 0;
    wire->used_sockets = schedule->bytes >= MANY_BYTES ? wire->n_sockets : 1;
    for (int c = 0; c < wire->used_sockets; c++)
        for (int i = 0; i < schedule->n_ranks; i++) {
            channel *l = &wire->channels[wire->n_channels];

            if (schedule->ranks[i] == wire->comm->rank)
                continue;
            *l = (channel){.fd = wire->sockets[c * wire->comm->size + schedule->ranks[i]],
                           .i = i,
                           .channel = c,
                           .said = schedule->op->signature};
            if (tutti__op_traits_of(schedule->op)->uneven)
                l->said.count = count_of(schedule, i, schedule->out);
            wire->n_channels++;
        }
}

static tutti_status run(tutti__wire *wire, tutti__schedule *schedule)
{
    uint64_t patience = wire->spin && schedule->bytes <= SPIN_BYTES ? (uint64_t)SPIN_US * 1000 : 0,
             idle_since = 0;

    for (;;) {
        bool moved = false, open = false;

        for (int i = 0; i < wire->n_channels; i++)
            if (!channel_done(schedule, &wire->channels[i]))
                TUTTI_TRY(move(wire, schedule, &wire->channels[i], &moved));
        if (moved && schedule->came)
            schedule->came(schedule);
        for (int i = 0; i < wire->n_channels && !open; i++)
            open = !channel_done(schedule, &wire->channels[i]);
        if (!open)
            return TUTTI_OK;
        if (tutti__comm_failed(wire->comm))
            return tutti__comm_status(wire->comm);
        if (tutti__now_ms() >= schedule->op->deadline)
            return late(wire, schedule);
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
        TUTTI_TRY(sleep_until_ready(wire, schedule));
    }
}

tutti_status tutti__wire_run(tutti__wire *wire, tutti__schedule *schedule)
{
    start(wire, schedule);
    return run(wire, schedule);
}

size_t tutti__wire_came(const tutti__wire *wire, const tutti__schedule *schedule, int i)
{
    size_t least = schedule->n_steps;

    for (int j = 0; j < wire->n_channels; j++)
        if (wire->channels[j].i == i && wire->channels[j].in.step < least)
            least = wire->channels[j].in.step;
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

tutti_status tutti__wire_exchange(tutti__wire *wire, const tutti__op *op, bool heads)
{
    exchange x = {.schedule = {.op = op,
                               .heads = heads,
                               .n_steps = 1,
                               .bytes = tutti__signature_bytes(&op->signature),
                               .ranks = wire->everyone,
                               .n_ranks = wire->comm->size,
                               .out = exchange_out,
                               .in = exchange_in},
                  .passes = wire->room.passes};

    return tutti__wire_run(wire, &x.schedule);
}

/* ---- Init, teardown ------------------------------------------------------------------------------------------------ */

void tutti__wire_wake(const tutti__wire *wire)
{
    if (write(wire->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        return; /* full: it is readable, which is all that is wanted */
}

char *tutti__wire_scratch(tutti__wire *wire, size_t bytes)
{

    if (wire->scratch_bytes >= bytes)
        return wire->scratch;
    free(wire->scratch);
    wire->scratch = malloc(bytes);
    wire->scratch_bytes = wire->scratch ? bytes : 0;
    if (!wire->scratch)
        (void)tutti__comm_fail(wire->comm, TUTTI_ERR_MEMORY, wire->comm->rank,
                               "rank %d has no memory for %zu bytes", wire->comm->rank, bytes);
    return wire->scratch;
}

void tutti__wire_free(tutti__wire *wire)
{
    if (!wire)
        return;
    for (int i = 0; wire->sockets && i < wire->n_sockets * wire->comm->size; i++)
        if (wire->sockets[i] >= 0)
            close(wire->sockets[i]);
    if (wire->wake >= 0)
        close(wire->wake);
    free(wire->sockets);
    free(wire->channels);
    free(wire->polls);
    free(wire->everyone);
    free(wire->room.passes);
    free(wire->room.parts);
    free(wire->room.src);
    free(wire->scratch);
    free(wire);
}

static tutti_status fail_open(const tutti__comm *comm, const int *sockets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the connections of %d ranks", comm->size);
}

tutti_status tutti__wire_open(tutti__wire **wire_p, tutti__comm *comm, const int *sockets,
                              int n_sockets)
{
    size_t size = (size_t)comm->size, n = size * (size_t)n_sockets;
    tutti__wire *wire = tutti__alloc(sizeof *wire);

    *wire_p = wire;
    if (wire)
        wire->sockets = malloc(n * sizeof *sockets);
    if (!wire || !wire->sockets) {
        free(wire);
        *wire_p = NULL;
        return fail_open(comm, sockets, n);
    }
    memcpy(wire->sockets, sockets, n * sizeof *sockets);
    wire->comm = comm;
    wire->n_sockets = n_sockets;
    wire->spin = comm->tuning.spin >= 0 && comm->local_size <= tutti__cores();
    wire->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    wire->channels = calloc(n, sizeof *wire->channels);
    wire->polls = calloc(n + 1, sizeof *wire->polls);
    wire->everyone = calloc(size, sizeof *wire->everyone);
    wire->room.passes = calloc(size, sizeof *wire->room.passes);
    wire->room.parts = calloc(size, sizeof *wire->room.parts);
    wire->room.src = calloc(size, sizeof *wire->room.src);
    if (!wire->room.passes || !wire->room.parts || !wire->room.src || wire->wake < 0 ||
        !wire->channels || !wire->polls || !wire->everyone) {
        tutti__wire_free(wire);
        *wire_p = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory, or no descriptor, for the connections of %d ranks",
                           comm->size);
    }
    for (int r = 0; r < comm->size; r++)
        wire->everyone[r] = r;
    return TUTTI_OK;
}
