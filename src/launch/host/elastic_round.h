/* elastic_round.h -- the coordinator's part in an elastic round: turns the agents' messages into events of the generations, and
 * actions into orders to the agents (elastic_workers.c lists the messages).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ELASTIC_ROUND_H
#define TUTTI_LAUNCH_ELASTIC_ROUND_H

#include "launch/console/console.h"
#include "launch/job/job.h"
#include "launch/decide/generation.h"

#include <jansson.h>

typedef struct tutti__elastic_round_opts {
    const tutti__job *job; /* its store's address */
    tutti__console *console;
    void (*send)(void *context, int node, json_t *message); /* takes ownership of the message */
    void (*fail)(void *context, int code, const char *why); /* no worker is left */
    void *context;
} tutti__elastic_round_opts;

typedef struct tutti__elastic_round {
    tutti__elastic_round_opts opts;
    tutti__generations generations;
    int number;    /* of the round */
    bool begun;    /* the job began before this round */
    bool succeeds; /* another node coordinated the round before */
    double since_ms;
} tutti__elastic_round;

void tutti__elastic_round_init(tutti__elastic_round *round, const tutti__elastic_round_opts *opts);
void tutti__elastic_round_free(tutti__elastic_round *round);
/* A new round, without nodes. */
void tutti__elastic_round_begin(tutti__elastic_round *round, int number);
/* Whether a worker has sent READY. */
static inline bool tutti__elastic_round_is_one(const tutti__elastic_round *round)
{
    return round->generations.elastic;
}
tutti_status tutti__elastic_round_node_came(tutti__elastic_round *round, int node, int n);
void tutti__elastic_round_node_lost(tutti__elastic_round *round, int node);
void tutti__elastic_round_node_leaves(tutti__elastic_round *round, int node);
/* Nodes of a lost coordinator are expected: for this time nothing begins without the state. */
void tutti__elastic_round_hold(tutti__elastic_round *round, double seconds);
/* As in generation.h. */
void tutti__elastic_round_pause(tutti__elastic_round *round, bool paused);
/* True: the message was about a worker. */
bool tutti__elastic_round_hear(tutti__elastic_round *round, int node, const json_t *message);
/* When to call tick (tutti__now_ms). */
double tutti__elastic_round_deadline(const tutti__elastic_round *round);
void tutti__elastic_round_tick(tutti__elastic_round *round);
/* Prints a summary of the round, in one line. */
void tutti__elastic_round_tell(const tutti__elastic_round *round);

#endif
