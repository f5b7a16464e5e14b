/* channel.h -- one connection, and its part of the rows of messages.   SPDX-License-Identifier: MIT
 *
 * For wires. */
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
    int fd, rank;      /* fd -1: not connected yet */
    int part, n_parts; /* which part of each message it carries */
    bool connecting;   /* this rank connects, and waits for the peer's answer */
    bool pending;      /* of such a connection: it was not ready when last polled */
    bool first;        /* the signature comes before the messages */
    tutti__tcp_direction out, in;
    bool checked;                 /* the received signature equals ours */
    tutti__signature said, heard; /* of an uneven operation each counts what goes to its receiver */
} tutti__channel;

/* What it has yet to move: POLLOUT, POLLIN, both, or 0: everything in the row has moved. */
short tutti__channel_events(const tutti__channel *channel, const tutti__tcp_row *row);

/* ---- tcp_progress.c ---- */
/* Nothing has moved for a while: all peers of the schedule are to know that this rank is here, and the wire looks at others. */
tutti_status tutti__tcp_look_around(tutti__tcp *tcp);
/* Fails if another rank's call, which is not of a later sequence, is not ours. */
tutti_status tutti__tcp_check_other(tutti__tcp *tcp, int rank, const tutti__signature *theirs);
/* When the operation gives up. */
double tutti__tcp_deadline(const tutti__tcp *tcp);
/* A connection is closed, or refused. This rank learns in a moment whether the peer died or left: whether it has. */
bool tutti__tcp_await_verdict(const tutti__tcp *tcp, int rank);
/* The group fails: the peer's connection has ended; this rank has waited too long. */
tutti_status tutti__tcp_fail_lost(tutti__tcp *tcp, int rank);
tutti_status tutti__tcp_fail_late(tutti__tcp *tcp);

/* ---- sockets ---- */
extern const tutti__wire_ops tutti__sockets;
/* Move what the socket takes or has. 0 or an errno; EAGAIN: no more now. */
int tutti__channel_push(tutti__channel *channel, const tutti__tcp_row *row, bool *moved);
int tutti__channel_pull(tutti__channel *channel, const tutti__tcp_row *row, bool *moved);

#endif
