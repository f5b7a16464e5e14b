/* history_workers.c -- the workers of a simulated job: elastic ones in their groups, and others.   SPDX-License-Identifier: MIT */
#include "simulate/history_parts.h"

enum {
    SETTLED_MS = 1000, /* after which two sides both at work have noticed each other's absence */
    LATE_MS = 60000    /* in which a member comes to its group, or never */
};

/* ---- Workers ------------------------------------------------------------------------------------------------------- */
void tutti__history_tell(tutti__history *c, tutti__history_agent *a, int i,
                         tutti__history_message *m)
{
    m->number = a->number;
    m->id = (tutti__worker_id){0, i, a->w[i].start};
    tutti__history_send_up(c, a, m);
}

void tutti__history_say(tutti__history *c, tutti__history_agent *a, int i,
                        tutti__worker_message_kind what, int lost)
{
    tutti__history_message *m = tutti__history_new_message(c, TUTTI__HISTORY_SAID);
    const tutti__history_worker *w = &a->w[i];

    m->said = what;
    m->generation = w->generation;
    m->step = w->step;
    m->lost = lost;
    tutti__history_tell(c, a, i, m);
}

void tutti__history_say_ready(tutti__history *c, tutti__history_agent *a, int i, int lost)
{
    tutti__history_worker *w = &a->w[i];

    w->in = w->regroup = false;
    if (w->leave) {
        tutti__history_say(c, a, i, TUTTI__WORKER_LEAVES, -1);
        w->runs = false;
        w->awaits = true;
        w->code = w->sig = 0;
        tutti__history_tell(c, a, i, tutti__history_new_message(c, TUTTI__HISTORY_EXITED));
        return;
    }
    w->waits = true;
    a->elastic = true;
    tutti__history_say(c, a, i, TUTTI__WORKER_READY, lost);
}

void tutti__history_end_worker(tutti__history *c, tutti__history_agent *a, int i, int code, int sig)
{
    tutti__history_worker *w = &a->w[i];
    tutti__history_message *m;

    if (!w->runs)
        return;
    w->runs = w->in = w->waits = false;
    w->code = code;
    w->sig = sig;
    if (!a->elastic || a->phase != TUTTI__HISTORY_RUNNING)
        return;
    w->awaits = true;
    m = tutti__history_new_message(c, TUTTI__HISTORY_EXITED);
    m->code = code;
    m->rank = sig;
    tutti__history_tell(c, a, i, m);
}

void tutti__history_start_worker(tutti__history *c, tutti__history_agent *a, int i, int start)
{
    a->w[i] = (tutti__history_worker){.runs = true,
                                      .start = start,
                                      .step = -1,
                                      .ready_at = c->now + 5 + tutti__history_chance(c, 40)};
}

bool tutti__history_all_over(const tutti__history *c, const tutti__history_agent *a)
{
    for (int i = 0; i < c->local; i++)
        if (a->w[i].runs || a->w[i].awaits)
            return false;
    return true;
}

void tutti__history_stop_workers(tutti__history *c, tutti__history_agent *a)
{
    if (a->phase != TUTTI__HISTORY_RUNNING)
        return;
    a->phase = TUTTI__HISTORY_STOPPING;
    a->idle_at = c->now + 5 + tutti__history_chance(c, 50);
}

void tutti__history_fail_round(tutti__history *c, tutti__history_agent *a, int code)
{
    tutti__history_message *m;

    if (a->failed)
        return;
    a->failed = true;
    m = tutti__history_new_message(c, TUTTI__HISTORY_FAILED);
    m->number = a->number;
    m->code = code;
    tutti__history_send_up(c, a, m);
    tutti__history_stop_workers(c, a);
}

/* ---- Groups of elastic workers ------------------------------------------------------------------------------------- */
static tutti__history_worker *member(tutti__history *c, const tutti__history_group *g, int r)
{
    tutti__history_agent *a = &c->a[g->member[r].node];
    tutti__history_worker *w = &a->w[g->member[r].local_rank];

    return a->alive && a->process == g->member[r].process && a->number == g->round &&
                   w->start == g->member[r].start && w->runs && w->in &&
                   w->generation == g->generation && w->host_process == g->host_process
               ? w
               : NULL;
}

