/* door.h -- lets in connections that prove to be of the job, and exchanges messages with them.   SPDX-License-Identifier: MIT
 *
 * It says every now and then that it is here, and takes a connection for lost that does not answer. */
#ifndef TUTTI_LAUNCH_DOOR_H
#define TUTTI_LAUNCH_DOOR_H

#include "comm/bootstrap/authentication.h"
#include "launch/channel.h"

/* A connection; the user's structure begins with one. */
typedef struct tutti__link {
    struct tutti__link *next;
    tutti__channel channel;
    tutti__acceptor acceptor;
    double deadline;    /* by which it must have proven itself; then, of our next ping */
    bool local, proven; /* local: it needs no proof, nor pings */
} tutti__link;

typedef struct tutti__door_opts {
    size_t link_bytes; /* of the user's structure, which is zero at first */
    int listener;      /* owned; -1: none */
    const tutti__secret *secret;
    tutti__claim claim;
    double ping_ms; /* between pings */
    int misses;     /* so many may be missed */
    void (*on_message)(void *context, tutti__link *link, const json_t *message);
    void (*on_lost)(void *context, tutti__link *link, const char *why); /* freed afterwards */
    void *context;
} tutti__door_opts;

typedef struct tutti__door {
    tutti__door_opts opts;
    tutti__link *links;
    tutti__refusals refusals;
    int epoll, n_unproven;
    int spare; /* given up to hang up on whom there is no descriptor for */
} tutti__door;

/* With a first link, to this process itself; local -1: without. Free in any case. */
tutti_status tutti__door_open(tutti__door *door, const tutti__door_opts *opts, int local);
void tutti__door_free(tutti__door *door);
/* The door's epoll is to be polled for reading; then, and at the deadline (tutti__now_ms), serve. True: there is more. */
bool tutti__door_serve(tutti__door *door);
double tutti__door_deadline(const tutti__door *door);
/* Takes the message over. */
void tutti__door_send(tutti__door *door, tutti__link *link, json_t *message);

#endif
