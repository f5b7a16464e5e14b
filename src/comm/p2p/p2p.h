/* p2p.h -- point to point: sends and receives between two ranks, matched by rank and tag.   SPDX-License-Identifier: MIT
 *
 * A message up to the eager limit goes at once, whole, as long as its receiver has room for it (credit); it waits there in
 * the unexpected queue for its receive. Any other waits in its sender's memory for a rendezvous (RTS). So what nobody has
 * asked for takes bounded memory, and a message that nobody receives holds up no other. All messages from one rank come in
 * the order of its sends, so matching in the order of arrival is matching in the order of the calls.
 *
 * Between ranks of one host messages go by rings in shared memory, and large ones are copied once, from the sender's memory
 * to the receiver's; else by frames of the control channel. Whoever waits for a request looks at the rings itself; for a
 * rank that computes, its control channel's thread does, called by a doorbell. */
#ifndef TUTTI_COMM_P2P_P2P_H
#define TUTTI_COMM_P2P_P2P_H

#include "comm/control/channel.h"
#include "comm/core/operation.h"

typedef struct tutti__p2p tutti__p2p;

/* One send or receive. Its memory is the caller's, and stays until it is done. */
typedef struct tutti__p2p_request {
    /* Once it is done, by tutti__p2p_test or tutti__p2p_wait. */
    tutti_status status;
    char *message; /* of a failure; the caller frees it. NULL: none, or no memory for it */
    int peer;      /* the other rank; TUTTI_ANY_RANK until it has come */

    /* Inside. */
    tutti__p2p *p2p;
    tutti__signature signature; /* its sequence is the request's number */
    char *p;
    size_t bytes, moved;
    struct tutti__p2p_request *next_open, **place; /* among the open ones */
    struct tutti__p2p_request *next;               /* in one other list */
    int timeout_ms;
    double deadline;                 /* 0: its time has not begun */
    bool polls;                      /* who waits for it is counted among the pollers */
    struct tutti__ring_offer *offer; /* NULL, or of a rendezvous in shared memory */
    uint64_t
        other; /* the number of the request at the peer, of which that is, or that takes the stream */
    _Atomic bool done;
} tutti__p2p_request;

tutti_status tutti__p2p_new(tutti__p2p **p2p_p, tutti__comm *comm);
/* For the control channel, before it is opened. */
tutti__frame_handler tutti__p2p_handler(tutti__p2p *p2p);
/* From now on it may be used; control NULL: in a group of one. */
void tutti__p2p_attach(tutti__p2p *p2p, tutti__control *control);
/* This rank and `ranks`, n of them in order, are on one host: they share memory for messages. All of them call it at the
 * same place; one_process: they are threads. If memory cannot be had, messages go by the control channel. */
tutti_status tutti__p2p_share(tutti__p2p *p2p, const int *ranks, int n, bool one_process,
                              double deadline);
/* Memory that ranks of this host have mapped, such as a transport's; `rank` as the control channel counts. */
typedef struct tutti__p2p_memory {
    void *self;
    /* Where bytes of this rank lie in it; false: they do not. */
    bool (*find)(void *self, const void *p, size_t bytes, uint64_t *segment, uint64_t *offset);
    /* Copies from there, of `rank`; false: this rank has released it. */
    bool (*copy)(void *self, int rank, uint64_t segment, uint64_t offset, void *to, size_t bytes);
} tutti__p2p_memory;
/* Before the first request. It lives longer than the control channel. */
void tutti__p2p_set_memory(tutti__p2p *p2p, const tutti__p2p_memory *memory);
/* Waits until no request is open, or the group is dead. Then the control channel may be closed, and then this be freed. */
void tutti__p2p_flush(tutti__p2p *p2p);
void tutti__p2p_free(tutti__p2p *p2p);

/* The rank's word, if it lies in memory of this rank's own or of its host; else NULL: an exchange asks for it. */
_Atomic uint64_t *tutti__p2p_word(tutti__p2p *p2p, int rank);

/* A send, a receive or an exchange of a word, as signature->op says: of signature->count elements at p, with the rank in
 * signature->root (TUTTI_ANY_RANK for receives, as uint32_t) and signature->tag; p of an exchange: a tutti__word_exchange.
 * `waits`: the caller calls tutti__p2p_wait at once. */
void tutti__p2p_start(tutti__p2p *p2p, tutti__p2p_request *request,
                      const tutti__signature *signature, void *p, int timeout_ms, bool waits);
/* Until it is done, or `until` (by tutti__now_ms; 0: however long it takes) is over: false. At its own time limit the group
 * dies of it, and it is done. Nobody touches its memory once it is done, with whatever status. */
bool tutti__p2p_wait(tutti__p2p_request *request, double until);
bool tutti__p2p_test(const tutti__p2p_request *request);

#endif
