/* tcp.h -- schedules of messages to all peers, over TCP or another wire (tutti__wire_ops).   SPDX-License-Identifier: MIT
 *
 * An algorithm starts a schedule, and adds messages to it as soon as they may be sent: for each peer and direction one
 * row, whose sizes and order both ends know. Messages of one row travel in order. The algorithm computes between calls
 * that send and receive what the connections allow:
 *
 *     start ─▶ send, recv ... ─▶ wait until some have arrived ─▶ compute, send, recv ... ─▶ finish
 *
 * A connection is made when a schedule first has that peer. With several connections to a peer each carries a part of every message. The first message on a connection begins with
 * the operation's signature, which the receiver compares before the algorithm sees any data.
 *
 *     tcp_schedule.c  rows of messages, and which of them have arrived     tcp_progress.c  all channels: moving, waiting, failing
 *     connections.c   what all wires have: init, teardown, scratch         sockets.c       the wire of sockets
 *     channel.c       one socket                                           ../../backend/mpi/mpi_wire.c  that of MPI */
#ifndef TUTTI_COMM_TRANSPORT_TCP_H
#define TUTTI_COMM_TRANSPORT_TCP_H

#include "comm/core/failure.h"

#include <sys/uio.h>

typedef struct tutti__schedule {
    const tutti__operation *op;
    bool first;   /* of its operation: connections begin with the signature */
    size_t bytes; /* rough total: small ones spin while waiting, large ones use all connections */
    const int *ranks; /* the peers; this rank may be among them */
    int n_ranks;
    size_t n_messages; /* at most, in each row */
    /* Of an algorithm that adds peers as it needs them: called once if this rank has waited for a while. Adds all, so that they hear that it
     * is here, and not it is missed if another is. NULL: all are there. */
    tutti_status (*announce)(void *self);
    void *self;
} tutti__schedule;

typedef struct tutti__tcp tutti__tcp;
struct tutti__channel;
struct tutti__plain_memory;

/* What moves the messages of a schedule. A function that fails has killed the group. */
typedef struct tutti__wire_ops {
    /* Names of the engines over it: of all ranks, and of ranks of different hosts only. */
    const char *name, *with_shared_memory;
    bool lasting; /* what a message uses may be used after its call has failed */
    /* Whether the channel can move messages; otherwise its connection is being made. */
    tutti_status (*connect)(tutti__tcp *tcp, struct tutti__channel *channel, bool *connected);
    /* Before channels are pushed and pulled. NULL: nothing. */
    tutti_status (*poll)(tutti__tcp *tcp);
    /* Send what can be sent now; take what is there. *moved becomes true if the channel made progress. */
    tutti_status (*push)(tutti__tcp *tcp, struct tutti__channel *channel, bool *moved);
    tutti_status (*pull)(tutti__tcp *tcp, struct tutti__channel *channel, bool *moved);
    /* Nothing has moved for so long: waits a moment, or until something may move; looks around (channel.h) every look_ms. */
    tutti_status (*idle)(tutti__tcp *tcp, uint64_t idle_ns);
    /* Compares our call to those of ranks that are not in the schedule. */
    tutti_status (*look)(tutti__tcp *tcp);
    /* Frees it, all of it if no operation has failed: otherwise what a message may still use. */
    void (*close)(tutti__tcp *tcp);
} tutti__wire_ops;

struct tutti__tcp {
    const tutti__wire_ops *wire;
    tutti__comm *comm;
    struct tutti__control *control;
    int n_sockets; /* connections to each peer */
    int wake;      /* an eventfd, written when a peer has failed or left */
    bool spin;
    int *everyone;    /* numbers 0..size-1, for schedules of all ranks */
    const void **src; /* for algorithms: a pointer a rank */
    char *scratch;
    size_t scratch_bytes;
    struct tutti__plain_memory
        *memory; /* of tutti_group_alloc, which the wire may use directly; NULL: none */
    tutti__schedule schedule;              /* the running one */
    struct tutti__tcp_row *rows;           /* of each rank: messages to it and from it */
    struct tutti__channel *channels;       /* to each peer of the schedule */
    int n_channels, used_sockets, look_ms; /* look_ms: of waiting, until it looks around */
};

/* What all wires have. Errors: MEMORY; `tcp`, which is zeroed, is then to be given to tutti__tcp_clear. */
tutti_status tutti__tcp_init(tutti__tcp *tcp, const tutti__wire_ops *wire, tutti__comm *comm,
                             int n_sockets);
/* Frees what that has made. */
void tutti__tcp_clear(tutti__tcp *tcp);

/* n_sockets: connections to each peer, which come through the control channel. */
tutti_status tutti__tcp_open(tutti__tcp **tcp_p, tutti__comm *comm, struct tutti__control *control,
                             int n_sockets);
/* Without a control channel: the connections of each part in turn, by rank, -1 for this one, which `tcp` closes at its end. */
void tutti__tcp_give_sockets(tutti__tcp *tcp, const int *sockets);
/* After the control channel is closed. NULL is fine. */
void tutti__tcp_free(tutti__tcp *tcp);
/* The same before that: no connection is reported any more. */
void tutti__tcp_abandon(tutti__tcp *tcp);
/* Makes a running schedule check whether the group is alive. From any thread. */
void tutti__tcp_wake(const tutti__tcp *tcp);
/* Memory for algorithms, reused by the next; on NULL it has killed the group. */
char *tutti__tcp_scratch(tutti__tcp *tcp, size_t bytes);

/* ---- A schedule: one at a time ------------------------------------------------------------------------------------ */

/* Call it after finishing the last schedule. Reuses memory for rows, so that it rarely allocates. */
tutti_status tutti__tcp_start(tutti__tcp *tcp, const tutti__schedule *schedule);
/* Adds a peer to a running schedule, with n_messages in each row; nothing if it is there. */
tutti_status tutti__tcp_add_peer(tutti__tcp *tcp, int rank, size_t n_messages);
/* If all messages to and from the peer that have been added have moved: makes room in their rows for as many again, and returns true. */
bool tutti__tcp_reuse_row(tutti__tcp *tcp, int rank);
/* Starts a schedule of all ranks for chunks of an operation, n_messages a row; `first`: the operation's first schedule. */
tutti_status tutti__tcp_start_all(tutti__tcp *tcp, const tutti__operation *op, bool first,
                                  size_t n_messages);
/* Adds the next message to, or from, a peer. Its memory belongs to the schedule until that is finished: it may be read
 * (written) from now on. To and from this rank itself nothing moves. */
void tutti__tcp_send(tutti__tcp *tcp, int rank, const void *p, size_t bytes);
void tutti__tcp_recv(tutti__tcp *tcp, int rank, void *p, size_t bytes);
/* How many whole messages have arrived; with rank -1, from every peer. */
size_t tutti__tcp_arrived(const tutti__tcp *tcp, int rank);
/* Sends what the connections take at once. */
tutti_status tutti__tcp_push(tutti__tcp *tcp);
/* Waits until some bytes have moved, in any direction, or nothing is left to move. */
tutti_status tutti__tcp_wait(tutti__tcp *tcp);
/* Waits until nothing is left to move. */
tutti_status tutti__tcp_finish(tutti__tcp *tcp);

#endif
