/* internal.h -- the inside of elastic training.   SPDX-License-Identifier: MIT
 *
 *     elastic.c   attempts at steps, what the members of a group tell each other in each, the end
 *     join.c      from one group to the next, and what of it is worth another try
 *     state.c     who has which step, and its way from rank 0 to those who lack it
 *     transfer.c  that way: small ranges together, and nothing in its place before all is there
 *     parts.c     what is kept: functions, bytes
 *     reducer.c   and reducers, with their ranges (ranges.h)
 *     agent.c     words with the launcher's agent of this host
 *     deal.c      who computes which shard */
#ifndef TUTTI_ELASTIC_INTERNAL_H
#define TUTTI_ELASTIC_INTERNAL_H

#include "base/base.h"
#include "elastic/agent_words.h"
#include "elastic/deal.h"
#include <tutti/elastic.h>

typedef struct tutti__kept {
    struct tutti__kept *next, *previous;
    tutti_elastic_part calls;
    char name[64];
} tutti__kept;

typedef enum tutti__phase {
    TUTTI__IDLE,   /* between attempts */
    TUTTI__VOID,   /* an attempt of nothing: the program's own condition is to be looked at first */
    TUTTI__SHARDS, /* shards are computed */
    TUTTI__UPDATING, /* the means are there; the state may be half changed */
} tutti__phase;

/* What the members of a group tell each other at the end of each attempt. It also is the collective that all pass between the last
 * take of one attempt and the first of the next. */
typedef struct tutti__told {
    int64_t flags, computed; /* shards, in this attempt */
    int64_t ns;              /* that a shard takes this rank; 0: not known */
} tutti__told;
enum { TUTTI__ASKS_REGROUP = 1, TUTTI__ASKS_LEAVE = 2 };

struct tutti_elastic {
    tutti_elastic_opts opts;
    char group_name[64];
    tutti__kept *first, *last;

    int agent; /* descriptor; -1: there is none, and the group is that of the environment */
    tutti__agent_word word; /* the generation that is to be formed, if `called` */
    bool called, said_ready;
    bool asked_to_regroup, asked_to_leave;

    tutti_group *group; /* NULL: none */
    tutti__deal *deal;
    uint32_t generation;  /* the last that this worker was told of; 0: none */
    int size;             /* of the last group */
    double called_ms;     /* when this worker began to form it */
    bool fresh, lost_all; /* as in the word */
    bool has_state;
    /* What is kept is half of one step and half of another; in a fresh group: it is something whole, from which to begin. */
    bool torn, can_begin;
    uint64_t step;
    bool ending; /* the others are in tutti_elastic_end, or this worker is */
    bool over;   /* all were there */
    bool left;
    bool regrouping, leaving; /* agreed upon: when the step at hand is over */

    tutti__phase phase;
    uint64_t attempt;  /* in this group */
    tutti__told *told; /* by each rank */
    int *ranges;       /* of shards, of this attempt or the last */
    int64_t *speeds;   /* as told */
    int64_t shard_ns;  /* lately; 0: not known */
    uint64_t since_ns, computed_ns;
    int computed;
    uint64_t committed_ns; /* when COMMITTED was last said; 0: not in this generation */

    int n_lost, lost[TUTTI__AGENT_MAX_LOST];
    char why[256]; /* what ended the last group, in words */

    tutti_status status; /* the first failure that was the end */
    char message[2048];
    uint64_t down_ns; /* since when nothing goes on; 0: it does */
    tutti_elastic_stats stats;
};

/* ---- agent.c ---- */

/* The descriptor of TUTTI_AGENT_FD, -1 without it; ARG if that is no such socket. */
tutti_status tutti__agent_find(int *fd_p);
/* Fills in what all words have and says it. PEER: the agent is gone. */
tutti_status tutti__agent_say(tutti_elastic *e, tutti__worker_word_kind kind);
/* Takes in what the agent has said: without waiting, or until there is one word more. PEER: it is gone; ARG: it refuses. */
tutti_status tutti__agent_hear(tutti_elastic *e, bool wait);

/* ---- join.c ---- */

/* Keeps the first failure that is the end, which the group is told. Returns it. */
tutti_status tutti__elastic_fail(tutti_elastic *e, tutti_status status);
/* What was kept, as the thread's message. */
tutti_status tutti__elastic_failure(const tutti_elastic *e);
bool tutti__elastic_is_loss(tutti_elastic *e, tutti_status status);
/* Leaves the group, if there is one. */
void tutti__elastic_leave(tutti_elastic *e, const char *why);

/* ---- state.c ---- */

/* Collective in the new group: the state of rank 0 comes to all who lack it. */
tutti_status tutti__elastic_share_state(tutti_elastic *e);

/* ---- parts.c ---- */

/* TUTTI_TRY of a function of each part that has it, with `arguments` in parentheses. */
#define TUTTI__EACH_PART(e, function, arguments)                                                   \
    do {                                                                                           \
        for (const tutti__kept *part = (e)->first; part; part = part->next)                        \
            if (part->calls.function)                                                              \
                TUTTI_TRY(part->calls.function arguments);                                         \
    } while (0)
void tutti__parts_free(tutti_elastic *e);

#endif
