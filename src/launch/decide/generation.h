/* generation.h -- decides which workers form a generation of an elastic job, and what happens to the others.
 * SPDX-License-Identifier: MIT
 *
 * The rules of docs/design/elasticity.md, "Generations", as functions of a table of workers: no input or output, no clock.
 * Everything that happens to a worker is an event, at a non-decreasing time (milliseconds, of any origin); what must be done is
 * reported as actions, before the call returns. No action is repeated. */
#ifndef TUTTI_LAUNCH_GENERATION_H
#define TUTTI_LAUNCH_GENERATION_H

#include "elastic/agent_messages.h"

typedef enum tutti__generation_worker_state {
    TUTTI__WORKER_STARTING, /* its process was ordered or runs, and has not sent READY */
    TUTTI__WORKER_WAITING,  /* sent READY, and in no generation */
    TUTTI__WORKER_IN,       /* was told to form a generation, and has not sent READY since */
    TUTTI__WORKER_GONE      /* killed, lost, refused, or has left */
} tutti__generation_worker_state;

/* One process: the `start`th, from 0, with a local rank of a node. */
typedef struct tutti__worker_id {
    int node, local_rank, start;
} tutti__worker_id;

typedef struct tutti__generation_worker {
    tutti__worker_id id;
    tutti__generation_worker_state state;
    bool leaving;        /* was told LEAVE, or will be when it is READY */
    bool stopped;        /* by SIGSTOP; changed at turned_ms */
    bool sent_regroup;   /* in this generation */
    bool broken;         /* IN: others have left its generation, since broken_ms */
    bool closed;         /* the local rank: no worker is started with it any more */
    bool fails;          /* it has said that its failure would recur */
    bool finished;       /* it has sent FINISHED */
    uint32_t generation; /* its last one; 0: none */
    int rank;            /* in it */
    int64_t step;        /* committed, as far as reported; -1: no state */
    bool was_shared;     /* no state: a share of it was lost with its generation */
    /* one with this local rank was killed because others could not reach it, and none has committed since */
    bool unreached;
    /* workers of that generation that considered it dead, with itself if it gave up; the node of the last of them */
    int accusers, accuser;
    uint64_t since_ms, broken_ms, turned_ms; /* since_ms: in this state */
    int deaths;         /* with this local rank, since a step beyond death_step was committed */
    int64_t death_step; /* the highest of the job when the last of them died */
    bool resting; /* none is started with the local rank until the job's work reaches `wake` */
    int64_t pause, wake; /* steps */
} tutti__generation_worker;

typedef enum tutti__act {
    TUTTI__ACT_GENERATION, /* a message to the worker, with the action's other fields */
    TUTTI__ACT_REGROUP,    /* messages to the worker */
    TUTTI__ACT_LEAVE,
    TUTTI__ACT_REFUSE, /* with `why`; closes its local rank */
    TUTTI__ACT_KILL,   /* SIGKILL, `why`; ENDED follows */
    /* id.node and node `other` cannot reach each other: one of them is to be lost, id.node if `several` */
    TUTTI__ACT_EXCLUDE,
    /* One of these answers each ENDED: */
    TUTTI__ACT_REPLACE, /* start another, id.start + 1 */
    TUTTI__ACT_REST,    /* no replacement for now, `why`; REPLACE or LET_GO may follow */
    TUTTI__ACT_LET_GO,  /* no replacement; `why`, unless it ended normally */
    TUTTI__ACT_FAIL     /* the job fails. id.node -1: no worker is left, `code`, `why` */
} tutti__act;

typedef struct tutti__action {
    tutti__act act;
    tutti__worker_id id;
    uint32_t generation;
    int rank, size, local_rank, local_size;
    bool fresh, committed; /* as in agent_messages.h */
    int left;              /* as in agent_messages.h */
    int code;              /* exit code of the job */
    int other;             /* EXCLUDE */
    bool several;
    const char *why; /* valid until the callback returns */
} tutti__action;

typedef struct tutti__generations_opts {
    uint64_t limit_ms; /* for a late worker for which others wait; default 60 s */
    /* to wait for other starting workers, before a generation is ended for newcomers; default 100 */
    uint64_t gather_ms;
    /* for a stopped worker of a generation that is being formed, while another runs: the heartbeat interval; 0: no limit */
    uint64_t stopped_ms;
    bool begun; /* steps were committed in an earlier round */
    /* Numbers up to this one name generations in the store already: of an earlier coordinator in the same process. */
    uint32_t after;
    void (*act)(void *context, const tutti__action *action); /* must not call these functions */
    void *context;
} tutti__generations_opts;

typedef struct tutti__generations {
    tutti__generations_opts opts;
    tutti__generation_worker *list; /* by node and local rank */
    int n, capacity;
    uint32_t last;   /* the last generation; 0: none yet */
    int size;        /* of the last */
    bool formed;     /* a worker has committed in the last */
    int uncommitted; /* consecutive generations without a commit */
    int64_t step;    /* the highest step ever committed; -1 */
    /* reached: since all workers with the state died; work: steps done, including repeated ones */
    int64_t reached, work;
    int shards;      /* the same for all workers; 0: not known */
    char build[128]; /* the longest of the workers': some name no kernels yet */
    char settings[TUTTI__AGENT_SETTINGS]; /* of the first that said them */
    bool elastic;                         /* a worker was READY */
    bool finished; /* rank 0 has sent FINISHED: the steps are done, but not what rank 0 does then */
    bool failed;   /* nothing new begins: the round ends */
    bool paused;
    bool excludes; /* EXCLUDE was acted on, and no node was lost since */
    /* before this, nothing begins without the state: nodes may be about to resume; 0: there was no coordinator before */
    uint64_t hold_ms;
    bool trouble;                   /* nothing was committed since a worker died, at trouble_ms */
    uint64_t trouble_ms, commit_ms; /* commit_ms: of the last commit in the last generation */
    /* For the ledger. */
    int deaths, replaced, joined, left;
    uint64_t lost_ms;
} tutti__generations;

void tutti__generations_init(tutti__generations *g, const tutti__generations_opts *opts);
void tutti__generations_free(tutti__generations *g);

/* ---- Events; those of unknown workers are ignored -------------------------------- */

/* The node joins with n workers, STARTING. MEMORY. */
tutti_status tutti__generations_node_came(tutti__generations *g, int node, int n);
/* After node_came, for a worker of a node that reconnects, or joins a new coordinator: its number of starts, and the generation
 * that it is in or was in last; 0: none. If it waits, READY follows. */
void tutti__generations_resumed(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                uint32_t generation, int rank, int64_t step);
void tutti__generations_node_lost(tutti__generations *g, uint64_t now_ms, int node);
/* Its workers must leave. */
void tutti__generations_node_leaves(tutti__generations *g, uint64_t now_ms, int node);
void tutti__generations_said(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                             const tutti__worker_message *message);
/* Its process has ended: exit code, or 0 and a signal. For a process in the table there is one answer. */
void tutti__generations_ended(tutti__generations *g, uint64_t now_ms, tutti__worker_id id, int code,
                              int sig);
void tutti__generations_stopped(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                bool stopped);
/* While paused no generation is formed, and the current ones end after the current step. */
void tutti__generations_pause(tutti__generations *g, uint64_t now_ms, bool paused);
/* Call this at the deadline (UINT64_MAX: none). */
void tutti__generations_tick(tutti__generations *g, uint64_t now_ms);
uint64_t tutti__generations_deadline(const tutti__generations *g);

/* Number of living workers that are not about to leave; node -1: of all nodes. */
int tutti__generations_living(const tutti__generations *g, int node);

#endif
