/* chaos.h -- a job's own workers, disturbed on purpose by seed and rate: `tutti run --chaos`.   SPDX-License-Identifier: MIT
 *
 * Events of each kind come as a Poisson process of its rate, a second of this node's time since the workers were first started; the
 * same seed, the same events. Nothing but this agent's workers and what belongs to their process groups is touched. */
#ifndef TUTTI_LAUNCH_CHAOS_H
#define TUTTI_LAUNCH_CHAOS_H

#include "launch/agent.h"

typedef enum tutti__chaos_kind {
    TUTTI__CHAOS_KILL, /* SIGKILL */
    TUTTI__CHAOS_STOP, /* SIGSTOP, and SIGCONT later */
    TUTTI__CHAOS_CUT,  /* its TCP connections are shut down */
    TUTTI__CHAOS_SLOW, /* stopped for a part of the time */
    TUTTI__CHAOS_KINDS
} tutti__chaos_kind;

/* What the user asks for. */
typedef struct tutti__chaos_plan {
    double rate[TUTTI__CHAOS_KINDS]; /* a second; 0: none */
    double stop_s;                   /* how long */
    double slow_factor, slow_s;      /* how much slower, how long */
    double after_s, until_s;
    int burst; /* an event hits 1 to so many */
    int keep;  /* so many are left alone at any time; -1: one, if there are several */
    uint64_t seed;
} tutti__chaos_plan;

/* "kill=0.5,stop=0.1:2,seed=7". ARG, with the key. */
tutti_status tutti__chaos_read(const char *spec, tutti__chaos_plan *plan_p);
/* Can it be done to n workers, here? ARG; UNSUPPORTED with the kernel's reason. */
tutti_status tutti__chaos_check(const tutti__chaos_plan *plan, int n);
/* In words. */
void tutti__chaos_describe(const tutti__chaos_plan *plan, char *text, size_t bytes);

/* ---- Events ------------------------------------------------------------------------------------------- */

typedef struct tutti__chaos_event {
    double at_s; /* INFINITY: there is none */
    tutti__chaos_kind kind;
    uint32_t number; /* of its kind */
    int n;           /* workers, at most */
} tutti__chaos_event;

typedef struct tutti__chaos_schedule {
    const tutti__chaos_plan *plan;
    uint32_t node;
    tutti__chaos_event next[TUTTI__CHAOS_KINDS];
} tutti__chaos_schedule;

/* Nodes have events of their own. */
void tutti__chaos_schedule_begin(tutti__chaos_schedule *schedule, const tutti__chaos_plan *plan,
                                 int node);
/* In the order of time. */
const tutti__chaos_event *tutti__chaos_schedule_peek(const tutti__chaos_schedule *schedule);
tutti__chaos_event tutti__chaos_schedule_take(tutti__chaos_schedule *schedule);
/* Number `i` of an event's choices: below `n`. */
int tutti__chaos_choice(const tutti__chaos_schedule *schedule, const tutti__chaos_event *event,
                        int i, int n);

/* ---- In the agent ------------------------------------------------------------------------------------- */

typedef struct tutti__chaos_victim {
    pid_t pid; /* whose it is: a worker that has been replaced since is another */
    bool killed, slowed;
    bool stopped;               /* by us, now */
    uint64_t until_ns, flip_ns; /* end of it; and, slowed: when it stops or goes on */
} tutti__chaos_victim;

typedef struct tutti__chaos {
    const tutti__chaos_plan *plan; /* NULL: none of it */
    tutti__workers *workers;
    tutti__chaos_schedule schedule;
    tutti__chaos_victim *victims; /* a worker's each */
    uint64_t begin_ns;            /* 0: no worker has been started yet */
    int keep, hits[TUTTI__CHAOS_KINDS], connections, misses;
} tutti__chaos;

/* Borrows the workers, and their job's plan. */
tutti_status tutti__chaos_open(tutti__chaos *chaos, tutti__workers *workers);
/* Does what is due, and says so. */
void tutti__chaos_advance(tutti__chaos *chaos);
/* When that will be (tutti__now_ns); UINT64_MAX: not while nothing else happens. */
uint64_t tutti__chaos_deadline(const tutti__chaos *chaos);
/* Says what was done in all. */
void tutti__chaos_close(tutti__chaos *chaos);

/* chaos_cut.c: shuts down the TCP connections of a worker's process group. Returns how many; *error_p: the last errno of
 * what could not be reached, else 0. */
int tutti__chaos_cut(pid_t group, int *error_p);
/* 0, or the errno with which the kernel refuses that. */
int tutti__chaos_try_cut(void);

#endif
