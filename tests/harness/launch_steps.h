/* launch_steps.h -- the transitions of that job, with the real rules of the coordinator.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_LAUNCH_STEPS_H
#define TUTTI_TESTS_LAUNCH_STEPS_H

#include "harness/launch_workers.h"

/* ---- The coordinator: unpacked for an event, packed again ----------------------------------------------- */

static int place_index(tutti__worker_id id)
{
    return job.plan.nodes == 1 ? id.local_rank : id.node;
}

static tutti__worker_id id_of(int i, int start)
{
    return job.plan.nodes == 1 ? (tutti__worker_id){0, i, start} : (tutti__worker_id){i, 0, start};
}

static void on_generation(state *s, const tutti__action *a, int i)
{
    group *g = group_of(s, a->generation);
    int rank = a->rank;

    if (!g)
        g = group_of(s, 0);
    require(g != NULL, "the model has too few groups");
    if (!g)
        return;
    if (job.plan.mutation == LOWEST_RANK_FIRST) /* in the order of places */
        for (rank = 0; rank < g->size && g->slot[rank] < i && g->generation; rank++)
            continue;
    for (int r = g->size; job.plan.mutation == LOWEST_RANK_FIRST && r > rank; r--) {
        g->slot[r] = g->slot[r - 1];
        g->start[r] = g->start[r - 1];
        for (int k = 0; k < s->w[g->slot[r]].n_down; k++)
            if (s->w[g->slot[r]].down[k].kind == TUTTI__AGENT_GENERATION &&
                s->w[g->slot[r]].down[k].generation == a->generation)
                s->w[g->slot[r]].down[k].lost = (uint8_t)r;
    }
    g->generation = (uint8_t)a->generation;
    g->size++;
    g->fresh = a->fresh;
    g->slot[rank] = (uint8_t)i;
    g->start[rank] = s->w[i].start;
    if (!is_alive(&s->w[i]))
        g->gone |= (uint8_t)(1 << rank);
    push(s->w[i].down, &s->w[i].n_down, DOWN,
         (message){TUTTI__AGENT_GENERATION, (uint8_t)a->generation, (uint8_t)rank, 0});
}

static void act(void *context, const tutti__action *a)
{
    state *s = job.s;
    const int i = place_index(a->id);
    worker *w;

    (void)context;
    if (a->act == TUTTI__ACT_FAIL || a->act == TUTTI__ACT_REFUSE || i < 0) {
        broken("ends: the job fails, or refuses a worker");
        return;
    }
    w = &s->w[i];
    switch (a->act) {
    case TUTTI__ACT_GENERATION:
        on_generation(s, a, i);
        break;
    case TUTTI__ACT_REGROUP:
        if (job.plan.mutation != NOBODY_IS_TOLD)
            push(w->down, &w->n_down, DOWN,
                 (message){TUTTI__AGENT_REGROUP, (uint8_t)a->generation, 0, 0});
        break;
    case TUTTI__ACT_LEAVE:
        push(w->down, &w->n_down, DOWN, (message){TUTTI__AGENT_LEAVE, 0, 0, 0});
        break;
    case TUTTI__ACT_KILL:
        w->doomed = is_alive(w) && job.plan.mutation != KILLED_ONES_LIVE;
        break;
    case TUTTI__ACT_REPLACE:
        w->start++;
        say_ready(w, 0);
        break;
    default:
        break;
    }
    if (!is_alive(w)) { /* messages to a dead worker */
        memset(w->down, 0, sizeof w->down);
        w->n_down = 0;
    }
}

enum {
    LEAVING = 1,
    IS_STOPPED = 2,
    SENT_REGROUP = 4,
    BROKEN = 8,
    CLOSED = 16,
    RESTING = 32,
    SAID_END = 64
};
enum { IS_FORMED = 1, IS_ELASTIC = 2, IS_FINISHED = 4, HAS_FAILED = 8 };

static void unpack(const state *s)
{
    tutti__generations *g = &job.g;

    for (int i = 0; i < N; i++) {
        const member *p = &s->m[i];

        g->list[i] = (tutti__generation_worker){.id = id_of(i, p->start),
                                                .state = (tutti__generation_worker_state)p->state,
                                                .leaving = p->flags & LEAVING,
                                                .stopped = p->flags & IS_STOPPED,
                                                .sent_regroup = p->flags & SENT_REGROUP,
                                                .broken = p->flags & BROKEN,
                                                .closed = p->flags & CLOSED,
                                                .finished = p->flags & SAID_END,
                                                .generation = p->generation,
                                                .rank = p->rank,
                                                .step = p->step,
                                                .accusers = p->accusers,
                                                .resting = p->flags & RESTING,
                                                .deaths = p->deaths,
                                                .pause = p->pause,
                                                .wake = p->rest,
                                                .death_step = p->death_step};
    }
    g->last = s->last;
    g->size = s->size;
    g->formed = s->flags & IS_FORMED;
    g->elastic = s->flags & IS_ELASTIC;
    g->finished = s->flags & IS_FINISHED;
    g->failed = s->flags & HAS_FAILED;
    g->uncommitted = s->uncommitted;
    g->step = s->step;
    g->reached = s->reached;
    g->work = 0; /* rests are told from here */
    g->shards = s->shards;
    g->trouble = false;
}

