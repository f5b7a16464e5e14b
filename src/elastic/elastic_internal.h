/* elastic_internal.h -- shared by the files of elastic training.   SPDX-License-Identifier: MIT
 *
 *     elastic.c           tries at steps, what members exchange in each, the end
 *     next_group.c        leaving a group and forming the next
 *     elastic_failure.c   which failures another group survives
 *     share_state.c       which rank has which step; copying the state from rank 0 to those that lack it
 *     transfer.c          that copy: small ranges are packed together, and applied only when all have arrived
 *     kept_parts.c        what is kept: tables of functions, memory
 *     reducer_ranges.c    and reducers, with their ranges
 *     agent_client.c      messages to and from the launcher's agent on this host
 *     shard_queue.c       who computes which shard
 *     redundant_shards.c  shards that two ranks compute, to find one that computes wrong
 *     checks.c            on request: whether ranks have the same state */
#ifndef TUTTI_ELASTIC_ELASTIC_INTERNAL_H
#define TUTTI_ELASTIC_ELASTIC_INTERNAL_H

#include "base/base.h"
#include "elastic/agent_messages.h"
#include "elastic/shard_queue.h"
#include <tutti/elastic.h>

typedef struct tutti__elastic_part {
    struct tutti__elastic_part *next, *previous;
    tutti_elastic_part calls;
    char name[64];
} tutti__elastic_part;

typedef enum tutti__phase {
    TUTTI__IDLE,     /* between tries */
    TUTTI__VOID,     /* an empty try: the program checks its loop condition first */
    TUTTI__SHARDS,   /* computing shards */
    TUTTI__UPDATING, /* the means are complete; the state may be half updated */
} tutti__phase;

/* What the members of a group exchange at the end of each try. This collective also separates the last take of one try
 * from the first of the next. */
typedef struct tutti__try_report {
    int64_t flags, computed; /* shards, in this try */
    int64_t ns;              /* that a shard takes this rank; 0: not known */
} tutti__try_report;
/* SEES_DAMAGE: sums are not what was added to them; OWN_DAMAGE: in this rank's memory; WAS_WRONG: it was found wrong before. */
enum {
    TUTTI__ASKS_REGROUP = 1,
    TUTTI__ASKS_LEAVE = 2,
    TUTTI__SEES_DAMAGE = 4,
    TUTTI__OWN_DAMAGE = 8,
    TUTTI__WAS_WRONG = 16
};

/* ---- Shards that two ranks compute (redundant_shards.c) ---- */

typedef enum tutti__try_purpose {
    TUTTI__TRY_COUNTS,    /* the step's own try */
    TUTTI__TRY_DUPLICATE, /* each rank computes a shard that another will */
    TUTTI__TRY_VOTE,      /* all compute the shard that is disputed */
} tutti__try_purpose;

typedef struct tutti__digested_shard {
    int64_t shard, digest; /* -1: none */
} tutti__digested_shard;
enum { TUTTI__MOST_DIGESTED = 4 }; /* by one rank in a try; more only if it has taken almost all */

/* A shard for which two ranks have other digests. */
typedef struct tutti__dispute {
    int64_t shard; /* -1: none */
    int rank[2];
    int64_t digest[2];
} tutti__dispute;

typedef struct tutti__redundancy {
    int64_t every; /* steps between checks, 0: never; -1: as often as the budget allows */
    bool said_impossible;
    /* The same on all ranks of the group. Steps: 1 + the number; 0: none. */
    uint64_t looked_at, checked; /* the last step for which it was decided, and that is checked */
    bool due;                    /* in the coming try */
    double credit;               /* how many checks the steps since the last one took */
    int64_t cost_ns;             /* of the last check, for the slowest rank; 0: none yet */
    tutti__dispute dispute;
    tutti__try_purpose purpose; /* of the present try */
    /* This rank's. */
    int left,
        digested; /* shards: of a discarded try, to be computed; the present one, if it is digested; -1: none */
    tutti__digested_shard own[TUTTI__MOST_DIGESTED],
        duplicate; /* in this try; in the discarded one before */
    int n_own;
    uint64_t began_ns;
    int64_t cost_own_ns;
    int64_t damage;   /* SEES_DAMAGE, OWN_DAMAGE, in the present try */
    char damaged[64]; /* the gradient, as this rank sees it; "": none */
    int n_unplaced;   /* tries one after the other with damage, but no rank to name; alike on all */
    int caught;       /* times that this worker was wrong */
    char wrong[160];  /* what was, the last time; "": it was told (tutti__elastic_take_wrong) */
    bool corrupt;     /* the state may be: a rank computed wrong for an unknown time */
} tutti__redundancy;

struct tutti_elastic {
    tutti_elastic_opts opts;
    char group_name[64];
    tutti__elastic_part *first, *last;

    int agent; /* descriptor; -1: there is none, and the group is that of the environment */
    tutti__agent_message call; /* the generation to form, if `called` */
    bool called, said_ready;
    bool asked_to_regroup, asked_to_leave;
    bool no_other; /* group follows */

