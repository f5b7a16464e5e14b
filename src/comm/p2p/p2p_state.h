/* p2p_state.h -- private parts of point to point.   SPDX-License-Identifier: MIT
 *
 *     request_list.c       lists of requests, and the end of one
 *     frame_send.c         sends a frame, through the ring if there is one, and rings the doorbell
 *     p2p_rendezvous.c     large messages on one host: offered, and copied directly if that is faster
 *     matching.c           posted and unexpected queue
 *     compare_and_swap.c   an atomic a rank, changed by others
 *     window.c             memory that others read
 *     protocol.c           EAGER, RTS, CTS, DATA, CREDIT, GET: the frames between ranks
 *     p2p_progress.c       the lock, reading the rings, doorbells
 *     request.c            requests: start, wait, done
 *     p2p_init.c           init, teardown, the group's failure, a peer's goodbye
 *
 * Each calls only those before it.
 *
 * One lock for everything; a thread that leaves it wakes those for which something was done. It is taken before the
 * control channel's. */
#ifndef TUTTI_COMM_P2P_P2P_STATE_H
#define TUTTI_COMM_P2P_P2P_STATE_H

#include "comm/control/region.h"
#include "comm/core/failure.h"
#include "comm/core/pace.h"
#include "comm/p2p/p2p.h"
#include "comm/p2p/frame_ring.h"

enum {
    TUTTI__FRAME_EAGER = TUTTI__FRAME_OTHERS, /* body: a whole message */
    /* RTS, request to send: a message waits until the receiver asks for it. On one host status is 1 + its offer's number;
     * 0: none */
    TUTTI__FRAME_RTS,
    TUTTI__FRAME_CTS,      /* clear to send: the receiver asks */
    TUTTI__FRAME_DATA,     /* body: the next part */
    TUTTI__FRAME_CREDIT,   /* the receiver has room for `count` more bytes of eager messages */
    TUTTI__FRAME_DOORBELL, /* poll the rings */
    TUTTI__FRAME_SWAP,     /* compare and swap your atomic: `count` expected, `receive` wanted */
    TUTTI__FRAME_SWAPPED,  /* `count`: its value before */
    /* Send `count` bytes of the window `tag` from `id` on, as a message with that tag; when it has version `receive` */
    TUTTI__FRAME_GET
};

enum { TUTTI__SENDERS = 64 }; /* in a word of bits */

/* COST: of an eager message, besides its bytes. CREDIT: bytes of eager messages that a peer may send unasked. */
enum {
    TUTTI__EAGER_BYTES = 16 << 10,
    TUTTI__EAGER_COST = 64,
    TUTTI__DATA_BYTES = 256 << 10,
    TUTTI__CREDIT_BYTES = 256 << 10
};

typedef struct tutti__p2p_list {
    tutti__p2p_request *first, *last;
} tutti__p2p_list;

/* A message that arrives before its receive: complete, being received, or only announced. */
typedef struct tutti__unexpected {
    struct tutti__unexpected *next;
    tutti__frame head;
    uint64_t order;              /* among all that have arrived */
    bool whole;                  /* body is complete */
    bool claimed;                /* by a receive, as soon as it is complete */
    tutti__p2p_request *receive; /* that receive; NULL: it has failed meanwhile */
    tutti__p2p_request *own;     /* announced by this rank itself; else NULL */
    char body[];
} tutti__unexpected;

/* Questions for windows that have not been answered yet, in order. */
typedef struct tutti__p2p_question {
    struct tutti__p2p_question *next;
    int rank;
    tutti__frame head;
} tutti__p2p_question;

/* A frame for which a ring has no room. */
typedef struct tutti__pending {
    struct tutti__pending *next;
    tutti__frame head;
    char body[];
} tutti__pending;

/* One for each rank of a host, visible to all of them. */
typedef struct tutti__doorbell {
    /* TUTTI__BELL_...; a thread that puts data there for the rank, and finds it set, clears it and wakes the rank. */
    _Alignas(64) _Atomic uint32_t bell;
    /* Written before the group is used: for testing whether the rank's memory can be read. */
    _Alignas(64) int64_t pid;
    uint64_t token, token_at;
    _Alignas(64) _Atomic uint64_t atomic; /* compare_and_swap.c */
} tutti__doorbell;
enum {
    TUTTI__BELL_OFF,     /* it polls, or expects nothing */
    TUTTI__BELL_ARMED,   /* it computes: notify its control channel */
    TUTTI__BELL_SLEEPING /* it sleeps on this futex */
};

typedef enum tutti__readable {
    TUTTI__READABLE_UNKNOWN,
    TUTTI__READABLE_YES,
    TUTTI__READABLE_NO
} tutti__readable;

