/* channel.c -- sends and receives on one non-blocking socket.   SPDX-License-Identifier: MIT */
#include "comm/transport/tcp/channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AT_ONCE = 8, PAGE = 4096 };

/* The part of a message that this channel carries. */
static struct iovec part_of(const tutti__channel *c, struct iovec whole)
{
    size_t part = (whole.iov_len / (size_t)c->n_parts + PAGE) / PAGE * PAGE,
           begin = (size_t)c->part * part;

    if (c->n_parts == 1 || whole.iov_len == 0)
        return whole;
    begin = begin < whole.iov_len ? begin : whole.iov_len;
    return (struct iovec){
        (char *)whole.iov_base + begin,
        whole.iov_len - begin < part || c->part == c->n_parts - 1 ? whole.iov_len - begin : part};
}

static bool direction_done(const tutti__channel *c, const tutti__tcp_direction *d, size_t n)
{
    return d->step == n && (!c->first || d->head == sizeof c->said);
}

/* Up to AT_ONCE pieces that may move now. */
static int gather(const tutti__channel *c, const tutti__tcp_direction *d,
                  tutti__signature *signature, const struct iovec *messages, size_t n_messages,
                  struct iovec *io)
{
    int n = 0;
    size_t skip = d->done;

    if (c->first && d->head < sizeof *signature)
        io[n++] = (struct iovec){(char *)signature + d->head, sizeof *signature - d->head};
    for (size_t step = d->step; n < AT_ONCE && step < n_messages; step++, skip = 0) {
        struct iovec part = part_of(c, messages[step]);

        if (part.iov_len > 0)
            io[n++] = (struct iovec){(char *)part.iov_base + skip, part.iov_len - skip};
    }
    return n;
}

/* Notes that `bytes` of the gathered pieces have moved, and skips completed messages. */
static void advance(const tutti__channel *c, tutti__tcp_direction *d, const struct iovec *messages,
                    size_t n_messages, size_t bytes)
{
    if (c->first && d->head < sizeof c->said) {
        size_t left = sizeof c->said - d->head, n = bytes < left ? bytes : left;

        d->head += n;
        bytes -= n;
        if (d->head < sizeof c->said)
            return;
    }
    while (d->step < n_messages) {
        size_t left = part_of(c, messages[d->step]).iov_len - d->done;

        if (bytes < left) {
            d->done += bytes;
            return;
        }
        bytes -= left;
        d->done = 0;
        d->step++;
    }
}

static size_t total(const struct iovec *io, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += io[i].iov_len;
    return bytes;
}

/* An empty message has moved as soon as it is added. */
static void skip_empty(const tutti__channel *c, tutti__tcp_direction *d,
                       const struct iovec *messages, size_t n_messages, bool *moved)
{
    size_t step = d->step;

    advance(c, d, messages, n_messages, 0);
    *moved = *moved || d->step > step;
}

int tutti__channel_push(tutti__channel *c, const tutti__tcp_row *row, bool *moved)
{
    struct iovec io[AT_ONCE];
    struct msghdr message = {.msg_iov = io};
    int n;

    skip_empty(c, &c->out, row->out, row->n_out, moved);
    while ((n = gather(c, &c->out, &c->said, row->out, row->n_out, io)) > 0) {
        ssize_t sent;

        message.msg_iovlen = (size_t)n;
        sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno;
        *moved = true;
        advance(c, &c->out, row->out, row->n_out, (size_t)sent);
        if ((size_t)sent < total(io, n))
            return EAGAIN;
    }
    return 0;
}

int tutti__channel_pull(tutti__channel *c, const tutti__tcp_row *row, bool *moved)
{
    struct iovec io[AT_ONCE];
    int n;

    skip_empty(c, &c->in, row->in, row->n_in, moved);
    while ((n = gather(c, &c->in, &c->heard, row->in, row->n_in, io)) > 0) {
        ssize_t got = readv(c->fd, io, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : ECONNRESET;
        *moved = true;
        advance(c, &c->in, row->in, row->n_in, (size_t)got);
        if ((size_t)got < total(io, n))
            return EAGAIN;
    }
    return 0;
}

short tutti__channel_events(const tutti__channel *c, const tutti__tcp_row *row)
{
    return (short)((direction_done(c, &c->out, row->n_out) ? 0 : POLLOUT) |
                   (direction_done(c, &c->in, row->n_in) ? 0 : POLLIN));
}
