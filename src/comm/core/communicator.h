/* communicator.h -- the ranks of a group and whether they are alive: all that every part of communication sees of it.
 * SPDX-License-Identifier: MIT
 *
 * A failure is reported to failure.h, which calls the registered observers that must act on it: the transport that must
 * wake up, the control channel that tells the peers, the flight recorder. */
#ifndef TUTTI_COMM_CORE_COMMUNICATOR_H
#define TUTTI_COMM_CORE_COMMUNICATOR_H

#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct tutti__comm tutti__comm;

/* Why a group is dead. */
typedef struct tutti__cause {
    int32_t status;  /* OK: it is alive */
    int32_t culprit; /* rank, -1: none in particular */
    int32_t own;     /* of ABORTED: the status with which the culprit ends; OK: not known */
    char text[1024];
} tutti__cause;

typedef struct tutti__peer {
    char host[64];
    int64_t pid;
    int32_t world_rank;    /* its rank in the job, of which this group may be a part */
    _Atomic bool left;     /* said goodbye */
    _Atomic uint64_t seen; /* 1 + the sequence of its last known call; 0: none */
} tutti__peer;

/* For tests: smaller sizes, other paths. 0: the default. */
typedef struct tutti__tuning {
    size_t chunk_bytes; /* of a staging buffer; rank 0's value holds for all */
    bool stage_all;     /* behave as if no memory could be read by peers */
    int spin;           /* sched_yields before sleeping; -1: none */
    int host;           /* not 0: ranks with another number count as on another host */
    int fan;            /* of the tree by which ranks of a host wait for each other; 1: no tree */
    /* The port to publish, given the one at which this rank listens; NULL: that one. */
    int (*advertise)(int rank, int port);
} tutti__tuning;

/* Any function may be NULL. They are called from any thread. */
typedef struct tutti__observer {
    void *self;
    /* This rank has found a failure, and knew of none before. Before all others: while the group is being made, replaces *cause by that of
     * a rank that this one cannot hear yet. */
    void (*agree)(void *self, tutti__cause *cause);
    /* The same. Agrees with the others on the cause: if another rank was first,
     * *cause becomes its cause; then tells them. Called in reverse order of registration. */
    void (*announce)(void *self, tutti__cause *cause);
    /* Adopts a failure that another rank announced, if only this observer can see it. */
    void (*look)(void *self);
    /* The group is dead. `first`: the first call; there may be more. */
    void (*failed)(void *self, bool first);
    /* A peer has left cleanly. */
    void (*left)(void *self, int rank);
    /* A call is about to return the failure to the program. */
    void (*report)(void *self);
} tutti__observer;

enum { TUTTI__MAX_OBSERVERS = 6 };

struct tutti__comm {
    int rank, size, local_rank, local_size, timeout_ms;
    uint64_t id;
    uint64_t choices; /* a hash of what ranks choose algorithms by, while the group is made */
    char name[64];
    tutti__tuning tuning;
    tutti__peer *peers;
    /* NULL, or the communicator of which this one is a part (one host's ranks): it has the control channel and the cause
     * of death, and its ranks appear in all messages. */
    tutti__comm *outer;
    int *outer_ranks;    /* each rank's number there */
    tutti__comm *parent; /* while it is made from another group: that one; else NULL */

    pthread_mutex_t failure_lock;
    tutti__cause cause; /* written once, before `failed` */
    _Atomic bool failed;
    _Atomic bool any_left;
    tutti__observer observers[TUTTI__MAX_OBSERVERS];
    _Atomic int n_observers;
    /* 1 + the index of the only observer with `look`; 0: none. Checked in each call */
    _Atomic int looker;
};

/* `comm` is zeroed except rank, size and what the caller knows; allocates its peers. MEMORY. */
tutti_status tutti__comm_init(tutti__comm *comm);
void tutti__comm_destroy(tutti__comm *comm);
/* Register from one thread at a time; any thread may call them afterwards. */
void tutti__comm_observe(tutti__comm *comm, const tutti__observer *observer);
/* Of one without `look`, in a group that no other thread knows yet. */
void tutti__comm_forget_observer(tutti__comm *comm, const void *self);

/* The communicator that holds the failure state: this one, or its outermost `outer`. */
tutti__comm *tutti__comm_outermost(tutti__comm *comm);
/* The rank's number there, as in messages. */
int tutti__comm_outer_rank(const tutti__comm *comm, int rank);
/* "rank 3 (hostb, process 4711)" */
void tutti__comm_peer_text(const tutti__comm *comm, int rank, char *text, size_t capacity);
/* Whether the rank has left cleanly. */
bool tutti__comm_has_left(const tutti__comm *comm, int rank);
/* Whether any has. */
bool tutti__comm_any_left(tutti__comm *comm);
/* Records that its goodbye has been received. */
void tutti__comm_note_left(tutti__comm *comm, int rank);
/* Bytes of a chunk, whole cache lines: the tests' value, else `standard`. */
size_t tutti__comm_chunk_bytes(const tutti__comm *comm, size_t standard);

#endif