typedef struct tutti__p2p_peer {
    tutti__p2p_list rts_sent;   /* sends that wait to be taken */
    tutti__p2p_list receiving;  /* receives whose body is arriving */
    tutti__p2p_list streams;    /* sends whose parts are sent, in turn */
    tutti__p2p_request *coming; /* the receive of the frame being read */
    tutti__unexpected *first_unexpected, *last_unexpected, *arriving; /* arriving: is being read */
    size_t credit, owed; /* for eager messages; owed: freed, and not yet sent back */
    size_t eager_bytes;  /* at most, of an eager message */
    size_t part_bytes;   /* at most, of a DATA frame */
    bool streamed;       /* a part is being sent through the control channel */
    /* On this host; out.ring NULL: not on this host. Nothing of a ring is touched before it is used. */
    bool used, announced; /* one of the two rings; the peer knows of `out` */
    tutti__ring_writer out;
    tutti__ring_reader in;
    tutti__doorbell *doorbell;
    _Atomic uint64_t *senders; /* in which this rank has the bit own_sender */
    tutti__pending *first_pending, *last_pending;
    tutti__p2p_request *offers[TUTTI__RING_OFFERS]; /* sends; NULL: free */
    int n_offers;
    tutti__readable readable; /* whether its process's memory can be read */
} tutti__p2p_peer;

/* What was found with the lock held; acted on after unlocking. */
typedef struct tutti__p2p_verdict {
    bool set;
    int lost; /* a rank that has left; -1: see cause */
    tutti__cause cause;
} tutti__p2p_verdict;

struct tutti__p2p {
    tutti__comm *comm;
    tutti__control *control;
    pthread_mutex_t lock;
    _Atomic int callers; /* threads that want the lock; pollers let them in */
    bool failed;
    tutti__p2p_verdict verdict;
    tutti__p2p_request *open; /* all that are not done */
    tutti__p2p_list posted;   /* receives that wait for their message, in order */
    tutti__p2p_list copying;  /* receives that are copied directly from the sender's memory */
    uint64_t n_requests;      /* so far: their numbers */
    uint64_t n_unexpected;
    tutti__p2p_window *windows;
    tutti__p2p_question *first_ask, *last_ask;
    int n_pending, n_offers;
    int pollers;                  /* threads that poll the rings */
    bool finished;                /* a request, since the lock was taken */
    double watch_at;              /* when to call tutti__p2p_watch_peers again; its caller's */
    uint64_t watch_below;         /* requests with lower numbers were there the last time */
    tutti__p2p_request *notified; /* done, to be notified when the lock is given back */
    _Atomic int n_watched;        /* open requests with a function to notify */
    /* On this host. */
    tutti__region region;
    int n_local;              /* ranks, without this one */
    int *local_ranks, n_used; /* all, in order; used_ranks: with which messages were exchanged */
    int *used_ranks;
    _Atomic uint64_t
        *senders; /* a bit for each of them that has written into its ring to this rank */
    uint64_t *known_senders, own_sender;
    bool one_process;
    tutti__p2p_memory memory; /* no functions: none */
    /* How often it polls before yielding (fewer times if polls found nothing, as on a machine busy with other work), and
     * yields before sleeping. */
    int most_looks, least_looks, yields;
    _Atomic int looks;
    /* How long a sender waits for a receiver to poll before it wakes the receiver's control thread. */
    uint64_t patience_ns;
    tutti__pace paces[TUTTI__PACE_SIZES]; /* of large receives */
    uint64_t token;
    tutti__doorbell *doorbell, own; /* own: if nothing is shared */
    tutti__p2p_peer peers[];
};

/* ---- request_list.c ---- */
/* Adds it to the list of open requests. */
void tutti__p2p_open(tutti__p2p *p2p, tutti__p2p_request *request);
void tutti__p2p_append(tutti__p2p_list *list, tutti__p2p_request *request);
/* Takes the one after `before`, or the first if that is NULL. */
tutti__p2p_request *tutti__p2p_take_after(tutti__p2p_list *list, tutti__p2p_request *before);
/* NULL: no request has that number. */
tutti__p2p_request *tutti__p2p_take_number(tutti__p2p_list *list, uint64_t number);
/* Marks it done and removes it from the list of open requests. */
void tutti__p2p_finish(tutti__p2p *p2p, tutti__p2p_request *request, tutti_status status);

/* ---- frame_send.c ---- */
/* From now on the rings to and from this rank are polled. */
void tutti__p2p_use_rings(tutti__p2p *p2p, int rank);
/* Through a ring if there is one. */
void tutti__p2p_send_frame(tutti__p2p *p2p, int rank, const tutti__frame *head, const void *body);
/* Tells the peer that there are new data. */
void tutti__p2p_notify(tutti__p2p *p2p, int rank);
/* Writes queued frames to the ring. True if there was one. */
bool tutti__p2p_write_pending(tutti__p2p *p2p, int rank);
void tutti__p2p_drop_pending(tutti__p2p *p2p);

