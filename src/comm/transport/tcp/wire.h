/* wire.h -- messages over sockets to each peer.   SPDX-License-Identifier: MIT
 *
 * A flow is what one operation sends and receives: to and from each peer, a row of messages whose sizes and order both
 * ends know. Messages of one row travel in order; which of them may go yet, or may come, the operation says. A row may be
 * cut lengthwise over several sockets. The first message on each socket begins with the operation's fingerprint, which the
 * receiver compares before the operation hears of anything. */
#ifndef TUTTI_COMM_TRANSPORT_WIRE_H
#define TUTTI_COMM_TRANSPORT_WIRE_H

#include "comm/core/failure.h"
#include "comm/core/reduce.h"

#include <sys/uio.h>

typedef struct tutti__schedule tutti__schedule;
struct tutti__schedule {
    const tutti__op *op;
    bool heads;       /* of an operation's first flow */
    size_t n_steps;   /* messages in a row */
    size_t bytes;     /* roughly, in all: few are waited for by spinning, many use all sockets */
    const int *ranks; /* the peers; this rank may be among them */
    int n_ranks;
    /* Message `step` to, or from, ranks[i]. False: not yet. */
    bool (*out)(tutti__schedule *schedule, int i, size_t step, struct iovec *io);
    bool (*in)(tutti__schedule *schedule, int i, size_t step, struct iovec *io);
    /* Messages have come; received_steps says which. NULL: nothing to do before the end. */
    void (*came)(tutti__schedule *schedule);
};

/* One message to and one from each rank of the group. */
typedef struct tutti__pass {
    struct iovec out, in;
} tutti__pass;

/* An entry a rank, for whoever runs. */
typedef struct tutti__room {
    tutti__pass *passes;
    tutti__piece *parts;
    const void **src;
} tutti__room;
struct pollfd;
/* Connections to all peers, and room for what runs. */
typedef struct tutti__wire {
    tutti__comm *comm;
    int *sockets, n_sockets; /* n_sockets: a pair */
    int wake;                /* an eventfd, written when a peer has failed or left */
    bool spin;
    struct tutti__channel *channels; /* of the schedule that runs: socket by socket */
    int n_channels, used_sockets;
    struct pollfd *polls;
    int *everyone; /* numbers 0..size-1, for schedules of all ranks */
    tutti__room room;
    char *scratch;
    size_t scratch_bytes;
} tutti__wire;

/* Takes over sockets[i * size + rank], i = 0 .. n_sockets - 1, to each peer (its own: -1), also when it fails. */
tutti_status tutti__wire_open(tutti__wire **wire_p, tutti__comm *comm, const int *sockets,
                              int n_sockets);
/* NULL is fine. */
void tutti__wire_free(tutti__wire *wire);
/* Makes a flow that runs look whether the group still lives. */
void tutti__wire_wake(const tutti__wire *wire);
/* Runs the flow to its end. */
tutti_status tutti__wire_run(tutti__wire *wire, tutti__schedule *schedule);
/* Messages in the row from ranks[i] that have come whole. */
size_t tutti__wire_came(const tutti__wire *wire, const tutti__schedule *schedule, int i);
/* Memory for whoever runs, kept for the next; NULL with the group dead. */
char *tutti__wire_scratch(tutti__wire *wire, size_t bytes);

/* Sends and receives room->passes; of an operation's first exchange, each begins with the fingerprint. */
tutti_status tutti__wire_exchange(tutti__wire *wire, const tutti__op *op, bool heads);

#endif
