/* control.h -- the control channel: framed connections between ranks, read by one thread a rank; groups made from a group use its
 * connections and its thread.   SPDX-License-Identifier: MIT
 *
 * Neighbours (core/tree.h) have a connection from the beginning, and watch each other; any other two get one when the first frame
 * between them is sent. What all must know goes from neighbour to neighbour (flood.h).
 *
 * It belongs to the communicator, whatever the transport, and carries heartbeats, goodbyes, causes of failure, handles of
 * shared memory, and the frames of a registered handler (p2p). End of file without a goodbye means that the peer died;
 * silence, that it is stopped or cut off. A communicator within another (comm->outer) has none: it uses the outer one's,
 * with the outer ranks' numbers. A communicator of one rank has no thread. */
#ifndef TUTTI_COMM_CONTROL_CONTROL_H
#define TUTTI_COMM_CONTROL_CONTROL_H

#include "comm/bootstrap/directory.h"
#include "comm/bootstrap/listen.h"
#include "comm/bootstrap/mesh.h"
#include "comm/core/communicator.h"
#include "comm/core/frame.h"
#include "comm/core/signature.h"

typedef struct tutti__control tutti__control;

/* Handles the other kinds of frames. The functions are called from any thread; `begin` and `end` between `enter` and
 * `leave`, and never two at once; `leave` may act on what was found meanwhile. */
typedef struct tutti__frame_handler {
    void *self;
    void (*enter)(void *self);
    void (*leave)(void *self);
    /* Whether such a frame is allowed. */
    bool (*valid)(const tutti__frame *head);
    /* The memory for its body; NULL: the body is discarded. */
    char *(*begin)(void *self, int rank, const tutti__frame *head);
    /* The frame has been received, including its body. */
    void (*end)(void *self, int rank, const tutti__frame *head);
    /* The next frame of the stream to `rank`: fills in *head and returns the body, which stays valid until the next call
     * or tutti__control_forget; NULL: no more. The frame returned before has been sent. */
    const char *(*next)(void *self, int rank, tutti__frame *head);
    /* Called by the thread, when nothing is left to read, not entered. True: there is more to do. */
    bool (*work)(void *self);
    /* Called at least five times a heartbeat: for time limits. */
    void (*tick)(void *self);
} tutti__frame_handler;

typedef struct tutti__control_opts {
    tutti__mesh
        *mesh; /* connections to all neighbours; its sockets now belong to the control channel */
    int heartbeat_ms; /* a peer that is silent for that long is dead; 0: never */
    /* For connections that are made later, until the last group is closed: where this rank and the others listen. Taken over, also
     * on failure, with the mesh's acceptor. directory NULL: none will be, and the listeners are closed already. */
    tutti__directory *directory;
    tutti__listeners listeners;
    const tutti__secret *secret; /* copied */
} tutti__control_opts;

/* Starts the thread. comm->id is set. opts NULL: in a group of one. */
tutti_status tutti__control_open(tutti__control **control_p, tutti__comm *comm,
                                 const tutti__control_opts *opts,
                                 const tutti__frame_handler *handler);
/* The same for a group of some ranks of another, over its connections: rank r is `ranks[r]` there. Its members call it
 * without waiting for each other. The two may be closed in any order. */
tutti_status tutti__control_share(tutti__control **control_p, tutti__control *parent,
                                  tutti__comm *comm, const int *ranks,
                                  const tutti__frame_handler *handler);
/* Waits until this rank has its connections to all neighbours in the group, or the group has failed: false. */
bool tutti__control_await_neighbours(tutti__control *control, double deadline);
/* All ranks are known to have opened it. */
void tutti__control_opened(tutti__control *control);
/* Whether it is dead because a member could not make it, as that one has told. */
bool tutti__control_was_refused(const tutti__control *control);
/* This rank cannot make the group with that id and those ranks of `parent`: tells them why. */
void tutti__control_refuse(tutti__control *parent, uint64_t group, const int *ranks, int n,
                           const tutti__cause *cause);
/* Says goodbye, or why the communicator is dead, waits until that is sent; the last group of the connections closes
 * them and ends their thread. NULL is fine. */
