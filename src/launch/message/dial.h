/* dial.h -- connects to another agent, and exchanges messages with it, without blocking.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_DIAL_H
#define TUTTI_LAUNCH_DIAL_H

#include "comm/bootstrap/connector.h"
#include "launch/message/connection.h"
#include "launch/message/lookup.h"

typedef enum tutti__dial_state {
    TUTTI__DIAL_NONE,
    TUTTI__DIAL_LOOKING_UP,
    TUTTI__DIAL_CONNECTING,
    TUTTI__DIAL_OPEN,    /* `connection` can be used */
    TUTTI__DIAL_REFUSED, /* connection refused: no process listens there */
    TUTTI__DIAL_FAILED   /* no answer, or disconnected; with the thread's message */
} tutti__dial_state;

typedef struct tutti__dial {
    tutti__dial_state state;
    tutti__lookup *lookup;
    tutti__connector_opts opts;
    tutti__connector connector;
    tutti__connection connection;
    double deadline;     /* the user's, for an answer; tutti__now_ms */
    bool hung_up;        /* FAILED: it may be just starting or ending */
    tutti_status status; /* FAILED: as a connector's; TIMEOUT if it did not connect, or hung up */
} tutti__dial;

/* The claim in *opts is set here. */
void tutti__dial_begin(tutti__dial *dial, const tutti__address *address,
                       const tutti__connector_opts *opts);
/* To an address, or to a name. */
void tutti__dial_begin_host(tutti__dial *dial, const char *host, int port,
                            const tutti__connector_opts *opts);
/* Advances as far as possible without blocking. */
void tutti__dial_advance(tutti__dial *dial);
/* Takes the connection of an OPEN dial, which becomes NONE. */
tutti__connection tutti__dial_take(tutti__dial *dial);
void tutti__dial_close(tutti__dial *dial);
/* The descriptor to poll; -1: none. */
int tutti__dial_fd(const tutti__dial *dial, short *events_p);
/* When to advance it at the latest (tutti__now_ms). */
double tutti__dial_deadline(const tutti__dial *dial);

#endif
