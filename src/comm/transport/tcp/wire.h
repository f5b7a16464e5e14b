/* wire.h -- messages over sockets to each peer.   SPDX-License-Identifier: MIT
 *
 * A flow is what one operation sends and receives: to and from each peer, a row of messages whose sizes and order both
 * ends know. Messages of one row travel in order; which of them may go yet, or may come, the operation says. A row may be
 * cut lengthwise over several sockets. The first message on each socket begins with the operation's fingerprint, which the
 * receiver compares before the operation hears of anything. */
#ifndef TUTTI_COMM_TRANSPORT_WIRE_H
#define TUTTI_COMM_TRANSPORT_WIRE_H

#include "comm/group.h"

#include <sys/uio.h>

typedef struct tutti__wire tutti__wire;
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

/* Takes over sockets[channel * size + rank] of the group's pairs (its own: -1). Sets group->wire. */
tutti_status tutti__wire_new(tutti_group *group, int *sockets, int channels);
void tutti__wire_free(tutti_group *group);
/* Makes a flow that runs look whether the group still lives. */
void tutti__wire_wake(const tutti_group *group);
/* Runs the flow to its end. */
tutti_status tutti__wire_run(tutti_group *group, tutti__schedule *schedule);
/* Messages in the row from ranks[i] that have come whole. */
size_t tutti__wire_came(const tutti_group *group, const tutti__schedule *schedule, int i);
/* Numbers 0..size-1, for flows of all ranks. */
const int *tutti__wire_everyone(const tutti_group *group);
/* Memory for whoever runs, kept for the next; NULL with the group dead. */
char *tutti__wire_scratch(tutti_group *group, size_t bytes);

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
const tutti__room *tutti__wire_room(const tutti_group *group);
/* Sends and receives room->passes; of an operation's first exchange, each begins with the fingerprint. */
tutti_status tutti__wire_exchange(tutti_group *group, const tutti__op *op, bool heads);

/* all_reduce of `count` elements at p among some ranks, in their order. */
typedef struct tutti__direct {
    const int *ranks;
    int n, me; /* this rank is ranks[me] */
    char *p;
    size_t count;
    tutti_redop redop;
    size_t divisor; /* of AVG */
    /* Called once for each piece, in order, if set: before elements [begin, begin + n) are read, and when they hold the
     * result. */
    void (*prepare)(void *self, size_t begin, size_t n);
    void (*finish)(void *self, size_t begin, size_t n);
    void *self;
} tutti__direct;
tutti_status tutti__tcp_all_reduce(tutti_group *group, const tutti__op *op, bool heads,
                                   const tutti__direct *shares);

/* Runs an operation over all ranks, any but an alloc. */
tutti_status tutti__tcp_run(tutti_group *group, const tutti__op *op);

#endif
