/* coordinator.h -- decides who is in a round of a job, when it begins, and when the job ends.   SPDX-License-Identifier: MIT
 *
 * It lives in the agent of one node, the rendezvous host, and talks to the agents of all nodes, its own included, by
 * messages:
 *
 *   node          join     here I am, with n workers, idle: for the next round
 *                 failed   a worker of mine has failed (sent once a round, before its others have ended)
 *                 over     no worker of mine runs any more: idle again
 *                 leave    I was told to end
 *   coordinator   wait     the round cannot begin yet, because ...
 *                 round    begin: your ranks, the world, where rank 0 and the store are
 *                 stop     end your workers, the round is over because ...
 *                 end      the job is over, with this exit code
 *                 refuse   you cannot take part, because ...
 *   both          ping     I am here
 *
 * What is said of single workers in an elastic round stands in elastic_workers.c. In such a round nodes come and go, and are lost,
 * while the workers of the others go on.
 *
 * A round ends when all its nodes are idle; then the job has succeeded (all workers ended with 0), or another round
 * begins with the nodes that there are, or the job has failed. A failure takes one of the restarts; a node that comes
 * or leaves in good order takes none. */
#ifndef TUTTI_LAUNCH_COORDINATOR_H
#define TUTTI_LAUNCH_COORDINATOR_H

#include "comm/bootstrap/authentication.h"
#include "launch/agent.h"
#include "launch/roster.h"

#include <jansson.h>

enum { TUTTI__RENDEZVOUS_PROTOCOL = 2 };

typedef struct tutti__coordinator tutti__coordinator;

/* What a coordinator needs; all but the descriptors is borrowed while it lives. */
typedef struct tutti__coordinator_opts {
    const tutti__job *job;   /* opts.nodes are the limits; store, store_address */
    tutti__console *console; /* for warnings */
    const tutti__secret *secret;
    int local;           /* connected socket to the agent of this node */
    int listener;        /* for the other nodes; -1: there are none */
    const char *address; /* of this node, as the others reach it */
    const char *store;   /* host:port of the job's store */
    const tutti__roster *
        roster; /* of the coordinator that was lost, whom this one is to follow; NULL: it is the first. Copied */
    /* How old a round is before its workers are ended for a newcomer: until then they may say that they are elastic, and it
     * joins them. Default 5000. */
    double settle_ms;
    void (*round_over)(void *context); /* all workers of a failed round have ended */
    void *context;
} tutti__coordinator_opts;

tutti_status tutti__coordinator_new(tutti__coordinator **coordinator_p,
                                    const tutti__coordinator_opts *opts);
/* To be polled for reading; then, and at the deadline (tutti__now_ms), serve. */
int tutti__coordinator_fd(const tutti__coordinator *coordinator);
double tutti__coordinator_deadline(const tutti__coordinator *coordinator);
void tutti__coordinator_serve(tutti__coordinator *coordinator);
/* Has the job ended, and does everybody know, or may they wait for this node to return? */
bool tutti__coordinator_done(const tutti__coordinator *coordinator);
/* Too few nodes are here, who waits may look for another coordinator. */
bool tutti__coordinator_is_paused(const tutti__coordinator *coordinator);
/* Of the nodes that count when it is decided who may go on, the first from *at_p on that is not connected, not known to be dead,
 * and can be asked; NULL: there is none. *at_p becomes its place. */
const tutti__roster_node *tutti__coordinator_missing(const tutti__coordinator *coordinator,
                                                     int *at_p);
/* The list, once the round is elastic, and this coordinator followed another. NULL: no. */
const tutti__roster *tutti__coordinator_successor(const tutti__coordinator *coordinator);
/* It is known to be dead. */
void tutti__coordinator_is_dead(tutti__coordinator *coordinator, int id);
void tutti__coordinator_free(tutti__coordinator *coordinator);

/* join_check.c: does a node's wish to join say why it cannot be granted? And what may differ, but should not, is warned of. */
bool tutti__join_misfit(const tutti__job *job, const json_t *join, char *why, size_t bytes);
void tutti__join_warn(const tutti__job *job, tutti__console *console, const json_t *join);

#endif
