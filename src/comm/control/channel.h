/* post.h -- one framed connection between each pair of ranks, read by one thread a group.   SPDX-License-Identifier: MIT
 *
 * It belongs to the group, whatever the transport: beats, goodbyes, causes of failure, descriptors of shared memory, and
 * what tutti_send sends. Its end without a goodbye is a peer's death; its silence, a peer that is stopped or cut off. A
 * group inside another (see tutti_group.outer) has none: it uses the other's. In a group of one it has no thread. */
#ifndef TUTTI_COMM_POST_H
#define TUTTI_COMM_POST_H

#include "comm/group.h"

/* Takes over sockets[r] to each peer (its own: -1) and starts the thread. Silent for heartbeat_ms: dead; 0: however long. */
tutti_status tutti__control_open(tutti_group *group, const int *sockets, int heartbeat_ms);
/* Waits for what is being sent and received, says goodbye, or why the group is dead, and ends the thread. */
void tutti__control_close(tutti_group *group);
/* Tells all peers why the group is dead. */
void tutti__control_tell(tutti_group *group, const tutti__cause *cause);
/* Descriptors to a peer of this host; 0 or an errno. Sending duplicates it; one that is taken is the caller's. */
int tutti__control_send_fd(struct tutti__control *control, int rank, int fd);
int tutti__control_take_fd(struct tutti__control *control, int rank, int *fd_p, double deadline);

/* ---- Sending and receiving: letter.c -------------------------------------------------------------------- */

typedef struct tutti__p2p_request
    tutti__p2p_request; /* one send or receive of this rank that is not finished */

/* A send if print.op says so, else a receive, of print.count elements at p, with the rank in print.root (TUTTI_ANY_RANK for
 * receives, as uint32_t) and print.tag; numbered here. */
tutti_status tutti__p2p_post(tutti_group *group, tutti__signature *signature, void *p,
                             int timeout_ms, tutti_work **work_p);
/* The group is dead: all letters end with its cause. */
void tutti__p2p_fail_all(tutti_group *group);
/* Its time is over: so is the group's, unless it has just been done. */
void tutti__p2p_expire(tutti_group *group, tutti_work *work);

/* ---- Inside: post.c (frames), heartbeat.c (who is silent), letter.c ----------------------------------- */

typedef enum tutti__frame_kind {
    TUTTI__FRAME_BEAT,
    TUTTI__FRAME_GOODBYE,
    TUTTI__FRAME_CAUSE, /* body: the text */
    TUTTI__FRAME_FD,
    /* Of letters. */
    TUTTI__FRAME_EAGER,  /* body: all of a small one */
    TUTTI__FRAME_RTS,    /* of one that waits until the receiver asks for it */
    TUTTI__FRAME_CTS,    /* the receiver asks */
    TUTTI__FRAME_DATA,   /* body: the next piece */
    TUTTI__FRAME_CREDIT, /* the receiver has room for `count` bytes more of small ones */
    TUTTI__N_FRAMES
} tutti__frame_kind;

typedef struct tutti__frame {
    uint32_t kind, bytes;    /* of the body that follows */
    int32_t status, culprit; /* of a cause */
    int32_t tag;
    uint32_t dtype;
    uint64_t count;
    uint64_t id, receive; /* the letter's number at its sender, at its receiver */
} tutti__frame;

/* What is on its way to a peer. */
typedef struct tutti__outgoing {
    struct tutti__outgoing *next;
    tutti__frame head;
    size_t done;                 /* bytes of head and body that are sent */
    int fd;                      /* -1: none */
    tutti__p2p_request *request; /* whose memory the body is; else NULL */
    const char *from;            /* the body */
    char body[];                 /* a copy of it, unless a letter's */
} tutti__outgoing;

typedef struct tutti__outgoing_list {
    tutti__outgoing *first, *last;
} tutti__outgoing_list;

typedef struct tutti__p2p_list {
    tutti__p2p_request *first, *last;
} tutti__p2p_list;

/* A letter that has come before its receive: whole, or coming in, or only offered. */
typedef struct tutti__unexpected {
    struct tutti__unexpected *next;
    tutti__frame head;
    uint64_t order;              /* among all arrivals */
    bool whole;                  /* body is there */
    bool claimed;                /* by a receive, as soon as it is whole */
    tutti__p2p_request *receive; /* which; NULL: it has failed meanwhile */
    tutti__p2p_request *own;     /* offered by this very rank; else NULL */
    char body[];
} tutti__unexpected;