/* ---- p2p_rendezvous.c ---- */
/* Offers the send's memory, and names the offer in its RTS, if possible. */
void tutti__p2p_offer(tutti__p2p *p2p, tutti__p2p_request *send, tutti__frame *rts);
/* The receiver takes it as a stream. */
void tutti__p2p_withdraw(tutti__p2p *p2p, tutti__p2p_request *send);
/* Takes the offer: the receive is in progress, or ends with the group. False: the message must be asked for. */
bool tutti__p2p_claim(tutti__p2p *p2p, const tutti__frame *rts, tutti__p2p_request *receive);
/* A large receive has all of its data: learns from its duration. */
void tutti__p2p_received(tutti__p2p *p2p, const tutti__p2p_request *receive);
/* Copies part of it from the ring. */
void tutti__p2p_copy_part(const tutti__p2p_request *receive, char *to, const char *from,
                          size_t bytes);
/* Copies more. True if there was something. */
bool tutti__p2p_copy_on(tutti__p2p *p2p);
/* Ends sends that have been copied. True if there was one. */
bool tutti__p2p_reap_offers(tutti__p2p *p2p);
/* The group is dead: withdraws the send. False: it is just being copied. */
bool tutti__p2p_revoke(tutti__p2p *p2p, tutti__p2p_request *send);
void tutti__p2p_drop_copying(tutti__p2p *p2p);

/* ---- matching.c ---- */
/* Takes the first receive that matches this message; NULL: none is posted. */
tutti__p2p_request *tutti__p2p_match(tutti__p2p *p2p, int rank, int tag);
/* Whether both have the same elements; if not, the group and the receive fail. */
bool tutti__p2p_agree(tutti__p2p *p2p, const tutti__p2p_request *receive, const tutti__frame *head);
/* Puts it in the unexpected queue, with room for a body; NULL: out of memory, which kills the group. */
tutti__unexpected *tutti__p2p_queue_unexpected(tutti__p2p *p2p, int rank, const tutti__frame *head,
                                               size_t bytes);
/* False if no message for it is available. A complete one is, even in a dead group. */
bool tutti__p2p_receive_unexpected(tutti__p2p *p2p, tutti__p2p_request *receive);
void tutti__p2p_copy_to(tutti__p2p_request *receive, const char *from);
void tutti__p2p_accept_rts(tutti__p2p *p2p, const tutti__frame *rts, tutti__p2p_request *receive);
/* An eager message has been received: its sender may send as much again. */
void tutti__p2p_owe(tutti__p2p *p2p, int rank, size_t bytes);

/* ---- compare_and_swap.c ---- */
void tutti__p2p_send_swap(tutti__p2p *p2p, const tutti__p2p_request *request);
void tutti__p2p_end_swap(tutti__p2p *p2p, int rank, const tutti__frame *head);
void tutti__p2p_end_swapped(tutti__p2p *p2p, int rank, const tutti__frame *head);

/* ---- window.c ---- */
/* MEMORY. */
tutti_status tutti__p2p_set_window(tutti__p2p *p2p, const tutti__p2p_window *window);
void tutti__p2p_end_get(tutti__p2p *p2p, int rank, const tutti__frame *head);
/* The send that answers a question, to be started; NULL: there is none that can be answered. */
tutti__p2p_request *tutti__p2p_next_answer(tutti__p2p *p2p);
void tutti__p2p_drop_windows(tutti__p2p *p2p);

/* ---- protocol.c ---- */
/* Starts the answers to questions that can be answered. */
void tutti__p2p_answer(tutti__p2p *p2p);
void tutti__p2p_send_request(tutti__p2p *p2p, tutti__p2p_request *send);
bool tutti__p2p_frame_valid(const tutti__frame *head);
char *tutti__p2p_frame_begin(tutti__p2p *p2p, int rank, const tutti__frame *head);
void tutti__p2p_frame_end(tutti__p2p *p2p, int rank, const tutti__frame *head);
/* The next part of the streams to this rank; and that it has been sent. */
const char *tutti__p2p_next_part(tutti__p2p *p2p, int rank, tutti__frame *head);
void tutti__p2p_part_sent(tutti__p2p *p2p, int rank);

/* ---- p2p_progress.c ---- */
void tutti__p2p_enter(tutti__p2p *p2p);
bool tutti__p2p_try_enter(tutti__p2p *p2p);
void tutti__p2p_leave(tutti__p2p *p2p);
/* Reads rings, and writes queued frames. True if there was something. */
bool tutti__p2p_progress(tutti__p2p *p2p);
/* Sleeps until there are new data, `ms` at most. */
void tutti__p2p_sleep(tutti__p2p *p2p, const tutti__p2p_request *request, double ms);

/* ---- request.c ---- */
/* The rank has left: kills the group if a request needs it. */
void tutti__p2p_judge_orphans(tutti__p2p *p2p, int rank);
/* Kills the group if the time limit of a watched request, for which perhaps nobody waits, has passed. */
void tutti__p2p_expire_watched(tutti__p2p *p2p);
/* Has the control channel connect to peers for which a request has waited long: that one of many has left is told only of the first. By
 * the control channel's thread. */
void tutti__p2p_watch_peers(tutti__p2p *p2p);

#endif
