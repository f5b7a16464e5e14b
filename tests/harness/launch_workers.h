/* launch_workers.h -- a small elastic job as bytes: its workers, their groups, and the messages between them and the coordinator.
 * SPDX-License-Identifier: MIT
 *
 * Of tests/unit/launch_model.c, which says what is modelled, and in which order states are visited. */
#ifndef TUTTI_TESTS_LAUNCH_WORKERS_H
#define TUTTI_TESTS_LAUNCH_WORKERS_H

#include "launch/decide/generation.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, STEPS = 2, UP = 6, DOWN = 4, GROUPS = 3, LIMIT_MS = 60000, TORN = -2 };

/* ---- A state of the job: bytes only, so that equal states are equal memory ------------------------------ */

typedef enum phase { NONE, READY, IN } phase;
/* Collectives of a generation, in order; then REDUCE, TELL for each step, and a barrier at the end. */
typedef enum place { FORMING = 1, TRANSFER, REDUCE, TELL, END } place;
typedef enum end_kind { STOPPED = 16, CONTINUED, ENDED, ENDED_WELL, ENDED_TORN } end_kind;

typedef struct message {
    uint8_t kind, generation, lost;
    int8_t step;
} message;

typedef struct worker {
    uint8_t phase, start, generation, rank;
    uint8_t entered; /* collectives of its generation; counted on by steps */
    uint8_t at;      /* the place in a round of the loop: FORMING..TRANSFER, REDUCE, TELL, END */
    int8_t step, reached; /* in memory, -1: no state; the highest it has ever had */
    uint8_t torn, regroup, leave, frozen, doomed, said;
    uint8_t n_up, n_down;
    message up[UP], down[DOWN];
} worker;

typedef struct group {
    uint8_t generation, size, fresh;
    uint8_t slot[N], start[N], entered[N];
    int8_t header[N];
    uint8_t gone, flagged; /* ranks */
} group;

typedef struct member {
    uint8_t state, flags, generation, rank, accusers, start, deaths, pause, rest;
    int8_t step, death_step;
} member;

typedef struct state {
    worker w[N];
    group groups[GROUPS];
    member m[N];
    uint8_t last, size, flags, uncommitted, shards;
    int8_t step, reached;
    uint8_t faults, silence; /* faults left; a fault after which the victim does not end */
} state;

typedef enum mutation {
    NO_MUTATION,
    LOWEST_RANK_FIRST, /* rank 0 is whoever comes first */
    KILLED_ONES_LIVE,  /* workers that were given up are not killed */
    RECEIVED_IN_PLACE, /* a state is received over the old one */
    COMMITTED_ALONE,   /* the update does not wait for all sums */
    NOBODY_IS_TOLD,    /* no REGROUP when a member has left its generation */
    NO_NEW_GENERATION, /* READY of a worker that was in a generation is lost */
    N_MUTATIONS
} mutation;

/* One job that is explored. */
typedef struct plan {
    int nodes, shards;  /* places are spread over the nodes; a shard less than places: a spare */
    int faults, starts; /* of all; in one place, 0: any number */
    bool at_work;   /* starts with all working on the last step, else before the first generation */
    bool all_kinds; /* one of the faults is silent, or not: the others are deaths */
    mutation mutation;
} plan;

static struct {
    plan plan;
    state *s;
    const char *broken; /* the violated invariant */
    tutti__generations g;
} job;

static void broken(const char *what)
{
    if (!job.broken)
        job.broken = what;
}

static void require(bool holds, const char *what)
{
    if (!holds)
        broken(what);
}

static bool is_alive(const worker *w)
{
    return w->phase != NONE;
}

static bool is_counted(const worker *w)
{
    return is_alive(w) && !w->doomed;
}

static void push(message *queue, uint8_t *n, int capacity, message x)
{
    require(*n < capacity, "the model's queues are too short");
    if (*n < capacity)
        queue[(*n)++] = x;
}

static message pop(message *queue, uint8_t *n)
{
    message x = queue[0];

    --*n;
    memmove(queue, queue + 1, *n * sizeof *queue);
    queue[*n] = (message){0};
    return x;
}

/* ---- Groups --------------------------------------------------------------------------------------------- */

static group *group_of(state *s, uint32_t generation)
{
    for (int i = 0; i < GROUPS; i++)
        if (s->groups[i].generation == generation)
            return &s->groups[i];
    return NULL;
}

