/* dial.h -- connects to another agent without blocking, to ask whether it coordinates the job.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_DIAL_H
#define TUTTI_LAUNCH_DIAL_H

#include "comm/bootstrap/authentication.h"
#include "launch/message/connection.h"

typedef enum tutti__dial_state {
    TUTTI__DIAL_NONE,
    TUTTI__DIAL_CONNECTING,
    TUTTI__DIAL_ANSWER, /* of the authentication */
    TUTTI__DIAL_VERDICT,
    TUTTI__DIAL_OPEN,    /* `connection` can be used */
    TUTTI__DIAL_REFUSED, /* connection refused: no process listens there */
    TUTTI__DIAL_FAILED   /* no answer, or disconnected */
} tutti__dial_state;

typedef struct tutti__dial {
    tutti__dial_state state;
    const tutti__secret *secret;
    tutti__claim claim;
    tutti__greeting greeting;
    tutti__connection connection;
    double deadline; /* tutti__now_ms */
    bool hung_up;    /* FAILED: it may be just starting or ending */
} tutti__dial;

void tutti__dial_begin(tutti__dial *dial, const tutti__secret *secret,
                       const tutti__address *address, double deadline);
/* Advances as far as possible without blocking. */
void tutti__dial_advance(tutti__dial *dial);
/* Takes the connection of an OPEN dial, which becomes NONE. */
tutti__connection tutti__dial_take(tutti__dial *dial);
void tutti__dial_close(tutti__dial *dial);
/* The descriptor to poll; -1: none. */
int tutti__dial_fd(const tutti__dial *dial, short *events_p);

#endif