static void pack(state *s)
{
    const tutti__generations *g = &job.g;

    for (int i = 0; i < N; i++) {
        const tutti__generation_worker *m = &g->list[i];

        s->m[i] =
            (member){.state = (uint8_t)m->state,
                     .flags = (uint8_t)((m->leaving ? LEAVING : 0) | (m->stopped ? IS_STOPPED : 0) |
                                        (m->sent_regroup ? SENT_REGROUP : 0) |
                                        (m->broken ? BROKEN : 0) | (m->closed ? CLOSED : 0) |
                                        (m->resting ? RESTING : 0) | (m->finished ? SAID_END : 0)),
                     .generation = (uint8_t)m->generation,
                     .rank = (uint8_t)m->rank,
                     .step = (int8_t)m->step,
                     .accusers = (uint8_t)m->accusers,
                     .start = (uint8_t)m->id.start,
                     .deaths = (uint8_t)m->deaths,
                     .pause = (uint8_t)m->pause,
                     .rest = (uint8_t)(m->resting ? m->wake - g->work : 0),
                     .death_step = (int8_t)m->death_step};
    }
    s->last = (uint8_t)g->last;
    s->size = (uint8_t)g->size;
    s->flags = (uint8_t)((g->formed ? IS_FORMED : 0) | (g->elastic ? IS_ELASTIC : 0) |
                         (g->finished ? IS_FINISHED : 0) | (g->failed ? HAS_FAILED : 0));
    s->uncommitted = (uint8_t)g->uncommitted;
    s->step = (int8_t)g->step;
    s->reached = (int8_t)g->reached;
    s->shards = (uint8_t)g->shards;
}

static void deliver(state *s, int i)
{
    worker *w = &s->w[i];
    const message x = pop(w->up, &w->n_up);
    const tutti__worker_id id = id_of(i, w->start);
    tutti__worker_message text = {.protocol = TUTTI__AGENT_PROTOCOL,
                                  .kind = x.kind,
                                  .generation = x.generation,
                                  .shards = job.plan.shards,
                                  .step = x.step,
                                  .build = "one"};

    for (int r = 0; r < N; r++)
        if (x.lost & 1 << r)
            text.lost[text.n_lost++] = r;
    unpack(s);
    job.s = s;
    if (x.kind == STOPPED || x.kind == CONTINUED)
        tutti__generations_stopped(&job.g, 0, id, x.kind == STOPPED);
    else if (x.kind == ENDED)
        tutti__generations_ended(&job.g, 0, id, 0, 9);
    else if (x.kind == ENDED_WELL)
        tutti__generations_ended(&job.g, 0, id, 0, 0);
    else if (x.kind == ENDED_TORN)
        tutti__generations_ended(&job.g, 0, id, 3, 0);
    else
        tutti__generations_said(&job.g, 0, id, &text);
    pack(s);
}

/* The coordinator's next deadline; after it, its clocks restart. */
static uint64_t deadline(const state *s)
{
    unpack(s);
    return tutti__generations_deadline(&job.g);
}

static void tick(state *s, uint64_t at)
{
    job.s = s;
    tutti__generations_tick(&job.g, at);
    pack(s);
}

/* ---- Transitions ---------------------------------------------------------------------------------------- */

typedef enum transition { NOTHING, PROGRESS, FAULT } transition;

static bool telling;   /* else not needed */
static char told[160]; /* description of the last one */
#define TOLD(...) (telling ? (void)snprintf(told, sizeof told, __VA_ARGS__) : (void)0)