/* The group of a worker that is in one. */
static group *own_group(state *s, const worker *w)
{
    return group_of(s, w->generation);
}

static bool is_member(const state *s, const group *g, int rank)
{
    const worker *w = &s->w[g->slot[rank]];

    return is_alive(w) && w->start == g->start[rank];
}

/* It is dead, or has left; others can notice. */
static void leave_groups(state *s, int i)
{
    for (int k = 0; k < GROUPS; k++)
        for (int r = 0; r < s->groups[k].size; r++)
            if (s->groups[k].slot[r] == i && s->groups[k].start[r] == s->w[i].start)
                s->groups[k].gone |= (uint8_t)(1 << r);
}

/* Frees groups that no worker can enter any more. */
static void forget_groups(state *s)
{
    for (int k = 0; k < GROUPS; k++) {
        group *g = &s->groups[k];

        if (g->generation && g->gone == (1 << g->size) - 1)
            *g = (group){0};
    }
}

static bool all_entered(const group *g, int count)
{
    for (int r = 0; r < g->size; r++)
        if (g->entered[r] < count)
            return false;
    return true;
}

static void enter(state *s, worker *w, int at)
{
    group *g = own_group(s, w);

    w->at = (uint8_t)at;
    g->entered[w->rank] = ++w->entered;
    if (at == FORMING)
        g->header[w->rank] = w->torn ? TORN : w->step;
    if (at == TELL && (w->regroup || w->leave))
        g->flagged |= (uint8_t)(1 << w->rank);
}

/* ---- Workers -------------------------------------------------------------------------------------------- */

static void say(worker *w, int kind, int lost)
{
    push(w->up, &w->n_up, UP,
         (message){(uint8_t)kind, w->generation, (uint8_t)lost, w->torn ? -1 : w->step});
}

static void say_ready(worker *w, int lost)
{
    w->phase = READY;
    w->at = w->entered = w->regroup = w->said = 0;
    if (job.plan.mutation != NO_NEW_GENERATION || w->generation == 0)
        say(w, TUTTI__WORKER_READY, lost);
}

static void end(state *s, int i, end_kind how)
{
    worker *w = &s->w[i];

    leave_groups(s, i);
    if (how == ENDED && w->generation == 0 && w->n_up == 1 && w->up[0].kind == TUTTI__WORKER_READY)
        pop(w->up, &w->n_up); /* before it was ready */
    push(w->up, &w->n_up, UP, (message){(uint8_t)how, 0, 0, 0});
    memset(w->down, 0, sizeof w->down);
    w->phase = NONE;
    w->generation = w->rank = w->entered = w->at = w->n_down = 0;
    w->torn = w->regroup = w->leave = w->frozen = w->doomed = w->said = 0;
    w->step = w->reached = -1;
}

/* Ranks that this one considers dead. */
static int lost_of(const state *s, const group *g)
{
    int lost = 0;

    for (int r = 0; r < g->size; r++)
        if (!is_member(s, g, r) || s->w[g->slot[r]].frozen)
            lost |= 1 << r;
    return lost;
}

static void leave_group(state *s, int i, int lost)
{
    leave_groups(s, i);
    say_ready(&s->w[i], lost);
}

static void hear_within(worker *w)
{
    while (w->n_down > 0) {
        message x = pop(w->down, &w->n_down);

        if (x.kind == TUTTI__AGENT_REGROUP && x.generation == w->generation)
            w->regroup = 1;
        else if (x.kind == TUTTI__AGENT_LEAVE)
            w->leave = 1;
        else if (x.kind == TUTTI__AGENT_GENERATION)
            broken("one: a member of a generation is called into another");
    }
}

static void go_away(state *s, int i)
{
    say(&s->w[i], TUTTI__WORKER_LEAVES, 0);
    end(s, i, ENDED_WELL);
}

/* Reads all messages; then forms a generation, or keeps waiting. */
static void hear_outside(state *s, int i)
{
    worker *w = &s->w[i];
    bool called = false, over = false;

    while (w->n_down > 0) {
        message x = pop(w->down, &w->n_down);

        if (x.kind == TUTTI__AGENT_GENERATION) {
            called = true;
            w->generation = x.generation;
            w->rank = x.lost;
        } else if (x.kind == TUTTI__AGENT_REGROUP && called && x.generation == w->generation) {
            called = false;
            over = true;
        } else if (x.kind == TUTTI__AGENT_LEAVE) {
            w->leave = 1;
        }
    }
    if (w->leave) {
        go_away(s, i);
    } else if (over) {
        leave_group(s, i, 0);
    } else if (called) {
        w->phase = IN;
        w->entered = 0;
        enter(s, w, FORMING);
    }
}

