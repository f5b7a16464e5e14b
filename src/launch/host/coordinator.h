/* coordinator.h -- the rendezvous of a job's nodes: exchanges messages with their agents, and does what rounds.h decides.
 * SPDX-License-Identifier: MIT
 *
 * It runs in the agent of one node, the rendezvous host, and exchanges messages with the agents of all nodes, including its
 * own: messages.def. */
#ifndef TUTTI_LAUNCH_COORDINATOR_H
#define TUTTI_LAUNCH_COORDINATOR_H

#include "comm/bootstrap/authentication.h"
#include "launch/console/console.h"
#include "launch/decide/rounds.h"
#include "launch/job/launch_job.h"
#include "launch/message/messages.h"

enum { TUTTI__RENDEZVOUS_PROTOCOL = 4 };

typedef struct tutti__coordinator tutti__coordinator;

/* All but the descriptors is borrowed until the coordinator is freed. */
typedef struct tutti__coordinator_opts {
    const tutti__job *job;   /* opts.nodes are the limits; store, store_address */
    tutti__console *console; /* for warnings */
    const tutti__secret *secret;
    int local;           /* connected socket to the agent of this node */
    int listener;        /* for the other nodes; -1: none */
    const char *address; /* address of this node for the others */
    /* of the lost coordinator that this one succeeds; NULL: it is the first. Copied */
    const tutti__roster *roster;
    /* The age from which a round is restarted for a newcomer: before it, workers may still turn out to be elastic, so that the
     * newcomer joins them. Default 5000. */
    double settle_ms;
    /* The highest number of a generation that this process has formed, with this coordinator and those before: all use its one
     * store. The coordinator raises it when it is freed. NULL: it is the only one */
    uint32_t *last_generation;
    void (*round_over)(void *context); /* all workers of a failed round have ended */
    void *context;
} tutti__coordinator_opts;

tutti_status tutti__coordinator_new(tutti__coordinator **coordinator_p,
                                    const tutti__coordinator_opts *opts);
/* Poll it for reading; call serve then, and at the deadline (tutti__now_ms). */
int tutti__coordinator_fd(const tutti__coordinator *coordinator);
double tutti__coordinator_deadline(const tutti__coordinator *coordinator);
void tutti__coordinator_serve(tutti__coordinator *coordinator);
/* Whether the job has ended and all nodes know, or they may wait for this node to return. */
bool tutti__coordinator_done(const tutti__coordinator *coordinator);
/* What it decides by: for its questions, and tutti__rounds_is_dead. */
tutti__rounds *tutti__coordinator_rounds(tutti__coordinator *coordinator);
void tutti__coordinator_free(tutti__coordinator *coordinator);

/* join_check.c: whether a node's join must be refused, and why. Warns of differences that are allowed but not advisable. */
bool tutti__join_misfit(const tutti__job *job, const tutti__message_join *join, char *why,
                        size_t bytes);
void tutti__join_warn(const tutti__job *job, tutti__console *console,
                      const tutti__message_join *join);

/* coordinator_messages.c: the message that tells a node of an action; NULL: none does. list: of nodes, as a text, for LIST. */
json_t *tutti__round_message(const tutti__rounds *rounds, const tutti__job *job,
                             const tutti__round_action *action, const char *list);

#endif
