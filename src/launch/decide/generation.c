/* generation.c -- generations of an elastic job: the table, and the actions that it requires.   SPDX-License-Identifier: MIT
 *
 * Every event (generation_events.c) changes the table, and then `consider` takes the actions that the whole table requires; so
 * the order in which messages of several nodes arrive does not matter. */
#include "launch/decide/generation_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIMIT_MS = 60000,
    GATHER_MS = 100,
    UNCOMMITTED = 3 /* generations without a commit after which an unreachable member is removed */
};

/* ---- The table ----------------------------------------------------------------------------------------- */

void tutti__generations_init(tutti__generations *g, const tutti__generations_opts *opts)
{
    *g = (tutti__generations){.opts = *opts, .step = -1, .reached = -1};
    if (!g->opts.limit_ms)
        g->opts.limit_ms = LIMIT_MS;
    if (!g->opts.gather_ms)
        g->opts.gather_ms = GATHER_MS;
}

void tutti__generations_free(tutti__generations *g)
{
    free(g->list);
    g->list = NULL;
    g->n = g->capacity = 0;
}

tutti__generation_worker *tutti__generation_find(const tutti__generations *g, int node,
                                                 int local_rank)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].id.node == node && g->list[i].id.local_rank == local_rank)
            return &g->list[i];
    return NULL;
}

/* The member with this process; NULL: unknown, or no longer known. */
tutti__generation_worker *tutti__generation_find_worker(const tutti__generations *g,
                                                        tutti__worker_id id)
{
    tutti__generation_worker *m = tutti__generation_find(g, id.node, id.local_rank);

    return m && m->id.start == id.start ? m : NULL;
}

/* Whether a worker is in its place, or is about to start there. */
bool tutti__generation_is_open(const tutti__generation_worker *m)
{
    return !m->closed && !m->leaving && !m->resting;
}

int tutti__generations_living(const tutti__generations *g, int node)
{
    int count = 0;

    for (int i = 0; i < g->n; i++)
        count += tutti__generation_is_open(&g->list[i]) && (node < 0 || g->list[i].id.node == node);
    return count;
}

static int count(const tutti__generations *g, tutti__generation_worker_state state)
{
    int found = 0;

    for (int i = 0; i < g->n; i++)
        found += g->list[i].state == state &&
                 (state == TUTTI__WORKER_IN || tutti__generation_is_open(&g->list[i]));
    return found;
}

void tutti__generation_enter(tutti__generation_worker *m, tutti__generation_worker_state state,
                             uint64_t now)
{
    m->state = state;
    m->since_ms = now;
    m->broken = false;
}

/* ---- Actions -------------------------------------------------------------------------------------- */

void tutti__generation_act(const tutti__generations *g, tutti__act what,
                           const tutti__generation_worker *m, const char *why)
{
    g->opts.act(g->opts.context, &(tutti__action){.act = what, .id = m->id, .why = why});
}

/* No worker will be started in its place again. */
void tutti__generation_close_resting(tutti__generations *g, tutti__generation_worker *m)
{
    if (!m->resting)
        return;
    m->resting = false;
    m->closed = true;
    tutti__generation_act(g, TUTTI__ACT_LET_GO, m, NULL);
}

void tutti__generation_tell_leave(tutti__generations *g, tutti__generation_worker *m)
{
    tutti__generation_close_resting(g, m);
    m->leaving = true;
    if (m->state == TUTTI__WORKER_WAITING || m->state == TUTTI__WORKER_IN)
        tutti__generation_act(g, TUTTI__ACT_LEAVE, m, NULL); /* else told when it is READY */
}

static void tell_regroup(tutti__generations *g, tutti__generation_worker *m)
{
    if (m->state != TUTTI__WORKER_IN || m->told_regroup || g->finished)
        return;
    m->told_regroup = true;
    g->opts.act(
        g->opts.context,
        &(tutti__action){.act = TUTTI__ACT_REGROUP, .id = m->id, .generation = m->generation});
}

/* A member has left the generation. Members still forming it would wait for it forever. */
void tutti__generation_break_up(tutti__generations *g, uint32_t generation, uint64_t now)
{
    for (int i = 0; i < g->n; i++) {
        tutti__generation_worker *m = &g->list[i];

        if (m->state != TUTTI__WORKER_IN || m->generation != generation)
            continue;
        if (!m->broken)
            m->broken_ms = now;
        m->broken = true;
        tell_regroup(g, m);
    }
}

void tutti__generation_note_trouble(tutti__generations *g, uint64_t since)
{
    if (!g->trouble && g->last > 0 && !g->finished)
        g->trouble_ms = since;
    g->trouble = g->last > 0 && !g->finished;
}

