/* generation.h -- decides who forms a generation of an elastic job, and what becomes of those who do not.
 * SPDX-License-Identifier: MIT
 *
 * The rules of docs/design/elasticity.md, "Generations", as functions of a table of members: no input or output, no clock.
 * Whatever happens to a worker is an event, at a time that never goes back (milliseconds, of any origin); what is to be done
 * comes out as actions, before the call returns. Nobody is told anything twice. */
#ifndef TUTTI_LAUNCH_GENERATION_H
#define TUTTI_LAUNCH_GENERATION_H

#include "elastic/agent_words.h"

typedef enum tutti__member_state {
    TUTTI__MEMBER_STARTING, /* its process was ordered or runs, and has not said READY */
    TUTTI__MEMBER_WAITING,  /* READY, and in no generation */
    TUTTI__MEMBER_IN,       /* was told to form a generation, and is not READY since */
    TUTTI__MEMBER_GONE      /* was killed, lost, refused, or has left */
} tutti__member_state;

/* One process: the `start`th, from 0, in a place of a node. */
typedef struct tutti__worker_id {
    int node, place, start;
} tutti__worker_id;

typedef struct tutti__member {
    tutti__worker_id id;
    tutti__member_state state;
    bool leaving;        /* is told LEAVE, or will be when it is READY */
    bool stopped;        /* by SIGSTOP */
    bool told_regroup;   /* in this generation */
    bool broken;         /* IN: others are out of its generation, since broken_ms */
    bool closed;         /* the place: nobody is started in it any more */
    uint32_t generation; /* the last it was in; 0: none */
    int rank;            /* in it */
    int64_t step;        /* committed, as far as it was told; -1: it has no state */
    int accusers; /* who took it for dead in that generation; itself, if it gave it up of its own */
    uint64_t since_ms, broken_ms; /* in this state */
    int deaths;                   /* in this place, since it committed a step beyond death_step */
    int64_t death_step;           /* the highest of the job when the last of them died */
    bool resting;                 /* the place stays empty until the job's work is `wake` */
    int64_t pause, wake;          /* steps */
} tutti__member;

typedef enum tutti__act {
    TUTTI__ACT_GENERATION, /* a word to the member, with what follows in the action */
    TUTTI__ACT_REGROUP,    /* words to the member */
    TUTTI__ACT_LEAVE,
    TUTTI__ACT_REFUSE, /* with `why`; its place is closed */
    TUTTI__ACT_KILL,   /* SIGKILL, `why`, and its end is still to be told */
    /* Answers to ENDED, one to each: */
    TUTTI__ACT_REPLACE, /* start another in its place, id.start + 1 */
    TUTTI__ACT_REST,    /* nobody takes its place for now, `why`; REPLACE or LET_GO may follow */
    TUTTI__ACT_LET_GO,  /* nobody takes its place; `why`, unless it ended in good order */
    TUTTI__ACT_FAIL     /* it is the job's failure. id.node -1: no worker is left, `code`, `why` */
} tutti__act;

typedef struct tutti__action {
    tutti__act act;
    tutti__worker_id id;
    uint32_t generation;
    int rank, size, local_rank, local_size;
    bool fresh, committed; /* as in agent_words.h */
    int code;              /* that the job ends with */
    const char *why;       /* until the callback returns */
} tutti__action;

typedef struct tutti__generations_opts {
    uint64_t limit_ms; /* for who is late, where others wait for it; default 60 s */
    uint64_t
        gather_ms; /* for others that start, before a generation is ended for newcomers; default 100 */
    bool begun;    /* steps were committed in an earlier round */
    void (*act)(void *context, const tutti__action *action); /* calls nothing here */
    void *context;
} tutti__generations_opts;

typedef struct tutti__generations {
    tutti__generations_opts opts;
    tutti__member *list; /* by node and place */
    int n, capacity;
    uint32_t last; /* generation; 0: none yet */
    int size;      /* of the last */
    bool formed;   /* somebody has committed in the last */
    int voids;     /* generations in a row without a commit */
    int64_t step;  /* the highest that was ever committed; -1 */
    int64_t reached,
        work;   /* since all who had the state have died; steps done, those done again counted */
    int shards; /* of all members, 0: not known */
    char build[128]; /* of the first member */
    bool elastic;    /* somebody was READY */
    bool finished;
    bool failed; /* nothing is begun any more: the round ends */
    bool paused;
    uint64_t hold_ms; /* without the state nothing begins before: nodes are about to resume */
    bool trouble;     /* nothing is committed since somebody died, at trouble_ms */
    uint64_t trouble_ms, commit_ms; /* the last one in the last generation */
    /* For the ledger. */
    int deaths, replaced, joined, left;
    uint64_t lost_ms;
} tutti__generations;

void tutti__generations_init(tutti__generations *g, const tutti__generations_opts *opts);
void tutti__generations_free(tutti__generations *g);

/* ---- Events; of a worker that is not known (any more) they are ignored -------------------------------- */

/* The node begins with n workers, STARTING. MEMORY. */
tutti_status tutti__generations_node_came(tutti__generations *g, int node, int n);
/* After node_came, of a node that comes back to a coordinator that lost sight of it, or that took over from another: which start
 * this is, and the generation that it is in or was in last; 0: none. If it waits, READY is told next. */
void tutti__generations_resumed(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                uint32_t generation, int rank, int64_t step);
void tutti__generations_node_lost(tutti__generations *g, uint64_t now_ms, int node);
/* Its workers are to leave. */
void tutti__generations_node_leaves(tutti__generations *g, uint64_t now_ms, int node);
void tutti__generations_said(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                             const tutti__worker_word *word);
/* Its process has ended: exit code, or 0 and a signal. Whoever was in the table gets one answer. */
void tutti__generations_ended(tutti__generations *g, uint64_t now_ms, tutti__worker_id id, int code,
                              int sig);
void tutti__generations_stopped(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                bool stopped);
/* While it is paused no generation is formed, and those that there are end with the step at hand. */
void tutti__generations_pause(tutti__generations *g, uint64_t now_ms, bool paused);
/* Time has passed; to be called at the deadline (UINT64_MAX: none). */
void tutti__generations_tick(tutti__generations *g, uint64_t now_ms);
uint64_t tutti__generations_deadline(const tutti__generations *g);

/* NULL: none. */
const tutti__member *tutti__generations_find(const tutti__generations *g, int node, int place);
/* Workers that live and are not about to leave; node -1: of all nodes. */
int tutti__generations_living(const tutti__generations *g, int node);

#endif