enum { TUTTI__MAX_FDS = 8 };

typedef struct tutti__link {
    int fd;     /* -1: to itself */
    bool known; /* has been heard at all */
    bool over;  /* the peer has hung up */
    bool deaf;  /* nothing more can be sent */
    bool wants_out;
    double heard;    /* when last */
    uint64_t thread; /* of its post, there; 0: not known */
    tutti__frame head;
    size_t got;                        /* bytes of head and body that are read */
    char *into;                        /* where the body goes; NULL: nowhere */
    char *text;                        /* memory for a cause */
    int fds[TUTTI__MAX_FDS], n_fds;    /* that came and are not taken yet */
    tutti__outgoing *current;          /* begun: must be finished before anything else */
    tutti__outgoing_list out, streams; /* streams: pieces, in turn, when nothing else waits */
    /* Letters. */
    tutti__p2p_list rts_sent;   /* sends that wait to be taken */
    tutti__p2p_list receiving;  /* receives whose body is coming */
    tutti__p2p_request *coming; /* the one that the frame being read is for */
    tutti__unexpected *first_unexpected, *last_unexpected, *arriving; /* arriving: is being read */
    size_t credit, owed; /* for small letters; that are received, and not yet told */
} tutti__link;

/* What the reader has found out; acted upon after the lock is left. */
typedef struct tutti__verdict {
    bool set;
    int lost;    /* a rank that hung up; -1: see cause */
    bool theirs; /* a peer has found the cause */
    tutti__cause cause;
} tutti__verdict;

typedef struct tutti__control {
    tutti_group *group;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    pthread_t thread;
    int epoll, wait_word;
    _Atomic int callers; /* who want the lock; the thread lets them in */
    bool stopping, has_thread;
    tutti__verdict verdict;
    tutti__p2p_request *open;    /* all that are not finished */
    tutti__p2p_list posted;      /* that wait for their letter, in order */
    _Atomic uint64_t n_requests; /* so far: numbers for them */
    uint64_t n_unexpected;
    char nowhere[16 << 10]; /* where bodies go that nobody wants any more */
    /* Heartbeat; limit_ms 0: off. */
    double limit_ms, beat_ms, next_beat, judge_at, lap;
    uint64_t tid; /* of the thread */
    int heartbeat_ms;
    tutti__link links[];
} tutti__control;

/* CREDIT: of small letters that a peer may send unasked. */
enum { TUTTI__DATA_BYTES = 256 << 10, TUTTI__CREDIT_BYTES = 256 << 10 };

void tutti__control_lock(tutti__control *control);
void tutti__control_unlock(tutti__control *control);
/* Acts upon what was found out. Not with the lock held, as all below are. */
void tutti__control_settle(tutti__control *control);
void tutti__control_send(tutti__control *control, int rank, const tutti__frame *head,
                         const void *body, int fd);
/* The letter's memory from `from` on is the body: of a small one all, else piece by piece. */
void tutti__control_send_data(tutti__control *control, int rank, const tutti__frame *head,
                              tutti__p2p_request *request, const char *from);
/* Lets go of the memory of all letters. */
void tutti__control_forget_data(tutti__control *control);
bool tutti__link_busy(const tutti__link *link);

/* What a letter's frame may be; where its body goes, NULL: nowhere; it is there. */
bool tutti__p2p_frame_valid(const tutti__frame *head);
char *tutti__p2p_frame_begin(tutti__control *control, int rank);
void tutti__p2p_frame_end(tutti__control *control, int rank);
/* A parcel of it is sent. True if the parcel is now the next piece. */
bool tutti__p2p_frame_sent(tutti__control *control, tutti__outgoing *out_frame);
/* No letter will come from this rank any more, nor be taken by it. */
void tutti__p2p_rank_left(tutti__control *control, int rank);
/* Waits until none is open, or the group is dead. */
void tutti__p2p_flush(tutti__control *control);
void tutti__p2p_free(tutti__control *control);

void tutti__heartbeat_start(tutti__control *control, int heartbeat_ms);
int tutti__heartbeat_wait(const tutti__control *control);
/* Beats, forgives, judges. `all_read`: nothing that peers have said is left unread. */
void tutti__heartbeat_turn(tutti__control *control, bool all_read);

#endif
