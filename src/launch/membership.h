/* membership.h -- a node's place at the rendezvous: it hosts the coordinator, or is connected to it.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_MEMBERSHIP_H
#define TUTTI_LAUNCH_MEMBERSHIP_H

#include "launch/channel.h"
#include "launch/coordinator.h"
#include "launch/dial.h"
#include "launch/door.h"

typedef struct tutti__membership {
    tutti__job *job;
    tutti__console *console;
    tutti__secret secret;
    tutti__coordinator *coordinator; /* NULL: another node hosts it */
    tutti__channel channel;          /* to it */
    tutti__address endpoint, moved;  /* moved: where the job has gone on; length 0: nowhere */
    bool connected, joined;
    bool running; /* with workers of an elastic round, which outlive the loss of the rendezvous */
    char address[128]; /* of this node, as the others reach it */
    char trouble[512]; /* why the last attempt to connect failed */
    double since_ms;   /* when we began to look for the rendezvous */
    double next_try_ms, next_word_ms;
    int rounds, restarts; /* that this node knows of */
    /* Succession (succession.c). */
    int listener, listens; /* where this node may be asked for the job, and its port; -1: nowhere */
    tutti__roster roster;  /* that we were told last */
    int me;                /* our number there */
    tutti__door standby;   /* answers at the listener where we do not coordinate */
    bool stands_by;
    tutti__dial dial;
    bool searches;      /* `advance` is called */
    bool asked;         /* through the dial: join */
    int at, asks;       /* whom of the list we ask, and its number there */
    int hang_ups;       /* how often it hung up */
    bool lives;         /* somebody before us in the list does, in this pass */
    bool elsewhere;     /* the dial goes to where we were sent */
    bool uncertain;     /* the coordinator was lost, and nobody knows whether it is dead */
    double announce_ms; /* when to look next who is at the endpoint; 0: we are */
    json_t *first_word; /* of the coordinator that we were taken by; NULL: none */
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
/* Where an elastic round has lost its coordinator: asks the others of its list, without waiting, and takes its place if it is
 * our turn. *found_p: we have (re)joined, and the coordinator knows nothing of our workers. */
tutti_status tutti__succession_advance(tutti__membership *m, bool *found_p);
/* It is to be called: there is a list, and we have no coordinator, or one that waits for others. */
bool tutti__succession_is_on(const tutti__membership *m);
int tutti__succession_fd(const tutti__membership *m, short *events_p);
/* Answers at the listener no more. */
void tutti__succession_stand_down(tutti__membership *m);
/* The coordinator's list. */
void tutti__succession_note(tutti__membership *m, const json_t *message);
/* Where we coordinate, but not at the endpoint: whoever meets there is told where the job is. */
void tutti__succession_announce(tutti__membership *m);
/* The coordinator was lost. */
void tutti__succession_begin(tutti__membership *m);
/* Of membership.c: a listener for it; a coordinator in place of the one that was lost; what we say to one. */
void tutti__membership_listen(tutti__membership *m);
tutti_status tutti__membership_succeed(tutti__membership *m);
tutti_status tutti__membership_join(tutti__membership *m, tutti__channel *channel);
/* Has everybody been told how the job ended? */
bool tutti__membership_done(const tutti__membership *m);
void tutti__membership_close(tutti__membership *m);

#endif
