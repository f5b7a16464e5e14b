/* control_state.h -- private parts of the control channel.   SPDX-License-Identifier: MIT
 *
 *     flood.c           what a group's ranks pass on to each other
 *     link.c            a connection's beginning
 *     links.c           the connections and their thread
 *     connect.c         connections that are made when they are needed; connect_data.c: those for data
 *     control_init.c    a group on them: open, close
 *     early.c           frames of a group that this rank has yet to make
 *     send.c            outgoing frames: sent at once, or queued if the socket is full
 *     receive.c         incoming frames
 *     memory_handle.c   descriptors and numbers for peers
 *     heartbeat.c       silent peers
 *
 * Links number their peers like the group that was made first; a group made from it numbers its own ranks (members).
 *
 * Two locks. The thread holds `turn` while it acts, and releases it to wait; whoever adds or removes a group holds it too, so
 * that the thread finds each group whole. `lock` protects what all threads access: queues, handles, the ends of links. What
 * only the thread uses needs none. The order is turn, the handler's lock (enter), lock. */
#ifndef TUTTI_COMM_CONTROL_CONTROL_STATE_H
#define TUTTI_COMM_CONTROL_CONTROL_STATE_H

#include "comm/bootstrap/connector.h"
#include "comm/control/control.h"
#include "comm/control/flood.h"

#include "base/base.h"
#include <stdio.h>
#include <string.h>

typedef struct tutti__links tutti__links;

/* A frame to a peer. */
typedef struct tutti__outgoing {
    struct tutti__outgoing *next;
    tutti__wire_head head;
    size_t done;      /* bytes of header and body that are sent */
    int fd;           /* -1: none */
    const char *from; /* the body; a copy of it lies behind this struct, unless it is streamed */
} tutti__outgoing;

typedef struct tutti__outgoing_list {
    tutti__outgoing *first, *last;
} tutti__outgoing_list;

enum {
    TUTTI__LINK_NONE,   /* all other members are 0 */
    TUTTI__LINK_WANTED, /* the thread is about to connect, or the peer will */
    TUTTI__LINK_CONNECTING,
    TUTTI__LINK_OPEN /* or closed again: `over` */
};

typedef struct tutti__link {
    _Atomic int state; /* changed under the lock */
    int fd;            /* if it is OPEN */
    struct tutti__connecting *connecting;
    int64_t pid;  /* of the peer */
    bool is_here; /* on this host */
    /* Used by the thread. */
    _Atomic bool known;   /* something has been received */
    _Atomic double heard; /* when last; this and `known` are read by others too */
    bool silent;          /* while ranks are accused */
    uint64_t thread;      /* the kernel id of its control thread; 0: not known */
    tutti__wire_head head;
    size_t got;              /* bytes of header and body that are read */
    int error;               /* of the last read, an errno; 0: none, or the peer's end */
    int came;                /* descriptor with the frame being read; -1: none; LOST */
    char *text;              /* memory for a cause */
    tutti__control *control; /* of the frame being read; NULL: none has that id */
    /* Under the lock. */
    bool over;         /* the peer has closed the connection, or could not be reached */
    double refused_ms; /* the peer does not listen any more; 0: not so */
    bool deaf;         /* this process could not receive: it reads no more, but can still say why */
    bool unwritable;   /* nothing more can be sent */
    int send_error;    /* for this, an errno, if it is of this process or host */
    bool wants_out;
    tutti__outgoing *current; /* partly sent: must be finished first */
    tutti__outgoing_list out;
    int n_streaming;          /* groups whose handlers have frames */
    tutti__outgoing stream;   /* `current`, if it is of the stream */
    tutti__control *streamer; /* the group of that, or of the last one */
} tutti__link;

/* What the thread has found out about a group, and acts on after reading everything available. */
typedef struct tutti__verdict {
    bool set;
    int lost;    /* a rank that closed its connection; -1: see cause */
    bool theirs; /* a peer has found the cause */
    tutti__cause cause;
} tutti__verdict;

/* A frame that came before its group was made here. */
typedef struct tutti__early {
    struct tutti__early *next;
    int link, fd;
    tutti__wire_head head;
    char text[];
} tutti__early;