/* Whether member k has left the group, or died; not, if it has not come yet. */
static bool is_gone(const tutti__history *c, const tutti__history_group *g, int k)
{
    const tutti__history_agent *a = &c->a[g->member[k].node];
    const tutti__history_worker *w = &a->w[g->member[k].local_rank];

    return !a->alive || a->process != g->member[k].process || a->number != g->round ||
           w->start != g->member[k].start || !w->runs || w->generation > g->generation ||
           (w->generation == g->generation && (!w->in || w->host_process != g->host_process));
}

/* The rank whose absence member r notices; -1: none. */
static int misses(const tutti__history *c, const tutti__history_group *g, int r)
{
    for (int k = 0; k < g->told; k++) {
        const int i = g->member[r].node, j = g->member[k].node;

        if (tutti__history_reach(c, i, j) ? is_gone(c, g, k)
                                          : c->now >= c->cut_at[i][j] + TUTTI__HISTORY_SILENCE_MS &&
                                                c->now >= g->formed_at + TUTTI__HISTORY_SILENCE_MS)
            return k;
    }
    return -1;
}

/* Deaths as well as cuts: a node that was excluded, or has given up, is dead, too. */
static bool are_both(const tutti__history *c)
{
    return c->kind == TUTTI__HISTORY_BOTH || (c->kind == TUTTI__HISTORY_CUTS && c->gave_up);
}

static void check_alone(tutti__history *c, const tutti__history_group *g)
{
    for (int i = 0; i < c->n_groups; i++) {
        const tutti__history_group *o = &c->groups[i];

        if (!are_both(c) && !c->ended && o != g && o->formed &&
            o->committed_at + 2 * TUTTI__HISTORY_STEP_MS >= c->now &&
            o->host_process != g->host_process && c->now >= g->formed_at + SETTLED_MS &&
            c->now >= o->formed_at + SETTLED_MS &&
            c->a[o->member[0].node].process == o->member[0].process &&
            c->a[o->member[0].node].job == c->a[g->member[0].node].job)
            tutti__history_broken(c, "two coordinators make progress", g->member[0].node);
    }
}

/* With deaths alone, which peers notice, all workers are in touch, and a group continues from the newest state that any of them has. */
static void check_newest(tutti__history *c, const tutti__history_group *g, int64_t newest)
{
    for (int i = 0; i < c->nodes && c->kind == TUTTI__HISTORY_DEATHS && !c->dark; i++) {
        const tutti__history_agent *a = &c->a[i];

        for (int k = 0; k < c->local && a->alive && a->number == g->round; k++)
            if (a->job == c->a[g->member[0].node].job && a->w[k].runs && a->w[k].step > newest)
                tutti__history_broken(c, "a living worker has a newer state than its group's", i);
    }
}

static void form(tutti__history *c, tutti__history_group *g, tutti__history_worker *const *all)
{
    int64_t newest = -1;

    for (int r = 0; r < g->size; r++)
        newest = all[r]->step > newest ? all[r]->step : newest;
    if (newest >= 0 && all[0]->step != newest)
        tutti__history_broken(c, "rank 0 has not the newest state", g->member[0].node);
    check_newest(c, g, newest);
    for (int r = 0; r < g->size; r++)
        all[r]->step = newest < 0 ? 0 : newest;
    g->formed = true;
    g->formed_at = c->now;
}

static void commit(tutti__history *c, tutti__history_group *g, tutti__history_worker *const *all)
{
    bool leaves = false;

    if (!g->formed) {
        form(c, g, all);
        return;
    }
    g->committed_at = c->now;
    check_alone(c, g);
    for (int r = 0; r < g->size; r++) {
        tutti__history_agent *a = &c->a[g->member[r].node];

        all[r]->step++;
        tutti__history_say(c, a, g->member[r].local_rank, TUTTI__WORKER_COMMITTED, -1);
        leaves |= all[r]->regroup || all[r]->leave;
    }
    for (int r = 0; r < g->size; r++) {
        tutti__history_agent *a = &c->a[g->member[r].node];
        const int i = g->member[r].local_rank;

        if (all[r]->step >= c->steps) {
            tutti__history_say(c, a, i, TUTTI__WORKER_FINISHED, -1);
            all[r]->finished = a->finished = true;
            tutti__history_end_worker(c, a, i, 0, 0);
        } else if (leaves) {
            tutti__history_say_ready(c, a, i, -1);
        }
    }
}

