/* dial.h -- asks another agent, without ever waiting for it, whether it coordinates the job.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_DIAL_H
#define TUTTI_LAUNCH_DIAL_H

#include "comm/bootstrap/authentication.h"
#include "launch/channel.h"

typedef enum tutti__dial_state {
    TUTTI__DIAL_NONE,
    TUTTI__DIAL_CONNECTING,
    TUTTI__DIAL_ANSWER, /* of the proof that both are of the job */
    TUTTI__DIAL_VERDICT,
    TUTTI__DIAL_OPEN,    /* `channel` may be used */
    TUTTI__DIAL_REFUSED, /* nobody listens there: the kernel of that host says so */
    TUTTI__DIAL_FAILED   /* it does not answer, or hung up */
} tutti__dial_state;

typedef struct tutti__dial {
    tutti__dial_state state;
    const tutti__secret *secret;
    tutti__claim claim;
    tutti__greeting greeting;
    tutti__channel channel;
    double deadline; /* tutti__now_ms */
    bool hung_up;    /* FAILED: and may be just beginning or ending */
} tutti__dial;

void tutti__dial_begin(tutti__dial *dial, const tutti__secret *secret,
                       const tutti__address *address, double deadline);
/* As far as it goes now. */
void tutti__dial_advance(tutti__dial *dial);
/* Takes the channel over from OPEN; the dial is NONE then. */
tutti__channel tutti__dial_take(tutti__dial *dial);
void tutti__dial_close(tutti__dial *dial);
/* To be polled; -1: nothing. */
int tutti__dial_fd(const tutti__dial *dial, short *events_p);

#endif