static void kill_worker(tutti__generations *g, tutti__generation_worker *m, uint64_t now,
                        const char *why)
{
    bool was_in = m->state == TUTTI__WORKER_IN;

    tutti__generation_enter(m, TUTTI__WORKER_GONE, now);
    tutti__generation_note_trouble(g, now);
    tutti__generation_act(g, TUTTI__ACT_KILL, m, why);
    if (was_in)
        tutti__generation_break_up(g, m->generation, now);
}

/* ---- A generation -------------------------------------------------------------------------------------- */

/* Sorts rank 0 first: the member with the highest step, and among these the previous rank 0 first. Members of the last
 * generation come before others, so that spares stay spares. */
static int by_state(const void *a, const void *b)
{
    const tutti__generation_worker *x = *(tutti__generation_worker *const *)a,
                                   *y = *(tutti__generation_worker *const *)b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation > y->generation ? -1 : 1;
    if (x->generation > 0 && x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x < y ? -1 : 1; /* the order of the table */
}

static int by_place(const void *a, const void *b)
{
    const tutti__generation_worker *x = *(tutti__generation_worker *const *)a,
                                   *y = *(tutti__generation_worker *const *)b;

    return (x > y) - (x < y);
}

static bool has_state(const tutti__generations *g, tutti__generation_worker_state state)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == state && tutti__generation_is_open(&g->list[i]) &&
            g->list[i].step >= 0)
            return true;
    return false;
}

/* Chooses among waiting members: list[0] becomes rank 0, followed by the others of its node, then the rest in order. */
static int choose(tutti__generations *g, tutti__generation_worker **list)
{
    int n = 0, first = 1;
    tutti__generation_worker *leader;

    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__WORKER_WAITING && tutti__generation_is_open(&g->list[i]))
            list[n++] = &g->list[i];
    qsort(list, (size_t)n, sizeof(*list), by_state);
    n = n < g->shards ? n : g->shards;
    leader = list[0];
    qsort(list + 1, (size_t)n - 1, sizeof(*list), by_place);
    for (int i = 1; i < n; i++)
        if (list[i]->id.node == leader->id.node) {
            tutti__generation_worker *m = list[i];

            memmove(list + first + 1, list + first, (size_t)(i - first) * sizeof(*list));
            list[first++] = m;
        }
    return n;
}

/* Members that have left, or were told to and are in no generation any more. */
static int count_left(const tutti__generations *g)
{
    int n = g->left;

    for (int i = 0; i < g->n; i++)
        n += g->list[i].leaving && g->list[i].generation > 0 &&
             g->list[i].state == TUTTI__WORKER_WAITING;
    return n;
}

static void tell_generation(const tutti__generations *g, tutti__generation_worker *const *list,
                            int n, bool fresh)
{
    const int left = count_left(g);

    for (int i = 0; i < n; i++) {
        tutti__action a = {.act = TUTTI__ACT_GENERATION,
                           .id = list[i]->id,
                           .generation = g->last,
                           .rank = i,
                           .size = n,
                           .fresh = fresh,
                           .committed = fresh && (g->opts.begun || g->step > 0),
                           .left = left};

        for (int k = 0; k < n; k++) {
            a.local_size += list[k]->id.node == a.id.node;
            a.local_rank += list[k]->id.node == a.id.node && k < i;
        }
        g->opts.act(g->opts.context, &a);
    }
}

static void form(tutti__generations *g, uint64_t now)
{
    tutti__generation_worker **list = malloc((size_t)g->n * sizeof(*list));
    bool fresh = !has_state(g, TUTTI__WORKER_WAITING);
    int n;

    if (!list)
        return; /* retried with the next event */
    n = choose(g, list);
    g->uncommitted = g->last > 0 && !g->formed ? g->uncommitted + 1 : 0;
    g->last++;
    g->size = n;
    g->formed = false;
    g->reached = fresh ? -1 : g->reached;
    for (int i = 0; i < n; i++) {
        tutti__generation_enter(list[i], TUTTI__WORKER_IN, now);
        list[i]->generation = g->last;
        list[i]->rank = i;
        list[i]->told_regroup = false;
        list[i]->accusers = 0;
    }
    tell_generation(g, list, n, fresh);
    free(list);
}

/* ---- What the table requires --------------------------------------------------------------------------- */

/* Whether waiting members can continue without m; not if m is the only one with the state. If they lost theirs because m, of
 * their generation, had a share of it, m has lost the others' shares as well. */
static bool is_waited_for(const tutti__generations *g, const tutti__generation_worker *m)
{
    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *o = &g->list[i];

        if (o != m && o->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(o) &&
            (o->step >= 0 || m->step < 0 || (o->was_shared && o->generation == m->generation)))
            return true;
    }
    return false;
}

