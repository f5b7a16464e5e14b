/* membership.h -- a node's connection to the rendezvous, or its hosting of the coordinator.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_MEMBERSHIP_H
#define TUTTI_LAUNCH_MEMBERSHIP_H

#include "launch/message/connection.h"
#include "launch/decide/succession.h"
#include "launch/host/coordinator.h"
#include "launch/message/dial.h"
#include "launch/message/message_server.h"

/* Tries to reach the rendezvous. */
typedef struct tutti__retry {
    double since_ms; /* the first one since it was lost; 0: none */
    double at_ms, next_line_ms;
    char trouble[512]; /* why the last one failed */
} tutti__retry;

/* Where other nodes can ask for the job. */
typedef struct tutti__standby {
    int listener, port;           /* listener -1: nowhere */
    tutti__message_server server; /* answers there while this node does not coordinate */
    bool on;
} tutti__standby;

/* The search for another coordinator (find_coordinator.c). */
typedef struct tutti__search {
    bool on; /* `advance` is being called */
    tutti__succession succession;
    bool asked;            /* join was sent through the dial */
    double announce_ms;    /* next check of who is at the endpoint; 0: this node is */
    json_t *first_message; /* the first message of the coordinator that accepted us; NULL: none */
} tutti__search;

typedef struct tutti__membership {
    tutti__job *job;
    tutti__console *console;
    tutti__secret secret;
    tutti__coordinator *coordinator; /* NULL: another node hosts it */
    uint32_t last_generation;        /* of this process's coordinators */
    tutti__connection connection;    /* to it */
    int silent_fd;                   /* to the one before, which was silent; -1: none */
    tutti__address endpoint;         /* length 0: unknown */
    tutti__lookup *lookup;           /* of it; NULL: none */
    char moved_to[128];              /* the host where the job continues; "": unknown */
    int moved_port;
    bool connected, joined;
    bool running; /* with workers of an elastic round, which outlive the loss of the rendezvous */
    char address[128];    /* address of this node for the others */
    double turn_ms;       /* last call of serve */
    int rounds, restarts; /* known to this node */
    tutti__dial dial;
    char dialled[300]; /* the rendezvous that is being dialled, for messages */
    tutti__retry retry;
    tutti__standby standby;
    tutti__search search;
    void (*round_over)(void *context);
    void *context;
} tutti__membership;

/* Reads the secret; nothing is connected yet. One node hosts its own coordinator at once. */
tutti_status tutti__membership_open(tutti__membership *m, tutti__job *job, tutti__console *console);
/* Hosts or connects if it is due, and prints the progress. Errors: those that retrying cannot fix, and TIMEOUT. */
tutti_status tutti__membership_try(tutti__membership *m);
/* When to call that again (tutti__now_ms). */
double tutti__membership_deadline(const tutti__membership *m);
/* Poll these: the connection's descriptor and events; the coordinator's descriptor, -1: none. */
int tutti__membership_fd(const tutti__membership *m, short *events_p);
int tutti__membership_coordinator_fd(const tutti__membership *m);
/* Serves both. */
void tutti__membership_serve(tutti__membership *m);
/* The next message; NULL: none. A connection that is lost shows in `connected`. */
json_t *tutti__membership_take(tutti__membership *m);
void tutti__membership_send(tutti__membership *m, json_t *message);
/* If an elastic round has lost its coordinator: asks the other nodes of its list, without blocking, and takes its place if this
 * node is the next. *found_p: it has (re)joined, and the coordinator does not know the state of its workers. */
tutti_status tutti__search_advance(tutti__membership *m, bool *found_p);
/* Whether to call it: there is a list, and no coordinator, or one that waits for others. */
bool tutti__search_is_on(const tutti__membership *m);
/* Ends it: for this node a coordinator is no longer needed, or was found otherwise. */
void tutti__search_hang_up(tutti__membership *m);
int tutti__search_fd(const tutti__membership *m, short *events_p);
/* find_coordinator.c: stores the coordinator's list. */
void tutti__search_note(tutti__membership *m, const json_t *message);
/* If this node coordinates, but not at the endpoint: tells nodes that meet there where the job is. */
void tutti__search_announce(tutti__membership *m);
/* Whether all nodes were told how the job ended. */
bool tutti__membership_done(const tutti__membership *m);
void tutti__membership_close(tutti__membership *m);

/* host_rendezvous.c: starts the coordinator, to which this agent connects by a pair of sockets; at the endpoint, if this node may
 * (OK with `connected` false: another node hosts); in place of the lost one. */
tutti_status tutti__membership_host(tutti__membership *m, const char *store_host,
                                    const tutti__roster *roster);
tutti_status tutti__membership_try_to_host(tutti__membership *m);
tutti_status tutti__membership_succeed(tutti__membership *m);
/* Stops answering at the listener. */
void tutti__search_stand_down(tutti__membership *m);
/* The address of this node for the others, from a connection to one of them. */
void tutti__membership_note_address(tutti__membership *m, int fd);
/* Sends join. */
tutti_status tutti__membership_join(tutti__membership *m, tutti__connection *connection);

#endif
