/* queue_state.h -- the inside of a queue and of a work handle, for work_state.c, queue.c and work.c, in this order.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_QUEUE_STATE_H
#define TUTTI_COMM_ENGINE_QUEUE_STATE_H

#include "comm/engine/device_buffers.h"
#include "comm/engine/flight_recorder.h"
#include "comm/p2p/p2p.h"

typedef struct tutti__task {
    tutti__operation op;
    tutti_status (*call)(void *arg); /* instead of op, unless NULL */
    void (*drop)(void *arg);         /* called last, even if call was not; or NULL */
    void *arg;
    tutti__pooled_event *event; /* op's, if the queue made it */
} tutti__task;

/* AWAITED: a thread sleeps until it is done; WATCHED: on_done is to be called; DONE: neither any more. */
enum { TUTTI__AWAITED = 1, TUTTI__WATCHED = 2, TUTTI__DONE = 4 };

struct tutti_work {
    tutti_work *next;
    struct tutti__queue *queue;
    tutti__task task;
    tutti_status status;
    uint64_t begin_ns, end_ns;
    _Atomic uint32_t state; /* 0: not done; TUTTI__AWAITED ... */
    _Atomic int references; /* the program's, and one more until a collective is done */
    char *message;          /* of a failure; NULL: none, or out of memory */
    _Atomic bool held;      /* the thread has not been woken for it; written under the lock */
    bool is_p2p; /* a send or receive: `request` holds it, and the members above are unused */
    bool has_bounce;
    _Atomic bool has_on_done; /* on_done is called once, with a reference of its own */
    void (*on_done)(void *arg);
    void *on_done_arg;
    tutti__p2p_request request;
    tutti__bounce bounce;
    size_t counts[]; /* of an uneven operation: op.src_counts, op.dst_counts */
};

struct tutti__queue {
    tutti__comm *comm;
    tutti__engine *engine;
    tutti__flight *flight;
    tutti__devices *devices;
    _Atomic int timeout_ms;
    _Atomic uint64_t sequence; /* of the next operation */
    _Atomic uint64_t bytes;    /* contributed by this rank */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Written under the lock; `first` is also read without it. */
    tutti_work *_Atomic first;
    tutti_work *last;
    _Atomic bool running; /* a thread has the turn; set without the lock */
    bool stopping, has_thread;
    pthread_t thread;
};

/* ---- work_state.c ---- */
void tutti__work_free(tutti_work *work);
/* Gives a reference back; the last one frees it. */
void tutti__work_let_go(tutti_work *work);
/* Its task has run, with work->status and its message: lets waiters go on, and gives the queue's reference back. */
void tutti__work_set_done(tutti_work *work);
/* Calls the program's function, and gives its reference back. */
void tutti__work_call_back(tutti_work *work);
/* Of a collective that will run: waits until it is done or the deadline has passed (0: no deadline). */
bool tutti__work_sleep(tutti_work *work, double deadline);
/* Of one that is done, with the message. */
tutti_status tutti__work_status(const tutti_work *work);

/* ---- queue.c ---- */
/* Makes held work run: with `run` on this thread, in call order, else on the communication thread. */
void tutti__queue_release(tutti_work *work, bool run);

#endif
