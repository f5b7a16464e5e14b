/* coordinator_parts.h -- shared by the coordinator's files: coordinator.c, coordinator_list.c,
 * coordinator_messages.c.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_COORDINATOR_PARTS_H
#define TUTTI_LAUNCH_COORDINATOR_PARTS_H

#include "launch/host/coordinator.h"
#include "launch/message/message_server.h"
#include "launch/host/elastic_round.h"

/* An authenticated connection, which is a node after it has joined. */
typedef struct tutti__node {
    tutti__client client;
    bool joined, refused;
    bool is_strangers;   /* it asks for another job */
    bool in_round;       /* it is a node of the current round */
    bool over;           /* its workers of the round have ended */
    bool left;           /* it was told to end */
    bool busy;           /* has workers of a round that is over; it was told to stop them */
    int id;              /* of its stay in a round, unique */
    int first_rank;      /* in the round */
    int place;           /* 1 + its number in the last round it was in; 0: none */
    int wanted_rank;     /* --node-rank; -1: native rendezvous */
    int n, port;         /* workers; a free port on it, for MASTER_PORT */
    int listens;         /* the port of its agent, if it can succeed this coordinator; 0: none */
    bool here;           /* the state of its workers is known */
    bool apart;          /* it disconnected because it did not hear from us, and is alive */
    int64_t told, acked; /* told, acked: versions of the list of nodes */
    int64_t pid;
    char host[64], address[128], listens_at[128];
    /* its join message, while it is unknown whether the holder of its rank is alive */
    json_t *pending;
    double pending_ms; /* since when */
} tutti__node;

typedef enum tutti__job_state { GATHERING, RUNNING, STOPPING, ENDED } tutti__job_state;

struct tutti__coordinator {
    tutti__coordinator_opts opts;
    tutti__message_server server;
    tutti__job_state state;
    bool began;     /* there has been a round */
    bool failing;   /* the round is stopped because of a failure */
    bool permanent; /* which further rounds would repeat */
    bool retired;   /* this node is leaving, and the others may wait for its return */
    int round, restarts;
    int code, last_id;
    tutti__elastic_round elastic;
    char master_addr[128];
    int master_port;
    tutti__roster roster, base; /* the list; the last version that all nodes know */
    bool list_changed;
    bool succeeds; /* the list is still that of the previous coordinator */
    bool replaced; /* there is another coordinator */
    bool paused;   /* other nodes may be continuing without the connected ones */
    double paused_since;
    double until;   /* time until which to wait for nodes that may come */
    int survivors;  /* nodes expected from a lost rendezvous host; 0: a new job */
    char why[1024]; /* the first failure, or what stopped the round */
    double since;   /* this state: GATHERING, RUNNING */
    double last_call, told, next_word, ended;
};

#define SAY(c, format, ...) tutti__console_say((c)->opts.console, format, __VA_ARGS__)

static inline const tutti__nodes *limits(const tutti__coordinator *c)
{
    return &c->opts.job->opts.nodes;
}

static inline tutti__node *first_node(const tutti__coordinator *c)
{
    return (tutti__node *)c->server.clients;
}

static inline tutti__node *next_node(const tutti__node *n)
{
    return (tutti__node *)n->client.next;
}

static inline void send_to(tutti__coordinator *c, tutti__node *n, json_t *message)
{
    tutti__message_server_send(&c->server, &n->client, message);
}

/* "hostb (process 4711)" */
static inline const char *name_of(const tutti__node *n, char text[128])
{
    snprintf(text, 128, "%.63s (process %lld)", n->host, (long long)n->pid);
    return text;
}

/* Whether dead workers may be replaced, and new ones join. */
static inline bool is_elastic(const tutti__coordinator *c)
{
    return tutti__elastic_round_is_one(&c->elastic);
}

static inline int count_in_round(const tutti__coordinator *c)
{
    int count = 0;

    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        count += n->in_round;
    return count;
}

/* The node of the round with that id; NULL: not connected. */
tutti__node *tutti__coordinator_find(const tutti__coordinator *c, int id);
/* coordinator.c: ends the job, and tells all nodes. */
void tutti__coordinator_end_job(tutti__coordinator *c, int code);
void tutti__coordinator_tell_end(tutti__coordinator *c, tutti__node *n);
/* Orders all nodes of the round to end their workers. */
void tutti__coordinator_stop_round(tutti__coordinator *c, bool failing);
/* Adds it to the round, with its place and its ranks. */
void tutti__coordinator_enter_round(tutti__coordinator *c, tutti__node *n);
/* Keeps the first failure, but a cause replaces the loss of a peer (3). */
void tutti__coordinator_note_failure(tutti__coordinator *c, int code, const char *why);
/* Prints that the round continues with fewer nodes than requested. */
void tutti__coordinator_tell_of_min(tutti__coordinator *c);
/* coordinator_messages.c: handlers for the server; retries nodes that wait because another has their rank. */
void tutti__coordinator_on_message(void *context, tutti__client *client, const json_t *m);
void tutti__coordinator_on_lost(void *context, tutti__client *client, const char *why);
void tutti__coordinator_ask_again(tutti__coordinator *c);
/* Begins as the successor of a lost coordinator: with its list, and paused until enough nodes have come. */
void tutti__list_succeed(tutti__coordinator *c);
/* Whether this side of a partitioned network may continue; never both. */
bool tutti__list_may_go_on(tutti__coordinator *c);
/* Pauses the round, or continues it. */
void tutti__list_consider_pause(tutti__coordinator *c);
/* Sends the list to nodes that do not have it. */
void tutti__list_spread(tutti__coordinator *c);
/* Whether this coordinator must not take the node back: the node knows of our successor, or precedes us in the list, and
 * neither side has continued yet. */
bool tutti__list_gives_way(tutti__coordinator *c, tutti__node *n, const json_t *join);
void tutti__list_send_elsewhere(tutti__coordinator *c, tutti__node *n);
/* The job to which this rendezvous belonged continues under another coordinator. */
void tutti__list_on_moved(tutti__coordinator *c, const json_t *message);

#endif
