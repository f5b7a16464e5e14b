/* channel.h -- the control channel: one framed connection between each pair of ranks, read by one thread a rank.
 * SPDX-License-Identifier: MIT
 *
 * It belongs to the communicator, whatever the transport: heartbeats, goodbyes, causes of failure, handles of shared
 * memory, and the frames of whoever has registered a handler (p2p). Its end without a goodbye is a peer's death; its
 * silence, a peer that is stopped or cut off. A communicator inside another (comm->outer) has none: it uses the other's,
 * under the other's ranks. One of a single rank has no thread. */
#ifndef TUTTI_COMM_CONTROL_CHANNEL_H
#define TUTTI_COMM_CONTROL_CHANNEL_H

#include "comm/core/communicator.h"

typedef struct tutti__control tutti__control;

typedef enum tutti__frame_kind {
    TUTTI__FRAME_BEAT, /* id: the sending thread, as the kernel numbers it */
    TUTTI__FRAME_GOODBYE,
    TUTTI__FRAME_CAUSE,  /* body: the text */
    TUTTI__FRAME_HANDLE, /* id: a number; a descriptor may come with it */
    TUTTI__FRAME_OTHERS  /* this kind and all above are the handler's */
} tutti__frame_kind;

typedef struct tutti__frame {
    uint32_t kind, bytes;    /* of the body that follows */
    int32_t status, culprit; /* of a cause */
    /* The handler's. */
    int32_t tag;
    uint32_t dtype;
    uint64_t count, id, receive;
} tutti__frame;

/* Who handles the other kinds of frames. The functions are called by any thread, but for `begin` and `end` between `enter`
 * and `leave`, never two at once; `leave` may act upon what was found out meanwhile. */
typedef struct tutti__frame_handler {
    void *self;
    void (*enter)(void *self);
    void (*leave)(void *self);
    /* May such a frame come at all? */
    bool (*valid)(const tutti__frame *head);
    /* Where its body goes; NULL: nowhere. */
    char *(*begin)(void *self, int rank, const tutti__frame *head);
    /* It is there, body and all. */
    void (*end)(void *self, int rank, const tutti__frame *head);
    /* The next frame of the stream to `rank`: fills in *head and returns the body, which stays until the next call or
     * tutti__control_forget; NULL: there is no more. What was returned before is sent. */
    const char *(*next)(void *self, int rank, tutti__frame *head);
    /* Of the thread, when nothing else is to be read, not entered. True: there is more to do. */
    bool (*work)(void *self);
} tutti__frame_handler;

/* Takes over sockets[r] to each peer (its own: -1) and starts the thread. Silent for heartbeat_ms: dead; 0: however long. */
tutti_status tutti__control_open(tutti__control **control_p, tutti__comm *comm, const int *sockets,
                                 int heartbeat_ms, const tutti__frame_handler *handler);
/* Says goodbye, or why the communicator is dead, waits until that is sent, and ends the thread. NULL: none. */
void tutti__control_close(tutti__control *control);

/* Tells all peers why the communicator is dead. */
void tutti__control_tell(tutti__control *control, const tutti__cause *cause);
/* Sends a frame, or a copy of it when there is room. From any thread, also one that has entered the handler. */
void tutti__control_send(tutti__control *control, int rank, const tutti__frame *head,
                         const void *body);
/* There are frames to `rank` which the handler's `next` names; they go in turn, when nothing else waits. */
void tutti__control_stream(tutti__control *control, int rank);
/* The handler's memory, where bodies come from or go to, is no longer to be touched. By a thread that has entered. */
void tutti__control_forget(tutti__control *control);
/* Makes the thread call the handler's `work`. */
void tutti__control_wake(tutti__control *control);
/* The peer's end is closed: its process has ended, or it has left. */
bool tutti__control_is_over(tutti__control *control, int rank);
/* It has not hung up, but not been heard from for a heartbeat either. */
bool tutti__control_is_silent(tutti__control *control, int rank);

/* Handles: a descriptor (-1: none), duplicated for the peer, and a number. 0 or an errno. */
int tutti__control_send_handle(tutti__control *control, int rank, int fd, uint64_t number);
/* In the order in which that rank sent them. The descriptor is the caller's. */
int tutti__control_take_handle(tutti__control *control, int rank, int *fd_p, uint64_t *number_p,
                               double deadline);

#endif