/* Whether all others of its generation have left it. */
static bool is_alone(const tutti__generations *g, const tutti__generation_worker *m)
{
    for (int i = 0; i < g->n; i++)
        if (&g->list[i] != m && g->list[i].state == TUTTI__WORKER_IN &&
            g->list[i].generation == m->generation)
            return false;
    return true;
}

/* Members miss the heartbeat of one only after its first, so while they form the group a stopped one holds them up. When it is to be
 * killed; UINT64_MAX: it holds up nobody, or is the only one with the state. */
static uint64_t holds_up_until(const tutti__generations *g, const tutti__generation_worker *m)
{
    uint64_t until = UINT64_MAX;

    if (g->formed || !m->stopped || m->state != TUTTI__WORKER_IN || m->generation != g->last ||
        g->opts.stopped_ms == 0)
        return UINT64_MAX;
    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *o = &g->list[i];
        uint64_t since = m->turned_ms > m->since_ms ? m->turned_ms : m->since_ms;

        if (o->state != TUTTI__WORKER_IN || o->generation != g->last || o->stopped ||
            (o->step < 0 && m->step >= 0))
            continue;
        since = o->turned_ms > since ? o->turned_ms : since;
        until = since + g->opts.stopped_ms < until ? since + g->opts.stopped_ms : until;
    }
    return until;
}

static bool is_late(const tutti__generations *g, const tutti__generation_worker *m, uint64_t now)
{
    if (now >= holds_up_until(g, m))
        return true;
    return m->state == TUTTI__WORKER_IN && m->broken && is_waited_for(g, m) &&
           (m->stopped || (m->accusers > 0 && is_alone(g, m)) ||
            now >= m->broken_ms + g->opts.limit_ms);
}

/* Whether it is its node that another cannot reach: all workers there, or a replacement, too. */
static bool is_of_its_node(const tutti__generations *g, const tutti__generation_worker *m)
{
    bool all = true;

    for (int i = 0; i < g->n; i++)
        all &= g->list[i].id.node != m->id.node || g->list[i].accusers > 0 ||
               g->list[i].state != TUTTI__WORKER_WAITING;
    return m->accuser != m->id.node && (all || m->unreached);
}

/* Members that cannot reach each other, or one that reaches no other, would form generations in vain forever: returns the one
 * that most others could not reach. If it is the only one with the state, it must not be killed, but its accuser's node can be
 * excluded. */
static tutti__generation_worker *unreachable(const tutti__generations *g)
{
    tutti__generation_worker *worst = NULL;

    for (int i = 0; i < g->n && g->uncommitted + !g->formed >= UNCOMMITTED; i++) {
        tutti__generation_worker *m = &g->list[i];

        if (m->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(m) && m->accusers > 0 &&
            (is_waited_for(g, m) || is_of_its_node(g, m)) &&
            (!worst || m->accusers > worst->accusers ||
             (m->accusers == worst->accusers && m->rank > worst->rank)))
            worst = m;
    }
    return worst;
}

/* A replacement on the same node would not be reached either. Nothing is formed until one of the nodes is lost. */
static void exclude(tutti__generations *g, const tutti__generation_worker *m)
{
    const bool stays = !is_waited_for(g, m); /* the only one with the state: its accuser goes */
    const tutti__worker_id accuser = {.node = m->accuser};

    if (g->excludes)
        return;
    g->excludes = true;
    g->opts.act(g->opts.context, &(tutti__action){.act = TUTTI__ACT_EXCLUDE,
                                                  .id = stays ? accuser : m->id,
                                                  .other = stays ? m->id.node : m->accuser,
                                                  .several = stays || m->accusers > 1});
}

/* The first waiting member that was not in the last generation; NULL: none. */
static const tutti__generation_worker *first_newcomer(const tutti__generations *g)
{
    const tutti__generation_worker *first = NULL;

    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *m = &g->list[i];

        if (m->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(m) &&
            (!first || m->since_ms < first->since_ms))
            first = m;
    }
    return first;
}

/* There is room for them, and no member was told yet. A commit of any member implies that all have formed the group. */
static bool may_end_for_newcomers(const tutti__generations *g)
{
    int members = 0, untold = 0;

    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *m = &g->list[i];

        members += m->state == TUTTI__WORKER_IN && m->generation == g->last;
        untold += m->state == TUTTI__WORKER_IN && !m->told_regroup;
    }
    return g->formed && members < g->shards && untold > 0;
}

