/* state.h -- the inside of the control channel.   SPDX-License-Identifier: MIT
 *
 *     init.c        open, the thread, close
 *     send.c        frames that go: at once, or queued where the socket is full
 *     receive.c     frames that come
 *     handle.c      descriptors and numbers for peers
 *     heartbeat.c   who is silent
 *
 * The lock is of what several threads touch: queues, handles, the ends of links. What only the thread reads and writes
 * needs none. Where both are taken, the handler's (enter) comes before it. */
#ifndef TUTTI_COMM_CONTROL_STATE_H
#define TUTTI_COMM_CONTROL_STATE_H

#include "comm/control/channel.h"

#include "base/base.h"

/* What is on its way to a peer. */
typedef struct tutti__outgoing {
    struct tutti__outgoing *next;
    tutti__frame head;
    size_t done;      /* bytes of head and body that are sent */
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
    /* Of the thread. */
    _Atomic bool known;   /* has been heard at all */
    _Atomic double heard; /* when last; these two are read by others too */
    uint64_t thread;      /* of its control channel, there; 0: not known */
    tutti__frame head;
    size_t got; /* bytes of head and body that are read */
    int came;   /* descriptor with the frame that is being read; -1: none */
    char *text; /* memory for a cause */
    /* Where the handler wants the body; NULL: nowhere. Read and written between enter and leave. */
    char *into;
    /* Under the lock. */
    bool over; /* the peer has hung up */
    bool deaf; /* nothing more can be sent */
    bool wants_out;
    tutti__handle handles[TUTTI__MAX_HANDLES]; /* that came and are not taken yet */
    int n_handles;
    tutti__outgoing *current; /* begun: must be finished before anything else */
    tutti__outgoing_list out;
    bool streaming;         /* the handler has frames */
    tutti__outgoing stream; /* the one that is `current`, if it is of the stream */
} tutti__link;

/* What the thread has found out, and acts upon when it has read all there is. */
typedef struct tutti__verdict {
    bool set;
    int lost;    /* a rank that hung up; -1: see cause */
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
    /* Of the thread. */
    tutti__verdict verdict;
    char nowhere[16 << 10]; /* where bodies go that nobody wants any more */
    uint64_t tid;
    /* Heartbeat; limit_ms 0: off. */
    double limit_ms, beat_ms, next_beat, judge_at, lap;
    int heartbeat_ms;
    tutti__link links[];
};

bool tutti__link_busy(const tutti__link *link);
/* Sends what can be sent now, but no more than a fair share of it. With the lock, and the handler entered. */
void tutti__link_push(tutti__control *control, int rank);
/* Drops all that waits. With the lock. */
void tutti__link_clear(tutti__control *control, int rank);
/* Queues or sends, taking over fd. With the lock. */
void tutti__link_send(tutti__control *control, int rank, const tutti__frame *head, const void *body,
                      int fd);
/* Reads what there is, but no more than a fair share of it. By the thread. */
void tutti__link_read(tutti__control *control, int rank);

void tutti__heartbeat_start(tutti__control *control, int heartbeat_ms);
int tutti__heartbeat_wait(const tutti__control *control);
/* Beats, forgives, judges. `all_read`: nothing that peers have said is left unread. */
void tutti__heartbeat_turn(tutti__control *control, bool all_read);

#endif
