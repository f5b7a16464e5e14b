/* door.h -- accepts authenticated connections, and exchanges messages with them.   SPDX-License-Identifier: MIT
 *
 * It sends pings, and considers a connection lost if it does not answer. */
#ifndef TUTTI_LAUNCH_DOOR_H
#define TUTTI_LAUNCH_DOOR_H

#include "comm/bootstrap/authentication.h"
#include "launch/message/channel.h"

/* A connection; the first member of the user's struct. */
typedef struct tutti__link {
    struct tutti__link *next;
    tutti__channel channel;
    tutti__acceptor acceptor;
    double deadline;    /* of its authentication; after that, of the next ping */
    bool local, proven; /* local: it needs no authentication and no pings */
} tutti__link;

typedef struct tutti__door_opts {
    size_t link_bytes; /* size of the user's struct, which is zeroed */
    int listener;      /* owned; -1: none */
    const tutti__secret *secret;
    tutti__claim claim;
    double ping_ms; /* between pings */
    int misses;     /* number of pings that may be missed */
    void (*on_message)(void *context, tutti__link *link, const json_t *message);
    void (*on_lost)(void *context, tutti__link *link, const char *why); /* freed afterwards */
    void *context;
} tutti__door_opts;

typedef struct tutti__door {
    tutti__door_opts opts;
    tutti__link *links;
    tutti__refusals refusals;
    double turn_ms; /* last call of serve */
    int epoll, n_unproven;
    int spare; /* a reserved descriptor, used to reject a connection when there are no others */
} tutti__door;

/* With a link to this process itself, or local -1: without. Free in any case. */
tutti_status tutti__door_open(tutti__door *door, const tutti__door_opts *opts, int local);
void tutti__door_free(tutti__door *door);
/* Poll the door's epoll for reading; call serve then, and at the deadline (tutti__now_ms). True: there is more. */
bool tutti__door_serve(tutti__door *door);
double tutti__door_deadline(const tutti__door *door);
/* Takes ownership of the message. */
void tutti__door_send(tutti__door *door, tutti__link *link, json_t *message);

#endif
