/* chaos.h -- fault injection into a job's own workers, by seed and rate: `tutti run --chaos`.   SPDX-License-Identifier: MIT
 *
 * Events of each kind are a Poisson process with the given rate per second, on this node's time since the workers were first
 * started; the same seed gives the same events. Only this agent's workers and their process groups are affected. */
#ifndef TUTTI_LAUNCH_CHAOS_H
#define TUTTI_LAUNCH_CHAOS_H

#include "elastic/agent_messages.h"
#include "launch/process/node_workers.h"

typedef enum tutti__chaos_kind {
    TUTTI__CHAOS_KILL, /* SIGKILL */
    TUTTI__CHAOS_STOP, /* SIGSTOP, and SIGCONT later */
    TUTTI__CHAOS_CUT,  /* its TCP connections are shut down */
    TUTTI__CHAOS_SLOW, /* stopped for part of the time */
    TUTTI__CHAOS_KINDS
} tutti__chaos_kind;

/* The user's request. */
typedef struct tutti__chaos_plan {
    double rate[TUTTI__CHAOS_KINDS]; /* per second; 0: none */
    double stop_s;                   /* how long */
    double slow_factor, slow_s;      /* how much slower, how long */
    double after_s, until_s;
    int burst; /* an event hits 1 to this many workers */
    int keep;  /* this many stay undisturbed at any time; -1: one, if there are several */
    uint64_t seed;
    double flip_rate;      /* bits per step of a worker, which it flips itself; 0: none */
    const char *flip_kind; /* "any": a constant */
} tutti__chaos_plan;

/* "kill=0.5,stop=0.1:2,seed=7". ARG, with the key. */
tutti_status tutti__chaos_read(const char *spec, tutti__chaos_plan *plan_p);
/* Checks that it is possible for n workers on this machine. ARG; UNSUPPORTED with the kernel's reason. */
tutti_status tutti__chaos_check(const tutti__chaos_plan *plan, int n);
/* The plan as text. */
void tutti__chaos_describe(const tutti__chaos_plan *plan, char *text, size_t bytes);
/* TUTTI_CHAOS_FLIP for the workers of a node that has n; false: no bits are flipped. */
bool tutti__chaos_flips(const tutti__chaos_plan *plan, int n, char *text, size_t bytes);

/* ---- Events ------------------------------------------------------------------------------------------- */

typedef struct tutti__chaos_event {
    double at_s; /* INFINITY: none */
    tutti__chaos_kind kind;
    uint32_t number; /* number within its kind */
    int n;           /* workers to hit, at most */
} tutti__chaos_event;

typedef struct tutti__chaos_schedule {
    const tutti__chaos_plan *plan;
    uint32_t node;
    tutti__chaos_event next[TUTTI__CHAOS_KINDS];
} tutti__chaos_schedule;

/* Each node has its own events. */
void tutti__chaos_schedule_begin(tutti__chaos_schedule *schedule, const tutti__chaos_plan *plan,
                                 int node);
/* The next event in time. */
const tutti__chaos_event *tutti__chaos_schedule_peek(const tutti__chaos_schedule *schedule);
tutti__chaos_event tutti__chaos_schedule_take(tutti__chaos_schedule *schedule);
/* Random choice `i` of an event: below `n`. */
int tutti__chaos_choice(const tutti__chaos_schedule *schedule, const tutti__chaos_event *event,
                        int i, int n);

/* ---- In the agent ------------------------------------------------------------------------------------- */

typedef struct tutti__chaos_victim {
    pid_t pid; /* of the worker; a replacement has another */
    bool killed, slowed;
    bool stopped;               /* by us, now */
    uint64_t until_ns, flip_ns; /* end of the disturbance; slowed: next stop or continue */
} tutti__chaos_victim;

typedef struct tutti__chaos {
    const tutti__chaos_plan *plan; /* NULL: no chaos */
    tutti__workers *workers;
    tutti__chaos_schedule schedule;
    tutti__chaos_victim *victims; /* one per worker */
    uint64_t begin_ns;            /* 0: no worker was started yet */
    int keep, hits[TUTTI__CHAOS_KINDS], connections, misses;
} tutti__chaos;

/* Borrows the workers, and their job's plan. */
tutti_status tutti__chaos_open(tutti__chaos *chaos, tutti__workers *workers);
/* Executes and logs due events. */
void tutti__chaos_advance(tutti__chaos *chaos);
/* When the next is due (tutti__now_ns); UINT64_MAX: not before another event of the agent. */
uint64_t tutti__chaos_deadline(const tutti__chaos *chaos);
/* Logs the totals. */
void tutti__chaos_close(tutti__chaos *chaos);

/* chaos_cut.c: shuts down the TCP connections of a worker's process group. Returns how many; *error_p: the last errno for
 * one that could not be shut down, else 0. */
int tutti__chaos_cut(pid_t group, int *error_p);
/* 0, or the errno with which the kernel refuses that. */
int tutti__chaos_try_cut(void);

#endif
