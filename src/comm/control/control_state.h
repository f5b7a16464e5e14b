/* control_state.h -- private parts of the control channel.   SPDX-License-Identifier: MIT
 *
 *     control_init.c    open, the thread, close
 *     send.c            outgoing frames: sent at once, or queued if the socket is full
 *     receive.c         incoming frames
 *     memory_handle.c   descriptors and numbers for peers
 *     heartbeat.c       silent peers
 *
 * The lock protects what several threads access: queues, handles, the ends of links. What only the thread uses needs none.
 * If both are taken, the handler's lock (enter) is taken first. */
#ifndef TUTTI_COMM_CONTROL_CONTROL_STATE_H
#define TUTTI_COMM_CONTROL_CONTROL_STATE_H

#include "comm/control/control.h"

#include "base/base.h"

/* A frame to a peer. */
typedef struct tutti__outgoing {
    struct tutti__outgoing *next;
    tutti__frame head;
    size_t done;      /* bytes of header and body that are sent */
    int fd;           /* -1: none */
    const char *from; /* the body */
    char body[];      /* a copy of it, unless it is streamed */
} tutti__outgoing;

typedef struct tutti__outgoing_list {
    tutti__outgoing *first, *last;
} tutti__outgoing_list;

typedef struct tutti__handle {
    int fd;
    uint64_t number;
} tutti__handle;

enum { TUTTI__MAX_HANDLES = 8 };

typedef struct tutti__link {
    int fd; /* -1: to itself */
    /* Used by the thread. */
    _Atomic bool known;   /* something has been received */
    _Atomic double heard; /* when last; this and `known` are read by others too */
    uint64_t thread;      /* the kernel id of its control thread; 0: not known */
    tutti__frame head;
    size_t got; /* bytes of header and body that are read */
    int came;   /* descriptor with the frame being read; -1: none */
    char *text; /* memory for a cause */
    /* The handler's memory for the body; NULL: discard it. Accessed between enter and leave. */
    char *into;
    /* Under the lock. */
    bool over; /* the peer has closed the connection */
    bool deaf; /* nothing more can be sent */
    bool wants_out;
    tutti__handle handles[TUTTI__MAX_HANDLES]; /* received, and not taken yet */
    int n_handles;
    tutti__outgoing *current; /* partly sent: must be finished first */
    tutti__outgoing_list out;
    bool streaming;         /* the handler has frames */
    tutti__outgoing stream; /* `current`, if it is of the stream */
} tutti__link;

/* What the thread has found out, and acts on after reading everything available. */
typedef struct tutti__verdict {
    bool set;
    int lost;    /* a rank that closed its connection; -1: see cause */
    bool theirs; /* a peer has found the cause */
    tutti__cause cause;
} tutti__verdict;

struct tutti__control {
    tutti__comm *comm;
    tutti__frame_handler handler;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int epoll, wake; /* wake: an eventfd */
    bool started, has_thread;
    _Atomic bool stopping;
    /* Used by the thread. */
    tutti__verdict verdict;
    char nowhere[16 << 10]; /* for bodies to discard */
    uint64_t tid;
    /* Heartbeat; limit_ms 0: off. */
    double limit_ms, beat_ms, next_beat, judge_at, lap;
    int heartbeat_ms;
    tutti__link links[];
};

bool tutti__link_busy(const tutti__link *link);
/* Sends what the socket takes, but no more than a fair share. With the lock, and the handler entered. */
void tutti__link_push(tutti__control *control, int rank);
/* Drops all queued frames. With the lock. */
void tutti__link_clear(tutti__control *control, int rank);
/* Sends or queues; takes ownership of fd. With the lock. */
void tutti__link_send(tutti__control *control, int rank, const tutti__frame *head, const void *body,
                      int fd);
/* Reads what is available, but no more than a fair share. By the thread. */
void tutti__link_read(tutti__control *control, int rank);

void tutti__heartbeat_start(tutti__control *control, int heartbeat_ms);
int tutti__heartbeat_wait(const tutti__control *control);
/* Sends beats, resets clocks after a stop of this process, judges peers. `all_read`: nothing from peers is left unread. */
void tutti__heartbeat_turn(tutti__control *control, bool all_read);

#endif
