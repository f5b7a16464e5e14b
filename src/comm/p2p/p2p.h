/* p2p.h -- point to point: sends and receives between two ranks, matched by rank and tag.   SPDX-License-Identifier: MIT
 *
 * A message up to the eager limit is sent at once, as long as its receiver has room for it (credit); there it waits in the
 * unexpected queue for its receive. Any other waits in the sender's memory for a rendezvous (RTS). So unexpected messages
 * take bounded memory, and a message without a receive delays no other. Messages from one rank arrive in the order of its
 * sends, so matching in the order of arrival is matching in call order.
 *
 * Between ranks of one host messages go through rings in shared memory. Large ones do too, or are copied once, from the sender's
 * memory to the receiver's, whichever was faster so far; between hosts they are frames of the control channel. A thread that waits for a request polls
 * the rings itself; for a rank that computes, its control channel's thread does, woken by a doorbell. */
#ifndef TUTTI_COMM_P2P_P2P_H
#define TUTTI_COMM_P2P_P2P_H

#include "comm/control/control.h"
#include "comm/core/operation.h"

typedef struct tutti__p2p tutti__p2p;

/* One send or receive. The caller owns its memory, which must stay until it is done. */
typedef struct tutti__p2p_request {
    /* Valid when it is done, by tutti__p2p_test or tutti__p2p_wait. */
    tutti_status status;
    char *message; /* of a failure; the caller frees it. NULL: none, or out of memory */
    int peer;      /* the other rank; TUTTI_ANY_RANK until a message arrives */

    /* Private. */
    tutti__p2p *p2p;
    tutti__signature signature; /* its sequence is the request's number */
    char *p;
    size_t bytes, moved;
    struct tutti__p2p_request *next_open, **place; /* in the list of open requests */
    struct tutti__p2p_request *next;               /* in one other list */
    int timeout_ms;
    double deadline; /* 0: not started */
    bool polls;      /* its waiter is counted among the pollers */
    /* Nobody waits for it: called when it ends, instead of setting `done`; frees the request. */
    void (*drop)(struct tutti__p2p_request *request);
    /* Called when it is done, without the lock; the memory stays until then. NULL: nobody asked. */
    void (*notify)(struct tutti__p2p_request *request);
    struct tutti__p2p_request *next_notified;
    struct tutti__ring_offer *offer; /* NULL, or of a rendezvous in shared memory */
    /* number of the peer's request: the one offered, or the one that receives the stream */
    uint64_t other;
    int method;        /* of a large receive: how its bytes are moved */
    uint64_t began_ns; /* a large receive whose speed is measured; 0: it is not */
    _Atomic bool done;
} tutti__p2p_request;

tutti_status tutti__p2p_new(tutti__p2p **p2p_p, tutti__comm *comm);
/* For the control channel, before it is opened. */
tutti__frame_handler tutti__p2p_handler(tutti__p2p *p2p);
/* From now on it may be used; control is NULL in a group of one. */
void tutti__p2p_attach(tutti__p2p *p2p, tutti__control *control);
/* This rank and `ranks`, n of them in order, are on one host: they share memory for messages. All of them call it at the
 * same place; one_process: they are threads. If no memory is available, messages go through the control channel. */
tutti_status tutti__p2p_share(tutti__p2p *p2p, const int *ranks, int n, bool one_process,
                              double deadline);
/* Memory that ranks of this host have mapped, such as a transport's; `rank` as numbered by the control channel. */
typedef struct tutti__p2p_memory {
    void *self;
    /* The position of bytes of this rank in it; false: not in it. */
    bool (*find)(void *self, const void *p, size_t bytes, uint64_t *segment, uint64_t *offset);
    /* Copies from there, from `rank`'s part; false: this rank has released it. */
    bool (*copy)(void *self, int rank, uint64_t segment, uint64_t offset, void *to, size_t bytes);
} tutti__p2p_memory;
/* Before the first request. It must outlive the control channel. */
void tutti__p2p_set_memory(tutti__p2p *p2p, const tutti__p2p_memory *memory);
/* Waits until no request is open, or the group is dead. After that the control channel may be closed, and then this be freed. */
void tutti__p2p_flush(tutti__p2p *p2p);
void tutti__p2p_free(tutti__p2p *p2p);

/* The rank's atomic, if it is in memory of this rank or of its host; else NULL: a message must ask for it. */
_Atomic uint64_t *tutti__p2p_atomic(tutti__p2p *p2p, int rank);

/* Memory of this rank that others read, by messages with this tag, which nothing else has. p NULL: not now. */
typedef struct tutti__p2p_window {
    struct tutti__p2p_window *next; /* private */
    int tag, timeout_ms;            /* of the sends */
    const void *p;
    size_t bytes;
    uint64_t version; /* questions for a later one wait for it */
} tutti__p2p_window;

/* Opens a window, or replaces it. The memory stays, and so does what is in it, until all that may ask for this version have read.
 * MEMORY. */
tutti_status tutti__p2p_expose(tutti__p2p *p2p, const tutti__p2p_window *window);
/* Asks for bytes of the rank's window. The receive for them has been started; of several, in the order in which they are asked for. */
void tutti__p2p_ask(tutti__p2p *p2p, int rank, int tag, uint64_t version, size_t offset,
                    size_t bytes);

/* A send, a receive or a compare-and-swap, according to signature->op: of signature->count elements at p, with the rank
 * signature->root (TUTTI_ANY_RANK for receives, as uint32_t) and signature->tag; p of a swap: a tutti__compare_and_swap.
 * `waits`: the caller calls tutti__p2p_wait at once. */
void tutti__p2p_start(tutti__p2p *p2p, tutti__p2p_request *request,
                      const tutti__signature *signature, void *p, int timeout_ms, bool waits);
/* Waits until it is done, or until `until` (by tutti__now_ms; 0: no limit): false. At the request's own time limit the
 * group dies, and the request ends. Once it is done, with any status, its memory is no longer accessed. */
bool tutti__p2p_wait(tutti__p2p_request *request, double until);
bool tutti__p2p_test(const tutti__p2p_request *request);
/* Calls `notify` when it is done. False: it is already. */
bool tutti__p2p_watch(tutti__p2p_request *request, void (*notify)(tutti__p2p_request *request));
/* Nobody will wait for it any more: `drop` frees it when it ends. False: it is done already, and remains the caller's. */
bool tutti__p2p_abandon(tutti__p2p_request *request, void (*drop)(tutti__p2p_request *request));

#endif