    tutti_group *group; /* NULL: none */
    tutti__shard_queue *shard_queue;
    /* the last that this worker formed, or that ended before it could; 0: none */
    uint32_t generation;
    int size;              /* of the last group */
    double called_ms;      /* when this worker began to form it */
    int64_t left_before;   /* workers that had left the job by then, as the launcher counts them */
    int64_t reported_left; /* since then, as they told the group */
    bool fresh, lost_all;  /* from `call` */
    bool has_state;
    /* torn: the state is half of one step and half of another. can_begin: in a fresh group, it is complete, so that training can
     * begin from it. */
    bool torn, can_begin;
    bool forgot; /* a share of the state was lost with the last group */
    uint64_t step;
    /* 1 + the step at which this worker, or one that it met, has come to tutti_elastic_end; 0: none has */
    int64_t ends_at;
    bool over; /* all ranks have reached it */
    bool left;
    bool regrouping, leaving; /* agreed: when the current step is over */

    tutti__phase phase;
    uint64_t n_tries;           /* in this group */
    tutti__try_report *reports; /* by rank */
    int *ranges;                /* of shards, in this try or the last */
    int64_t *speeds;            /* from `reports` */
    int64_t shard_ns;           /* lately; 0: not known */
    uint64_t since_ns, computed_ns;
    int computed;
    int64_t check_replicas; /* TUTTI_CHECK_REPLICAS */
    tutti__redundancy redundant;
    uint64_t committed_ns; /* when COMMITTED was last sent; 0: not in this generation */

    int n_lost, lost[TUTTI__AGENT_MAX_LOST];
    char why[256]; /* why the last group ended */
    char settings[TUTTI__AGENT_SETTINGS];

    tutti_status status; /* the first failure that ends the job for this worker */
    char message[2048];
    uint64_t down_ns; /* since when training is interrupted; 0: it is not */
    tutti_elastic_stats stats;
};

/* This worker's program, or that of another, has ended at the present step. */
static inline bool tutti__elastic_is_ending(const tutti_elastic *e)
{
    return e->ends_at == (int64_t)e->step + 1;
}

/* ---- agent_client.c ---- */

/* The descriptor of TUTTI_AGENT_FD, -1 without it; ARG if it is not such a socket. */
tutti_status tutti__agent_find(int *fd_p);
/* Sends a message of this kind. PEER: the agent is gone. */
tutti_status tutti__agent_say(tutti_elastic *e, tutti__worker_message_kind kind);
/* Handles the agent's messages that have arrived, or waits for at least one. PEER: it is gone; ARG: it refuses. */
tutti_status tutti__agent_hear(tutti_elastic *e, bool wait);

/* ---- elastic_failure.c ---- */

/* Keeps the first failure that ends the job for this worker, and reports it to the group. Returns it. */
tutti_status tutti__elastic_fail(tutti_elastic *e, tutti_status status);
/* That failure again, with its message. */
tutti_status tutti__elastic_failure(const tutti_elastic *e);
bool tutti__elastic_is_loss(tutti_elastic *e, tutti_status status);

/* ---- next_group.c ---- */

/* Leaves the group, if there is one. */
void tutti__elastic_leave(tutti_elastic *e, const char *why);

/* ---- share_state.c ---- */

/* Collective in the new group: copies the state of rank 0 to all ranks that lack it. */
tutti_status tutti__elastic_share_state(tutti_elastic *e);

/* ---- checks.c ---- */

/* Reads the environment; ARG. */
tutti_status tutti__checks_init(tutti_elastic *e);
/* Between tries, collective: MISMATCH, the same on all ranks, with the part that differs. */
tutti_status tutti__check_parts(const tutti_elastic *e);

/* ---- redundant_shards.c ---- */

/* Reads TUTTI_CHECK_SHARDS; ARG. */
tutti_status tutti__redundancy_init(tutti_elastic *e);
/* In a new group. */
void tutti__redundancy_enter(tutti_elastic *e);
/* Decides what the coming try is, when its ranges are known. */
void tutti__redundancy_begin_try(tutti_elastic *e);
/* In a discarded try: begins this rank's shard; -1: no more. */
tutti_status tutti__redundancy_next(tutti_elastic *e, int *shard_p);
/* In a step's own try: this rank has taken a shard, which may have to be digested; before the parts begin it. */
void tutti__redundancy_note(tutti_elastic *e, int shard);
/* When the shard is computed. */
tutti_status tutti__redundancy_end_shard(tutti_elastic *e);
/* The present step counts only if all ranks agree that it does, not if the end of another is met before. */
bool tutti__redundancy_is_open(const tutti_elastic *e);
/* Before a step counts, collective: sets *again_p if two ranks had other digests of a shard. */
tutti_status tutti__redundancy_compare(tutti_elastic *e, bool *again_p);
/* From all ranks' flags: sets *again_p if any saw damage. Status as of a vote. */
tutti_status tutti__redundancy_report_damage(tutti_elastic *e, bool *again_p);
/* Drops such a try. A vote is collective: MISMATCH without a majority; DEVICE on a rank that was wrong and must end, and GROUP errors on
 * the others. */
tutti_status tutti__redundancy_end_discarded(tutti_elastic *e);

/* ---- kept_parts.c ---- */

/* TUTTI_TRY of a function of each part that has it, with `arguments` in parentheses. */
#define TUTTI__EACH_PART(e, function, arguments)                                                   \
    do {                                                                                           \
        for (const tutti__elastic_part *part = (e)->first; part; part = part->next)                \
            if (part->calls.function)                                                              \
                TUTTI_TRY(part->calls.function arguments);                                         \
    } while (0)
void tutti__parts_free(tutti_elastic *e);

#endif
