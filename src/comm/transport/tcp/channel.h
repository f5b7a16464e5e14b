/* channel.h -- one connection, and its part of the rows of messages.   SPDX-License-Identifier: MIT
 *
 * Private to transport/tcp. */
#ifndef TUTTI_COMM_TRANSPORT_CHANNEL_H
#define TUTTI_COMM_TRANSPORT_CHANNEL_H

#include "comm/transport/tcp/tcp.h"

enum { TUTTI__TCP_LOOK_MS = 50 };

/* The messages of a schedule in both directions between this rank and a peer. */
typedef struct tutti__tcp_row {
    struct iovec *out, *in;
    size_t n_out, n_in, capacity;
    int channel; /* 1 + the first of its channels; 0: not in the schedule */
} tutti__tcp_row;

/* The progress of a channel in one direction. */
typedef struct tutti__tcp_direction {
    size_t head; /* bytes of the signature done */
    size_t step; /* messages done */
    size_t done; /* bytes of the next */
} tutti__tcp_direction;

typedef struct tutti__channel {
    int fd, rank;      /* fd -1: the peer has yet to connect */
    int part, n_parts; /* which part of each message it carries */
    bool pending;      /* its connection is being made, and was not ready when last polled */
    bool first;        /* the signature comes before the messages */
    tutti__tcp_direction out, in;
    bool checked;                 /* the received signature equals ours */
    tutti__signature said, heard; /* of an uneven operation each counts what goes to its receiver */
} tutti__channel;

/* ---- connections.c ---- */
/* The connection: 0, and channel->fd, -1 if it is being made; or an errno, as tutti__data_advance. */
int tutti__tcp_connect(tutti__tcp *tcp, tutti__channel *channel);
/* NULL: the peer has yet to connect, or too many are being made. */
struct tutti__data_connecting *tutti__tcp_connecting(const tutti__tcp *tcp,
                                                     const tutti__channel *channel);

/* Move what the socket takes or has. 0 or an errno; EAGAIN: no more now. *moved becomes true if the channel made progress. */
int tutti__channel_push(tutti__channel *channel, const tutti__tcp_row *row, bool *moved);
int tutti__channel_pull(tutti__channel *channel, const tutti__tcp_row *row, bool *moved);
/* What it could move if the socket were ready: POLLOUT, POLLIN, both, or 0: everything in the row has moved. */
short tutti__channel_events(const tutti__channel *channel, const tutti__tcp_row *row);

#endif