struct tutti__links {
    char name[64];  /* of the first group */
    int size, rank; /* in it */
    uint64_t id;    /* of it */
    uint64_t
        first_id; /* under which its ranks connected, and by which one that has yet to learn `id` names it */
    /* Of connections that are made later; directory NULL: none. */
    tutti__directory *directory;
    tutti__listeners listeners;
    tutti__secret secret;
    tutti__acceptor *acceptor;
    tutti__early_data *data; /* connections for data that nobody has taken; under the lock */
    _Atomic int n_wanted;    /* links for which the thread has yet to do something */
    _Atomic int n_refused;   /* links whose peers no longer listen */
    _Atomic bool has_broken; /* links with a send_error that the thread has yet to see */
    int connect_ms;          /* at most, for a connection */
    /* The links that are not NONE, in the order of their first use. Grown under the lock. */
    int *used;
    _Atomic int n_used;
    pthread_mutex_t turn, lock;
    _Atomic int entrants; /* threads that wait for the turn */
    pthread_cond_t changed;
    pthread_t thread, reporter; /* reporter: started by the first failure */
    int epoll, wake;            /* wake: an eventfd */
    bool started, has_thread, has_reporter;
    _Atomic bool stopping;
    tutti__control *controls; /* changed with both locks */
    tutti__early *early;      /* oldest first; used with the turn */
    int n_early;
    char nowhere[16 << 10]; /* for bodies to discard */
    uint64_t tid;
    /* Heartbeat; limit_ms 0: off. Used by the thread. */
    double limit_ms, beat_ms, next_beat, judge_at, lap;
    int heartbeat_ms;
    tutti__link at[];
};

typedef struct tutti__handle {
    struct tutti__handle *next;
    tutti__handed handed;
} tutti__handle;

/* LOST: in place of a descriptor that came, for which this process had none. */
enum { TUTTI__MAX_HANDLES = 8, TUTTI__LOST = -2 };

/* Of a failure that no call has reported. */
enum { TUTTI__REPORT_NONE, TUTTI__REPORT_DUE, TUTTI__REPORT_RUNNING, TUTTI__REPORT_DONE };

/* REFUSAL: of a rank that had yet to make the group. */
enum { TUTTI__HEARD_NOTHING, TUTTI__HEARD_CAUSE, TUTTI__HEARD_REFUSAL };

/* A rank of a group. */
typedef struct tutti__member {
    int link;
    /* The handler's memory for the body that is being read; NULL: discard it. Accessed between enter and leave. */
    char *into;
    /* Under the lock. */
    bool streaming;         /* the handler has frames for it */
    tutti__handle *handles; /* received, and not taken yet: the oldest first */
} tutti__member;

struct tutti__control {
    tutti__control *next;
    tutti__links *links;
    tutti__comm *comm;
    tutti__frame_handler handler;
    _Atomic bool opening; /* not all ranks are known to have made it */
    bool says_goodbye;    /* this rank leaves: who connects now hears that; under the lock */
    _Atomic int heard;    /* TUTTI__HEARD_...: why it is dead, by another rank */
    /* While it is opening: it is made from this one, whose death ends that. Changed with the turn. */
    const tutti__control *parent;
    _Atomic bool has_work;
    int *rank_at;            /* by link; -1: not a member */
    int *near;               /* the neighbours' ranks: flood.to */
    tutti__data_events data; /* under the lock */
    tutti__flood flood;      /* with the turn, but `told` also under the lock */
    /* Used by the thread. */
    tutti__verdict verdict;
    double died;        /* when the thread saw that; 0: alive */
    double orphaned;    /* when it saw that the parent died while this is opening; else 0 */
    _Atomic int report; /* TUTTI__REPORT_...; changed under the lock */
    tutti__member members[];
};

/* A peer has told the cause. With the turn. */
static inline void tutti__control_judge_cause(tutti__control *control, const tutti__frame *head,
                                              const char *text)
{
    tutti__verdict *verdict = &control->verdict;

    if (verdict->set)
        return;
    *verdict = (tutti__verdict){.set = true, .lost = -1, .theirs = true};
    atomic_store(&control->heard, head->count > 0 ? TUTTI__HEARD_REFUSAL : TUTTI__HEARD_CAUSE);
    verdict->cause.status = head->status;
    verdict->cause.culprit = head->culprit;
    verdict->cause.own = head->own;
    if (text)
        memcpy(verdict->cause.text, text, head->bytes);
    else if (head->bytes > 0)
        snprintf(verdict->cause.text, sizeof verdict->cause.text,
                 "rank %d is the cause, but this rank had no memory for the message that says why",
                 head->culprit);
}

/* ---- memory_handle.c ---- */
/* Takes ownership of the descriptor, which came with the frame. With the turn. */
void tutti__control_keep_handle(tutti__control *control, int rank, int fd,
                                const tutti__frame *head);

/* ---- link.c ---- */
void tutti__links_wake(tutti__links *links);
/* Makes it one of those in use; with the lock. */
void tutti__link_use(tutti__links *links, int at, int state);
/* The thread waits for it too. 0 or an errno. */
int tutti__link_poll(tutti__links *links, int at, int fd);

/* What a connection to the rank behind the link says, and expects to hear. who: for messages. */
void tutti__link_describe(tutti__connector_opts *opts, tutti__claim *theirs, char *who,
                          size_t capacity, const tutti__links *links, int at);
