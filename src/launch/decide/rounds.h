/* rounds.h -- decides which nodes are in a round of a job, when it begins and ends, and when the job ends.
 * SPDX-License-Identifier: MIT
 *
 * A round is one start of all workers. It ends when no node of it has workers any more. Then the job has succeeded (all workers
 * ended with 0), or another round begins with the nodes that are present, or the job has failed. A failure takes one of the
 * restarts; a node that joins or leaves in order takes none. In an elastic round nodes join, leave and are lost while the workers
 * of the others continue; generation.h decides about its workers, and this about nodes that may be cut off
 * (docs/design/elasticity.md, "Succession").
 *
 * No input or output, no clock: what happens to nodes are events, at a non-decreasing time (milliseconds, of any origin); what
 * must be done is reported as actions, before the call returns. After events, call tick. */
#ifndef TUTTI_LAUNCH_ROUNDS_H
#define TUTTI_LAUNCH_ROUNDS_H

#include "launch/decide/generation.h"
#include "launch/decide/roster.h"

/* What a node says of itself when it joins. */
typedef struct tutti__join {
    bool local;      /* the node on which this machine runs */
    int workers;     /* how many it starts */
    int port;        /* a free one, for MASTER_PORT */
    int wanted_rank; /* --node-rank; -1: native rendezvous */
    int listens;     /* the port of its agent, if it can succeed this coordinator; 0: none */
    int64_t pid;
    char host[64], address[128], listens_at[TUTTI__ROSTER_ADDRESS];
    char role[64]; /* --role, of its workers */
    /* What it knows of earlier rounds: how many there were, restarts, nodes of the last. */
    int rounds, restarts, n_nodes;
    /* It has workers of an elastic round, with these numbers, and has lost its connection or its coordinator. */
    bool running;
    int group_rank, first_rank, id;
    bool is_of_this_job; /* its job has our id */
    /* Only while it joins: its list of nodes; why it cannot take part. NULL: none. */
    const tutti__roster *roster;
    const char *misfit;
} tutti__join;

/* A connected node: the caller's memory, zeroed before `connected`, until `lost`. Others only read it. */
typedef struct tutti__round_node {
    struct tutti__round_node *next, *next_same; /* next_same: with the same hash of the id */
    int hashed;                                 /* the id under which it is found; 0: none */
    tutti__join says;                           /* what it said, or says now */
    bool joined, refused;
    bool in_round;    /* it is a node of the current round */
    bool late;        /* it came after the job's first round had begun, and is not the host */
    bool over;        /* its workers of the round have ended */
    bool failed;      /* a worker of it, in this round, not because it lost a peer */
    bool is_cause;    /* that was the round's first failure */
    bool left;        /* it was told to end: it is in no further round */
    bool busy;        /* has workers of a round that is over; it was told to stop them */
    bool here;        /* the state of its workers is known */
    bool apart;       /* it disconnected because it did not hear from us, and is alive */
    int n_refused;    /* of its workers in the round */
    bool excluded;    /* told so once it is no longer in_round */
    char misfit[512]; /* why the last of them was refused, or it is excluded */
    int id;           /* of its stay in a round, unique */
    int first_rank;   /* in the round */
    int group_rank;   /* its number in the last round it was in; -1: none */
    /* versions of the list of nodes: the last that it is in, that was sent to it, that it has */
    int64_t listed, sent, acked;
} tutti__round_node;

typedef enum tutti__round_act {
    /* Messages to the node: */
    TUTTI__ROUND_BEGIN,   /* starts its workers: ranks are those of the node */
    TUTTI__ROUND_STOP,    /* ends its workers of round `number`, because of `why` */
    TUTTI__ROUND_END,     /* the job is over, with `code` */
    TUTTI__ROUND_REFUSE,  /* it cannot take part, because of `why` */
    TUTTI__ROUND_WAIT,    /* the round cannot begin yet, because of `why` */
    TUTTI__ROUND_WELCOME, /* it is in the round with its running workers */
    TUTTI__ROUND_ELASTIC, /* the round is elastic: its dead workers are reported, and may be replaced */
    TUTTI__ROUND_LIST,     /* the list of nodes, in which it has its id */
    TUTTI__ROUND_REDIRECT, /* another coordinates the job: at `address`, or, "", whichever it finds */
    TUTTI__ROUND_WORKER,   /* `worker`, about one of its workers */
    /* Of the coordinator itself, with node NULL: */
    TUTTI__ROUND_FENCE, /* round `number` begins: the store accepts no process of an earlier one */
    TUTTI__ROUND_SAY,   /* a line about the job, `why` */
    TUTTI__ROUND_FAILED /* all workers of a failed round have ended */
} tutti__round_act;

typedef struct tutti__round_action {
    tutti__round_act act;
    tutti__round_node *node;
    const char *why; /* valid until the callback returns, as all pointers here */
    int number, code;
    int n_nodes, world_size;
    int first_role_rank, role_world_size; /* among the workers of the node's role */
    bool failing, permanent;
    /* REDIRECT: this process was never part of its job, so the one that listened here before is dead */
    bool unrelated;
    const char *address;
    int port;
    const tutti__action *worker;
} tutti__round_action;

/* Zero means default, except where said. */
typedef struct tutti__rounds_opts {
    int min, max; /* nodes; must be set */
    bool native;  /* nodes are numbered automatically */
    bool quiet;   /* no line about an elastic job that has succeeded */
    int max_restarts;
    double join_timeout_s;       /* for `min` nodes to come; default 600 */
    double last_call_s;          /* for more, once there are `min`; default 30; negative: none */
    double keep_alive_s;         /* interval of pings; default 5 */
    uint64_t settle_ms;          /* as in coordinator.h */
    uint64_t stopped_ms;         /* as in generation.h */
    uint32_t after;              /* likewise */
    const tutti__roster *roster; /* as in coordinator.h; copied */
    void (*act)(void *context,
                const tutti__round_action *action); /* must not call these functions */
    void *context;
} tutti__rounds_opts;