static void consider_newcomers(tutti__generations *g, uint64_t now)
{
    const tutti__generation_worker *first = first_newcomer(g);

    if (!first || !may_end_for_newcomers(g) ||
        (count(g, TUTTI__WORKER_STARTING) > 0 && now < first->since_ms + g->opts.gather_ms))
        return;
    for (int i = 0; i < g->n; i++)
        tell_regroup(g, &g->list[i]);
}

/* If no member has the state, none is working: then all begin together. */
static bool may_begin(const tutti__generations *g, const tutti__generation_worker *first,
                      uint64_t now)
{
    if (has_state(g, TUTTI__WORKER_WAITING))
        return true;
    return now >= g->hold_ms &&
           (count(g, TUTTI__WORKER_STARTING) == 0 || now >= first->since_ms + g->opts.limit_ms);
}

void tutti__generation_order_replacement(tutti__generations *g, uint64_t now,
                                         tutti__generation_worker *m)
{
    tutti__generation_act(g, TUTTI__ACT_REPLACE, m, NULL);
    g->replaced++;
    m->id.start++;
    m->step = -1;
    m->generation = 0;
    m->accusers = 0;
    m->stopped = m->resting = m->fails = m->finished = false;
    tutti__generation_enter(m, TUTTI__WORKER_STARTING, now);
}

/* Retries resting places after some steps, or if no worker is left to do any. */
static void wake_resting(tutti__generations *g, uint64_t now)
{
    bool nobody = tutti__generations_living(g, -1) == 0;

    for (int i = 0; i < g->n; i++)
        if (g->list[i].resting && (nobody || g->work >= g->list[i].wake))
            tutti__generation_order_replacement(g, now, &g->list[i]);
}

/* Members waiting in a failed round would wait until they are killed. */
static void dismiss(tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__WORKER_WAITING && tutti__generation_is_open(&g->list[i]))
            tutti__generation_tell_leave(g, &g->list[i]);
}

static void end_late(tutti__generations *g, tutti__generation_worker *m, uint64_t now)
{
    const bool cut_off = !g->formed && m->accusers > 0 && m->accuser != m->id.node && !m->stopped;

    if (cut_off && m->unreached) {
        exclude(g, m);
        return;
    }
    m->unreached |= cut_off;
    kill_worker(g, m, now,
                m->stopped ? "it is stopped, and others wait for it"
                           : "others wait for it, and it does not answer");
}

void tutti__generation_consider(tutti__generations *g, uint64_t now)
{
    const tutti__generation_worker *first;
    tutti__generation_worker *worst;

    if (g->failed)
        dismiss(g);
    if (g->finished || g->failed || g->paused || !g->elastic)
        return;
    wake_resting(g, now);
    for (int i = 0; i < g->n; i++)
        if (is_late(g, &g->list[i], now))
            end_late(g, &g->list[i], now);
    if (count(g, TUTTI__WORKER_IN) > 0) {
        consider_newcomers(g, now);
        return;
    }
    worst = g->excludes ? NULL : unreachable(g);
    if (worst && is_of_its_node(g, worst)) {
        exclude(g, worst);
    } else if (worst) {
        worst->unreached = true;
        kill_worker(g, worst, now, "no group can be formed with it");
    }
    if (g->excludes)
        return;
    first = first_newcomer(g);
    if (first && may_begin(g, first, now))
        form(g, now);
}

void tutti__generations_pause(tutti__generations *g, uint64_t now_ms, bool paused)
{
    g->paused = paused;
    for (int i = 0; paused && i < g->n; i++)
        tell_regroup(g, &g->list[i]);
    tutti__generation_consider(g, now_ms);
}

void tutti__generations_tick(tutti__generations *g, uint64_t now_ms)
{
    tutti__generation_consider(g, now_ms);
}

uint64_t tutti__generations_deadline(const tutti__generations *g)
{
    const tutti__generation_worker *first = first_newcomer(g);
    bool starting = count(g, TUTTI__WORKER_STARTING) > 0, in = count(g, TUTTI__WORKER_IN) > 0;
    uint64_t next = UINT64_MAX, at;

    if (g->finished || g->failed || g->paused || !g->elastic)
        return next;
    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *m = &g->list[i];

        at = m->broken_ms + g->opts.limit_ms;
        if (m->state == TUTTI__WORKER_IN && m->broken && is_waited_for(g, m) && at < next)
            next = at;
        at = holds_up_until(g, m);
        next = at < next ? at : next;
    }
    if (!first)
        return next;
    if (in)
        at = starting && may_end_for_newcomers(g) ? first->since_ms + g->opts.gather_ms : next;
    else
        at = starting ? first->since_ms + g->opts.limit_ms : g->hold_ms;
    if (!in && at < g->hold_ms)
        at = g->hold_ms;
    return at < next ? at : next;
}
