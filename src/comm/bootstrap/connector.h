/* connector.h -- connects to a process of this job, and authenticates, without blocking.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_CONNECTOR_H
#define TUTTI_COMM_BOOTSTRAP_CONNECTOR_H

#include "comm/bootstrap/authentication.h"

typedef enum tutti__connector_state {
    TUTTI__CONNECTOR_IDLE,
    TUTTI__CONNECTOR_CONNECTING,
    TUTTI__CONNECTOR_AUTHENTICATING,
    TUTTI__CONNECTOR_OPEN,
    TUTTI__CONNECTOR_FAILED
} tutti__connector_state;

typedef struct tutti__connector_opts {
    const tutti__secret *secret; /* borrowed */
    tutti__claim claim;
    const tutti__claim *theirs; /* which the other side must make; borrowed; NULL: any */
    const char *who;            /* for messages: a peer, a store; borrowed */
    double deadline;            /* tutti__now_ms */
    /* limits of its two parts, which do not extend the deadline; 0: none */
    int connect_ms, authenticate_ms;
} tutti__connector_opts;

typedef struct tutti__connector {
    tutti__connector_opts opts;
    tutti__connector_state state;
    int fd;
    double deadline; /* of this state */
    tutti__client_handshake handshake;
    /* FAILED: with the thread's message, as tutti__client_handshake. If `error` is set, it did not even connect (errno); ECONNREFUSED
     * also if another process than the called one (`theirs`) is there, since that one then listens no more */
    tutti_status status;
    int error;
} tutti__connector;

void tutti__connector_begin(tutti__connector *connector, const tutti__address *address,
                            const tutti__connector_opts *opts);
/* Advances as far as possible without blocking. True: it is OPEN or FAILED. */
bool tutti__connector_advance(tutti__connector *connector);
/* It FAILED for this reason, an errno: the next advance closes it. */
void tutti__connector_cancel(tutti__connector *connector, int error);
/* Blocks until it is, or until that time. */
bool tutti__connector_wait(tutti__connector *connector, double until);
/* The descriptor to poll, until it is OPEN or FAILED; -1: none. */
int tutti__connector_fd(const tutti__connector *connector, short *events_p);
/* Takes the socket of an OPEN one, which becomes IDLE. */
int tutti__connector_take(tutti__connector *connector);
/* The error, for messages. */
const char *tutti__connector_why(const tutti__connector *connector);
void tutti__connector_close(tutti__connector *connector);

#endif