/* The next try, or the end. */
static void begin(state *s, int i)
{
    worker *w = &s->w[i];

    w->reached = w->step > w->reached ? w->step : w->reached;
    for (int k = 0; k < N; k++)
        require(!is_counted(&s->w[k]) || w->doomed || s->w[k].reached <= w->step,
                "kept: a try begins at an older step than somebody living had committed");
    hear_within(w);
    enter(s, w, w->step == STEPS ? END : REDUCE);
}

static void take_state(state *s, int i)
{
    const group *g = own_group(s, &s->w[i]);
    worker *w = &s->w[i];

    w->step = g->fresh ? 0 : g->header[0];
    w->torn = 0;
    begin(s, i);
}

/* The source of the state: in a fresh group the first complete one, else rank 0; -1: none is complete. */
static int giver(const group *g)
{
    for (int r = 0; g->fresh && r <= g->size; r++)
        if (r == g->size || g->header[r] != TORN)
            return r < g->size ? r : -1;
    return 0;
}

static void read_headers(state *s, int i)
{
    worker *w = &s->w[i];
    const group *g = own_group(s, w);
    bool all_have = !g->fresh;

    for (int r = 0; r < g->size; r++) {
        require(g->fresh || g->header[r] <= g->header[0],
                "first: a member has a newer state than rank 0");
        all_have = all_have && g->header[r] == g->header[0];
    }
    if (all_have) {
        begin(s, i);
        return;
    }
    if (giver(g) < 0) {
        end(s, i, ENDED_TORN);
        return;
    }
    enter(s, w, TRANSFER);
    /* The overwritten state must be empty, or be kept until the new one is complete. */
    if ((g->fresh || g->header[w->rank] < g->header[0]) && w->rank != giver(g) &&
        (w->step < 0 || job.plan.mutation == RECEIVED_IN_PLACE)) {
        w->torn = 1;
        w->step = -1;
    }
}

static void deliver(state *s, int i);

/* Commits the step, if it has all sums; `told`: and the result of the exchange. */
static void commit(state *s, int i, bool told)
{
    worker *w = &s->w[i];
    const group *g = own_group(s, w);
    const bool regroup = told && g->flagged;

    w->step++;
    w->reached = w->step > w->reached ? w->step : w->reached;
    if (!w->said) {
        say(w, TUTTI__WORKER_COMMITTED, 0);
        if (w->n_up == 1) /* soon: what it does hardly depends on when */
            deliver(s, i);
    }
    w->said = 1;
    if (!told)
        leave_group(s, i, lost_of(s, g));
    else if (regroup && w->leave)
        go_away(s, i);
    else if (regroup)
        leave_group(s, i, 0);
    else
        begin(s, i);
}

static bool can_complete(const state *s, const worker *w)
{
    const group *g = group_of((state *)(uintptr_t)s, w->generation);

    if (w->at == TRANSFER && w->torn)
        return g->entered[giver(g)] >= TRANSFER;
    if (w->at == REDUCE && job.plan.mutation == COMMITTED_ALONE)
        return true;
    return all_entered(g, w->entered);
}

static void complete(state *s, int i)
{
    worker *w = &s->w[i];

    switch (w->at) {
    case FORMING:
        read_headers(s, i);
        break;
    case TRANSFER:
        take_state(s, i);
        break;
    case REDUCE:
        enter(s, w, TELL);
        break;
    case TELL:
        commit(s, i, true);
        break;
    default:
        say(w, TUTTI__WORKER_FINISHED, 0);
        end(s, i, ENDED_WELL);
    }
}

/* Whether the group can fail for a member: when it notices a member that is gone; while forming, one that had joined. */
static bool can_fail(const state *s, const worker *w)
{
    const group *g = group_of((state *)(uintptr_t)s, w->generation);

    for (int r = 0; r < g->size; r++)
        if (r != w->rank && (w->at != FORMING || g->entered[r] > 0) &&
            (g->gone & 1 << r || s->w[g->slot[r]].frozen))
            return true;
    return false;
}

static void fail_group(state *s, int i, int lost)
{
    worker *w = &s->w[i];

    if (w->at == TELL) {
        commit(s, i, false);
        return;
    }
    leave_group(s, i, w->at == FORMING ? 0 : lost);
}

#endif
