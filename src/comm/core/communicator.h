/* communicator.h -- the ranks of a group and whether they live: all that every part of communication sees of it.
 * SPDX-License-Identifier: MIT
 *
 * A failure is made known downwards only: who finds one calls failure.h, and whoever must act on it (the transport that is
 * to wake up, the control channel that tells the peers, the flight recorder) has registered as an observer. */
#ifndef TUTTI_COMM_CORE_COMMUNICATOR_H
#define TUTTI_COMM_CORE_COMMUNICATOR_H

#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct tutti__comm tutti__comm;

/* Why a group is dead. */
typedef struct tutti__cause {
    int32_t status;  /* OK: it lives */
    int32_t culprit; /* rank, -1: none in particular */
    char text[1024];
} tutti__cause;

typedef struct tutti__peer {
    char host[64];
    int64_t pid;
    int32_t world_rank;    /* its rank in the job; this group may be a part of it */
    _Atomic bool left;     /* said goodbye */
    _Atomic uint64_t seen; /* 1 + the sequence of the last call that it announced; 0: none */
} tutti__peer;

/* Sizes that tests make small. Zero means default. */
typedef struct tutti__tuning {
    size_t chunk_bytes; /* a staging buffer's; rank 0's counts for all */
    bool stage_all;     /* behave as if no memory could be read by peers */
    int spin;           /* times the core is given away before sleeping; -1: none */
    int host;           /* not 0: as if ranks with another number were on another host */
    /* The port that others are to call, given the one at which this rank listens; NULL: that one. */
    int (*advertise)(int rank, int port);
} tutti__tuning;

/* Any function may be NULL. They are called from any thread. */
typedef struct tutti__observer {
    void *self;
    /* This rank is the first here to find a failure. Agrees with the others on the cause: if another rank was first, *cause
     * becomes its; then tells them. In the reverse order of registration. */
    void (*announce)(void *self, tutti__cause *cause);
    /* Adopts a failure that another rank announced where only this observer sees it. */
    void (*look)(void *self);
    /* The group is dead. `first`: this is the first call; there may be more. */
    void (*failed)(void *self, bool first);
    /* A peer has said goodbye. */
    void (*left)(void *self, int rank);
    /* A call is about to return the failure to the program. */
    void (*report)(void *self);
} tutti__observer;

enum { TUTTI__MAX_OBSERVERS = 6 };

struct tutti__comm {
    int rank, size, local_rank, local_size, timeout_ms;
    uint64_t id;
    char name[64];
    tutti__tuning tuning;
    tutti__peer *peers;
    /* NULL, or the communicator inside which this one works and dies: its control channel, its causes, its ranks in all
     * messages. */
    tutti__comm *outer;
    int *outer_ranks;    /* of each rank here */
    tutti__comm *parent; /* while a split sets this one up: its death ends that; else NULL */

    pthread_mutex_t failure_lock;
    tutti__cause cause; /* written once, before `failed` */
    _Atomic bool failed;
    tutti__observer observers[TUTTI__MAX_OBSERVERS];
    _Atomic int n_observers;
    _Atomic int
        looker; /* 1 + the observer that looks, of which there is one at most; 0: none. Each call asks it */
};

/* `comm` is zeroed but for rank, size and what the caller knows; its peers are made here. MEMORY. */
tutti_status tutti__comm_init(tutti__comm *comm);
void tutti__comm_destroy(tutti__comm *comm);
/* Observers stay until the end. One thread at a time registers; from then on any thread may call it. */
void tutti__comm_observe(tutti__comm *comm, const tutti__observer *observer);

/* The one that lives and dies for this one. */
tutti__comm *tutti__comm_outermost(tutti__comm *comm);
/* What the rank is called there, and in messages. */
int tutti__comm_outer_rank(const tutti__comm *comm, int rank);
/* "rank 3 (hostb, process 4711)" */
void tutti__comm_peer_text(const tutti__comm *comm, int rank, char *text, size_t capacity);
/* Whether the rank has said goodbye. */
bool tutti__comm_has_left(const tutti__comm *comm, int rank);
/* Its goodbye has just been heard. */
void tutti__comm_note_left(tutti__comm *comm, int rank);
/* Bytes of a chunk, whole cache lines: what tests ask for, else `standard`. */
size_t tutti__comm_chunk_bytes(const tutti__comm *comm, size_t standard);

#endif