/* In how many milliseconds an attempt that failed may be made again, 0: not at all. It may if the peer's queue is full, if it has no
 * descriptor free, or if it has closed the connection: an acceptor that makes room does so, or a process that ends, and the next attempt shows
 * which. *full_ms: since when it has no descriptor, kept for the next time. */
int tutti__link_again(const tutti__connector *c, double *full_ms, double deadline);

/* ---- links.c ---- */
/* Takes ownership as tutti__control_open, and starts no thread. NULL: out of memory. */
tutti__links *tutti__links_new(const tutti__comm *comm, const tutti__control_opts *opts);
/* Starts the thread. 0 or an errno. */
int tutti__links_start(tutti__links *links);
/* Waits for the kernel to send what it holds, ends the thread, closes the connections. */
void tutti__links_close(tutti__links *links, double deadline);
void tutti__links_enter(tutti__links *links);
void tutti__links_leave(tutti__links *links);

/* ---- connect.c: by the thread ---- */
/* 0 or an errno. */
int tutti__connect_start(tutti__links *links);
/* Begins connections that are wanted, and ends what takes too long. */
void tutti__connect_turn(tutti__links *links);
/* Milliseconds until there is something to do without an event; -1: nothing. */
int tutti__connect_wait(tutti__links *links);
/* Its descriptor is ready. */
void tutti__connect_advance(tutti__links *links, int at);
void tutti__connect_stop(tutti__links *links);

/* ---- connect_data.c ---- */
/* The verdict on one that has come, and that it is welcome. By the thread. */
char tutti__data_decide(tutti__links *links, const tutti__claim *claim);
void tutti__data_welcome(tutti__links *links, int fd, const tutti__claim *claim);
/* Closes those of groups that are not here, and have had the time to be made. When the next of them is to be closed; 1e300: there is none. By
 * the thread. */
void tutti__data_expire(tutti__links *links, double now);
double tutti__data_expiry(tutti__links *links);
/* With the lock. */
void tutti__control_drop_data(tutti__control *control);

/* ---- early.c: with the turn ---- */
/* Keeps the frame that the link has just received, if its group may be about to be made here. */
void tutti__early_keep(tutti__links *links, int at);
/* Hands over what came for this group. */
void tutti__early_deliver(tutti__control *control);
void tutti__early_drop_all(tutti__links *links);

/* ---- send.c ---- */
/* Passes on to the neighbours that the rank has left. */
void tutti__control_pass_left(tutti__control *control, int rank, int from, uint64_t seen);
/* To the neighbours, and to all others of the group that have a connection, or make one. */
void tutti__control_say_goodbye(tutti__control *control);
/* It is connected: what waits is sent. 0 or an errno; the descriptor belongs to the link in any case. By the thread. */
int tutti__link_opened(tutti__links *links, int at, int fd);
bool tutti__link_busy(const tutti__link *link);
/* Whether something of this group is still to be sent to its rank. With the lock. */
bool tutti__control_busy(const tutti__control *control, int rank);
/* Sends what the socket takes, but no more than a fair share. By the thread, without the lock. */
void tutti__link_push(tutti__links *links, int at);
/* Reads no more from it. With the lock. */
void tutti__link_deafen(tutti__links *links, int at);
/* Drops all queued frames. With the lock. */
void tutti__link_clear(tutti__links *links, int at);
/* Has the thread connect, if that is needed. With the lock. */
void tutti__link_want(tutti__links *links, int at);
/* Sends or queues; takes ownership of fd. With the lock. */
void tutti__link_send(tutti__links *links, int at, const tutti__wire_head *head, const void *body,
                      int fd);

/* ---- receive.c ---- */
/* The link is over, for the groups that the peer has not left with the verdict that `judge` returns, of the rank in that group. By the
 * thread. */
typedef tutti__verdict tutti__end_judge(const tutti__comm *comm, int rank, const void *why);
void tutti__link_end(tutti__links *links, int at, tutti__end_judge *judge, const void *why);
/* The rank has left, as it says itself, or as `from` has heard; its last call is `seen`. With the turn. */
void tutti__control_farewell(tutti__control *control, int rank, int from, uint64_t seen);
/* Ends the links to which this process could not send. By the thread. */
void tutti__links_end_broken(tutti__links *links);
/* Reads what is available, but no more than a fair share. By the thread. */
void tutti__link_read(tutti__links *links, int at);

/* ---- heartbeat.c ---- */
void tutti__heartbeat_start(tutti__links *links, int heartbeat_ms);
int tutti__heartbeat_wait(const tutti__links *links);
/* Sends beats, resets clocks after a stop of this process, judges peers. `all_read`: nothing from peers is left unread. */
void tutti__heartbeat_turn(tutti__links *links, bool all_read);

#endif