/* Whether all members reach each other. */
static bool are_together(const tutti__history *c, const tutti__history_group *g)
{
    unsigned nodes = 0;

    for (int r = 0; r < g->told; r++)
        nodes |= 1u << g->member[r].node;
    for (int i = 0; i < c->nodes; i++)
        for (int k = 0; k < i; k++)
            if ((nodes >> i & 1) && (nodes >> k & 1) && !tutti__history_reach(c, i, k))
                return false;
    return true;
}

void tutti__history_advance_group(tutti__history *c, tutti__history_group *g)
{
    tutti__history_worker *all[TUTTI__HISTORY_MEMBERS];
    int present = 0, gone = 0, missed;

    for (int r = 0; r < g->told; r++) {
        all[r] = member(c, g, r);
        present += all[r] != NULL;
        gone += !all[r] && is_gone(c, g, r);
    }
    g->next = present > 0 || (gone < g->size && c->now < g->formed_at + LATE_MS)
                  ? c->now + TUTTI__HISTORY_STEP_MS
                  : 0;
    if (present == g->size && are_together(c, g)) {
        commit(c, g, all);
        return;
    }
    for (int r = 0; r < g->told; r++) {
        tutti__history_agent *a = &c->a[g->member[r].node];

        if (!all[r])
            continue;
        missed = misses(c, g, r);
        if (missed >= 0 || (!g->formed && all[r]->regroup))
            tutti__history_say_ready(c, a, g->member[r].local_rank, missed);
    }
}

/* ---- Other workers ------------------------------------------------------------------------------------------------- */
/* Whether all nodes of this node's round are at work and reach each other. */
static bool is_whole(const tutti__history *c, const tutti__history_agent *a)
{
    int n = 0, first = 0;

    for (int i = 0; i < c->nodes; i++) {
        const tutti__history_agent *b = &c->a[i];

        if (!b->alive || b->phase != TUTTI__HISTORY_RUNNING || b->number != a->number ||
            b->job != a->job)
            continue;
        for (int k = 0; k < i; k++)
            if (c->a[k].alive && c->a[k].phase == TUTTI__HISTORY_RUNNING &&
                c->a[k].number == a->number && c->a[k].job == a->job &&
                !tutti__history_reach(c, i, k))
                return false;
        n++;
        first |= 1 << b->group_rank;
        if (b->first_rank != b->group_rank * c->local || b->world_size != b->n_nodes * c->local)
            return false;
    }
    return n == a->n_nodes && first == (1 << n) - 1;
}

void tutti__history_advance_plain(tutti__history *c, tutti__history_agent *a)
{
    if (a->phase != TUTTI__HISTORY_RUNNING || a->elastic || a->since_work == 0)
        return;
    if (is_whole(c, a)) {
        a->whole = true;
        if (c->now >= a->since_work + (uint64_t)c->steps * TUTTI__HISTORY_STEP_MS) {
            a->phase = TUTTI__HISTORY_STOPPING; /* with success */
            a->idle_at = c->now + 1;
        }
    } else if (a->whole) {
        a->whole = false;
        a->whole_at = c->now;
    } else if (c->now >= a->whole_at + TUTTI__HISTORY_SILENCE_MS) {
        tutti__history_fail_round(c, a, 3);
    }
}

void tutti__history_workers_due(tutti__history *c, const tutti__history_agent *a)
{
    if (a->phase == TUTTI__HISTORY_STOPPING)
        tutti__history_due(c, a->idle_at);
    if (a->phase != TUTTI__HISTORY_RUNNING)
        return;
    for (int i = 0; i < c->local && c->elastic; i++)
        if (a->w[i].runs && a->w[i].ready_at > 0)
            tutti__history_due(c, a->w[i].ready_at);
    if (!a->elastic && a->since_work > 0)
        tutti__history_due(c, a->whole ? a->since_work + (uint64_t)c->steps * TUTTI__HISTORY_STEP_MS
                                       : a->whole_at + TUTTI__HISTORY_SILENCE_MS);
}