/* Makes the pick'th transition of a worker; decrements *pick_p for each possible one. */
static bool worker_step(state *s, int i, int *pick_p)
{
    worker *w = &s->w[i];

    if (w->n_up > 0 && --*pick_p < 0) {
        TOLD("%d: message %d arrives", i, w->up[0].kind);
        deliver(s, i);
    } else if (is_alive(w) && w->doomed && --*pick_p < 0) {
        TOLD("%d: is killed as ordered", i);
        end(s, i, ENDED);
    } else if (w->frozen && --*pick_p < 0) {
        TOLD("%d: goes on", i);
        w->frozen = 0;
        push(w->up, &w->n_up, UP, (message){CONTINUED, 0, 0, 0});
    } else if (!is_alive(w) || w->frozen) {
        return false;
    } else if ((w->phase == READY || (w->phase == IN && w->at == FORMING)) && w->n_down > 0 &&
               --*pick_p < 0) {
        TOLD("%d: hears message %d", i, w->down[0].kind);
        if (w->phase == IN)
            leave_groups(s, i);
        if (w->phase == IN && w->down[0].kind != TUTTI__AGENT_LEAVE)
            say_ready(w, 0);
        hear_outside(s, i);
    } else if (w->phase == IN && can_complete(s, w) && --*pick_p < 0) {
        TOLD("%d: completes %d of generation %d at step %d", i, w->at, w->generation, w->step);
        complete(s, i);
    } else if (w->phase == IN && can_fail(s, w) && --*pick_p < 0) {
        TOLD("%d: fails in %d of generation %d at step %d", i, w->at, w->generation, w->step);
        fail_group(s, i, lost_of(s, own_group(s, w)));
    } else {
        return false;
    }
    return true;
}

static bool fault_step(state *s, int i, int *pick_p)
{
    worker *w = &s->w[i];
    const group *g = w->phase == IN ? own_group(s, w) : NULL;

    if (!is_alive(w) || w->doomed)
        return false;
    if ((!job.plan.starts || w->start < job.plan.starts) && --*pick_p < 0) {
        TOLD("%d: dies", i);
        end(s, i, ENDED);
        return true;
    }
    if (!job.plan.all_kinds || s->silence)
        return false;
    if (--*pick_p < 0) {
        TOLD("%d: freezes", i);
        w->frozen = s->silence = 1;
        push(w->up, &w->n_up, UP, (message){STOPPED, 0, 0, 0});
        return true;
    }
    for (int r = 0; g && w->at != FORMING && r < g->size; r++)
        if (r != w->rank && !(g->gone & 1 << r) && --*pick_p < 0) {
            TOLD("%d: loses sight of rank %d", i, r);
            s->silence = 1;
            fail_group(s, i, 1 << r);
            return true;
        }
    return false;
}

/* Transitions by time limits, which happen only when nothing else can. */
static bool limit_step(state *s, int pick)
{
    uint64_t at = deadline(s);

    for (int i = 0; i < N; i++)
        if (s->w[i].phase == IN && s->w[i].at == FORMING && !s->w[i].frozen && --pick < 0) {
            TOLD("%d: waits too long for a group", i);
            require(s->silence, "no limit: a group is waited for in vain");
            fail_group(s, i, 0);
            return true;
        }
    if (at != UINT64_MAX && --pick < 0) {
        TOLD("the coordinator's limit is over");
        require(s->silence, "no limit: the coordinator waits for its time limit");
        unpack(s);
        tick(s, at);
        return true;
    }
    return false;
}

static bool is_over(const state *s)
{
    for (int i = 0; i < N; i++)
        if (is_alive(&s->w[i]) || s->w[i].n_up > 0)
            return false;
    return true;
}

static void check(const state *s)
{
    int low = 127, high = -1, generation = 0;

    for (int i = 0; i < N; i++) {
        const worker *w = &s->w[i];

        if (!is_counted(w))
            continue;
        if (w->step >= 0) {
            low = w->step < low ? w->step : low;
            high = w->step > high ? w->step : high;
        }
        if (w->phase == IN && w->entered > FORMING) {
            require(generation == 0 || generation == w->generation,
                    "one: two generations have members at work");
            generation = w->generation;
        }
    }
    require(high - low <= 1 || high < 0, "near: steps differ by more than one");
    require(s->last < 24, "ends: generations without end");
}

/* Makes the pick'th transition of *s. Time passes if nothing else can happen. */
static transition make(state *s, int pick)
{
    transition what = NOTHING;
    const int first = pick;
    uint64_t at = deadline(s);

    for (int i = 0; i < N && what == NOTHING; i++)
        what = worker_step(s, i, &pick) ? PROGRESS : NOTHING;
    if (what == NOTHING && at < LIMIT_MS && --pick < 0) {
        TOLD("the coordinator has gathered newcomers");
        tick(s, at);
        what = PROGRESS;
    }
    if (what == NOTHING && pick == first && !is_over(s)) {
        what = limit_step(s, pick) ? PROGRESS : NOTHING;
        require(what != NOTHING || pick > 0, "ends: nothing goes on any more");
    } else if (what == NOTHING && s->faults > 0) {
        for (int i = 0; i < N && what == NOTHING; i++)
            what = fault_step(s, i, &pick) ? FAULT : NOTHING;
        s->faults = (uint8_t)(s->faults - (what == FAULT));
    }
    if (what != NOTHING) {
        forget_groups(s);
        check(s);
    }
    return what;
}

#endif