void tutti__control_close(tutti__control *control);

/* Tells the neighbours, and all others that have a connection, why the communicator is dead; they pass it on. */
void tutti__control_tell(tutti__control *control, const tutti__cause *cause);
/* Sends a frame, or queues a copy. From any thread, also one that has entered the handler. */
void tutti__control_send(tutti__control *control, int rank, const tutti__frame *head,
                         const void *body);
/* There are frames to `rank` that the handler's `next` returns; they are sent in turn, when nothing else waits. */
void tutti__control_stream(tutti__control *control, int rank);
/* The handler's memory for bodies must no longer be accessed. By a thread that has entered. */
void tutti__control_forget(tutti__control *control);
/* Connects to the rank, unless it has a connection, to learn how it ends. */
void tutti__control_watch(tutti__control *control, int rank);
/* Makes the thread call the handler's `work`. */
void tutti__control_wake(tutti__control *control);
/* Whether it has not closed it, but has sent nothing for a heartbeat interval. Only connected peers are known to be. */
bool tutti__control_is_silent(tutti__control *control, int rank);

/* ---- Connections for data -------------------------------------------------------------------------------------
 * Of a group that has them; channel: from 1 on. One end connects; the other takes what has come. */

bool tutti__control_connects(const tutti__control *control, int rank);
tutti__address tutti__control_data_address(const tutti__control *control, int rank);
/* A connection that is being made, without blocking. */
typedef struct tutti__data_connecting tutti__data_connecting;
/* NULL: no memory. */
tutti__data_connecting *tutti__data_begin(const tutti__control *control, int rank, int channel,
                                          double deadline);
/* 0, and the descriptor; EINPROGRESS: call again when its descriptor is ready, or at its next time; or why there will be none: EPROTO: see the
 * thread's message; ETIME: the peer's host accepts it, but the peer does not answer within the deadline; else the errno of connecting. */
int tutti__data_advance(tutti__data_connecting *connecting, int *fd_p);
int tutti__data_fd(const tutti__data_connecting *connecting, short *events_p); /* -1: none now */
double tutti__data_next(const tutti__data_connecting *connecting);
/* NULL is fine. */
void tutti__data_drop(tutti__data_connecting *connecting);
/* -1: not yet. */
int tutti__control_take_data(tutti__control *control, int rank, int channel);
/* Calls that from the control channel's thread: when such a connection has come, and when a rank that waits for one from this rank has
 * said in which call (TUTTI__FRAME_CALL). NULL: no more. */
typedef struct tutti__data_events {
    void (*came)(void *self);
    void (*called)(void *self, int rank, const tutti__signature *call);
    void *self;
} tutti__data_events;
void tutti__control_on_data(tutti__control *control, const tutti__data_events *events);

/* How many connections the control channel has, of all its groups. */
int tutti__control_n_connections(tutti__control *control);

/* Handles: a descriptor (-1: none), duplicated for the peer, and a number. Or, if `error` is an errno, neither: rank `culprit` has no
 * descriptor free to receive or to send that one. */
typedef struct tutti__handed {
    int fd;
    uint64_t number;
    int error, culprit;
} tutti__handed;

/* From the first of n ranks, which all call one of these, to the others, along the tree of core/tree.h. The i-th takes it from its
 * parent and passes it on, whatever it is: so each of the others gets one. ranks: their numbers; NULL: 0, 1, ... */
void tutti__control_spread_handle(tutti__control *control, const int *ranks, int n, int fd,
                                  uint64_t number);
/* In the order in which they were sent. The caller owns the descriptor. Returns 0 or an errno; if that is handed->error, nobody has failed:
 * see tutti__control_fail_handed. */
int tutti__control_take_spread(tutti__control *control, const int *ranks, int n, int i,
                               tutti__handed *handed, double deadline);
/* Sets the message that the culprit has no descriptor for `what`: MEMORY. */
tutti_status tutti__control_fail_handed(const tutti__control *control, const tutti__handed *handed,
                                        const char *what);
/* Besides, the group cannot do without: it fails. */
tutti_status tutti__control_fail_without(const tutti__control *control, const tutti__handed *handed,
                                         const char *what);

#endif