enum { TUTTI__ROUNDS_HASH = 1024 };

typedef enum tutti__rounds_state {
    TUTTI__ROUNDS_GATHERING,
    TUTTI__ROUNDS_RUNNING,
    TUTTI__ROUNDS_STOPPING,
    TUTTI__ROUNDS_ENDED
} tutti__rounds_state;

typedef struct tutti__rounds {
    tutti__rounds_opts opts;
    tutti__round_node *nodes, *newest; /* connected, in the order of connecting */
    tutti__round_node *by_id[TUTTI__ROUNDS_HASH];
    tutti__rounds_state state;
    uint64_t now;   /* of the last event */
    uint64_t since; /* this state: GATHERING, RUNNING, ENDED */
    bool began;     /* there has been a round */
    bool failing;   /* the round is stopped because of a failure */
    bool permanent; /* which further rounds would repeat */
    bool retired;   /* the local node is leaving, and the others may wait for its return */
    int number;     /* of the round */
    int restarts, code, last_id;
    int survivors;  /* nodes expected from a lost coordinator; 0: a new job */
    char why[1024]; /* the first failure, or what stopped the round */
    char master_addr[128];
    int master_port;
    uint64_t last_call; /* of GATHERING; 0: not enough nodes yet */
    uint64_t next_line; /* when to say again what is waited for */
    int lines;
    /* An elastic round. */
    tutti__generations generations;
    bool announced; /* that the round is elastic */
    bool committed; /* steps were, in an earlier round */
    bool inherited; /* another node coordinated this round before */
    /* the list of nodes; the last version that all of them know */
    tutti__roster roster, confirmed;
    int64_t least_version; /* of lists that nodes have which came back: ours must be newer */
    bool list_changed;
    bool recount, suffices; /* whether the connected nodes suffice to continue; recount: find out */
    bool succeeds;          /* the list is still that of the coordinator before */
    bool replaced;          /* there is another coordinator */
    bool paused;            /* other nodes may be continuing without the connected ones */
    uint64_t paused_since;
    uint64_t until; /* to which time to wait for nodes that may come */
} tutti__rounds;

void tutti__rounds_init(tutti__rounds *r, uint64_t now_ms, const tutti__rounds_opts *opts);
void tutti__rounds_free(tutti__rounds *r);

/* ---- Events ----------------------------------------------------------------------------------------------------- */

void tutti__rounds_connected(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node);
/* False: another node has its rank, but may be lost; call it again. */
bool tutti__rounds_joined(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node,
                          const tutti__join *says);
/* It cannot take part. */
void tutti__rounds_refuse(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node,
                          const char *why);
/* Its connection was lost; ended: by the other end, or its host's kernel. The node is forgotten. */
void tutti__rounds_lost(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node, bool ended,
                        const char *why);
/* A worker of it has failed (said once per round, before its others have ended); permanent: and would fail again. */
void tutti__rounds_failed(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node, int number,
                          int code, bool permanent, const char *why);
/* No worker of it runs any more. port: as in tutti__join, a new one. */
void tutti__rounds_over(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node, int number,
                        int port);
/* It was told to end; final: the job, too, with this code. */
void tutti__rounds_leaves(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node, bool final,
                          int code, const char *why);
/* It disconnects because it did not hear from us. */
void tutti__rounds_apart(tutti__round_node *node);
/* It has reported all its workers (tutti__generations_resumed). */
void tutti__rounds_here(tutti__rounds *r, uint64_t now_ms, tutti__round_node *node);
/* It has this version of the list. */
void tutti__rounds_acked(tutti__round_node *node, int64_t version);
/* The generations, for their events about a worker of the node; NULL: the node is not, or no longer, in round `number`. */
tutti__generations *tutti__rounds_workers(tutti__rounds *r, uint64_t now_ms,
                                          const tutti__round_node *node, int number);
/* A node is dead: its host's kernel refused a connection. */
void tutti__rounds_is_dead(tutti__rounds *r, int id);
/* The job to which this rendezvous belonged continues under another coordinator, there. */
void tutti__rounds_moved(tutti__rounds *r, const char *address, int port);
/* Call this after events, and at the deadline (UINT64_MAX: none). */
void tutti__rounds_tick(tutti__rounds *r, uint64_t now_ms);
uint64_t tutti__rounds_deadline(const tutti__rounds *r);

/* ---- Questions --------------------------------------------------------------------------------------------------- */

/* Whether dead workers may be replaced, and new ones join: a worker has sent READY. */
static inline bool tutti__rounds_is_elastic(const tutti__rounds *r)
{
    return r->generations.elastic;
}
/* Another node that has the rank that this one wants; NULL: none. */
tutti__round_node *tutti__rounds_holder(const tutti__rounds *r, const tutti__round_node *node);
/* "hostb (process 4711)" */
const char *tutti__node_name(const tutti__round_node *node, char text[128]);
/* Too few nodes are connected; waiting nodes may look for another coordinator. */
static inline bool tutti__rounds_is_paused(const tutti__rounds *r)
{
    return r->paused && r->state == TUTTI__ROUNDS_RUNNING;
}
/* The first node from *at_p on whose vote matters, that is not connected, not known to be dead, and can be asked; NULL: none.
 * *at_p becomes its index. */
const tutti__roster_node *tutti__rounds_missing(const tutti__rounds *r, int *at_p);
/* The list, if the round is elastic and this coordinator succeeded another; else NULL. */
const tutti__roster *tutti__rounds_successor(const tutti__rounds *r);

#endif
