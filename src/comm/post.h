/* post.h -- one framed connection between each pair of ranks, read by one thread a group.   SPDX-License-Identifier: MIT
 *
 * It belongs to the group, whatever the transport: beats, goodbyes, causes of failure, descriptors of shared memory. Its
 * end without a goodbye is a peer's death; its silence, a peer that is stopped or cut off. A group inside another (see
 * tutti_group.outer) has none: it uses the other's. */
#ifndef TUTTI_COMM_POST_H
#define TUTTI_COMM_POST_H

#include "comm/group.h"

/* Takes over sockets[r] to each peer (its own: -1) and starts the thread. Silent for heartbeat_ms: dead; 0: however long. */
tutti_status tutti__post_open(tutti_group *group, const int *sockets, int heartbeat_ms);
/* Says goodbye, or why the group is dead, waits until that is on its way, and ends the thread. */
void tutti__post_close(tutti_group *group);
/* Tells all peers why the group is dead. */
void tutti__post_tell(tutti_group *group, const tutti__cause *cause);
/* Descriptors to a peer of this host; 0 or an errno. Sending duplicates it; one that is taken is the caller's. */
int tutti__post_send_fd(tutti_group *group, int rank, int fd);
int tutti__post_take_fd(tutti_group *group, int rank, int *fd_p, double deadline);

/* ---- Inside: post.c (frames), heartbeat.c (who is silent) -------------------------------------------- */

typedef enum tutti__frame_kind {
    TUTTI__FRAME_BEAT,
    TUTTI__FRAME_GOODBYE,
    TUTTI__FRAME_CAUSE, /* body: the text */
    TUTTI__FRAME_FD
} tutti__frame_kind;

typedef struct tutti__frame {
    uint32_t kind;
    int32_t status, culprit; /* of a cause */
    uint32_t bytes;          /* of the body that follows */
} tutti__frame;

/* What is on its way to a peer. */
typedef struct tutti__parcel {
    struct tutti__parcel *next;
    tutti__frame head;
    size_t done; /* bytes of head and body that are sent */
    int fd;      /* -1: none */
    char body[];
} tutti__parcel;

enum { TUTTI__MAX_FDS = 8 };

typedef struct tutti__link {
    int fd;     /* -1: to itself */
    bool known; /* has been heard at all */
    bool over;  /* the peer has hung up */
    bool deaf;  /* nothing more can be sent */
    bool wants_out;
    double heard; /* when last */
    tutti__frame head;
    size_t got; /* bytes of head and body that are read */
    char *body;
    int fds[TUTTI__MAX_FDS], n_fds; /* that came and are not taken yet */
    tutti__parcel *first, *last;
} tutti__link;

/* What the reader has found out; acted upon after the lock is left. */
typedef struct tutti__verdict {
    bool set;
    int lost;    /* a rank that hung up; -1: see cause */
    bool theirs; /* a peer has found the cause */
    tutti__cause cause;
} tutti__verdict;

typedef struct tutti__post {
    tutti_group *group;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    pthread_t thread;
    int epoll, bell;
    bool stopping;
    tutti__verdict verdict;
    /* Heartbeat; limit_ms 0: off. */
    double limit_ms, beat_ms, next_beat, judge_at, lap;
    int heartbeat_ms;
    tutti__link links[];
} tutti__post;

/* With the lock held. */
void tutti__post_say(tutti__post *post, int rank, const tutti__frame *head, const void *body,
                     int fd);
void tutti__heartbeat_start(tutti__post *post, int heartbeat_ms);
int tutti__heartbeat_wait(const tutti__post *post);
/* Beats, forgives, judges. `all_read`: nothing that peers have said is left unread. */
void tutti__heartbeat_turn(tutti__post *post, bool all_read);

#endif
