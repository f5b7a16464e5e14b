/* membership.h -- a node's place at the rendezvous: it hosts the coordinator, or is connected to it.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_MEMBERSHIP_H
#define TUTTI_LAUNCH_MEMBERSHIP_H

#include "launch/channel.h"
#include "launch/coordinator.h"

typedef struct tutti__membership {
    tutti__job *job;
    tutti__console *console;
    tutti__secret secret;
    tutti__coordinator *coordinator; /* NULL: another node hosts it */
    tutti__channel channel;          /* to it */
    tutti__address endpoint;
    bool connected, joined;
    bool running; /* with workers of an elastic round, which outlive the loss of the rendezvous */
    char address[128]; /* of this node, as the others reach it */
    char trouble[512]; /* why the last attempt to connect failed */
    double since_ms;   /* when we began to look for the rendezvous */
    double next_try_ms, next_word_ms;
    int rounds, restarts; /* that this node knows of */
    void (*round_over)(void *context);
    void *context;
} tutti__membership;

/* Reads the secret; nothing is connected yet. One node hosts its own coordinator at once. */
tutti_status tutti__membership_open(tutti__membership *m, tutti__job *job, tutti__console *console);
/* Hosts or connects if it is time to, and says how that goes. Errors: those that trying longer does not mend, and
 * TIMEOUT. Blocks for at most a few seconds. */
tutti_status tutti__membership_try(tutti__membership *m);
/* When to call that again (tutti__now_ms). */
double tutti__membership_deadline(const tutti__membership *m);
/* To be polled: the channel's descriptor and events; the coordinator's descriptor, -1: none. */
int tutti__membership_fd(const tutti__membership *m, short *events_p);
int tutti__membership_coordinator_fd(const tutti__membership *m);
/* Serves both. */
void tutti__membership_serve(tutti__membership *m);
/* The next message; NULL: none. A connection that is lost shows in `connected`. */
json_t *tutti__membership_take(tutti__membership *m);
void tutti__membership_send(tutti__membership *m, json_t *message);
/* Has everybody been told how the job ended? */
bool tutti__membership_done(const tutti__membership *m);
void tutti__membership_close(tutti__membership *m);

#endif
