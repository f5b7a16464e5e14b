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
    UNCOMMITTED = 3 /* generations without a commit after which an unreachable worker is removed */
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

int tutti__generation_place(const tutti__generations *g, int node, int local_rank)
{
    int low = 0, high = g->n;

    while (low < high) {
        const int mid = low + (high - low) / 2;
        const tutti__worker_id *id = &g->list[mid].id;

        if (id->node < node || (id->node == node && id->local_rank < local_rank))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

tutti__generation_worker *tutti__generation_find(const tutti__generations *g, int node,
                                                 int local_rank)
{
    const int at = tutti__generation_place(g, node, local_rank);

    return at < g->n && g->list[at].id.node == node && g->list[at].id.local_rank == local_rank
               ? &g->list[at]
               : NULL;
}

/* The worker with this process; NULL: unknown, or no longer known. */
tutti__generation_worker *tutti__generation_find_worker(const tutti__generations *g,
                                                        tutti__worker_id id)
{
    tutti__generation_worker *w = tutti__generation_find(g, id.node, id.local_rank);

    return w && w->id.start == id.start ? w : NULL;
}

/* Whether a worker runs, or is about to start, with its local rank. */
bool tutti__generation_is_open(const tutti__generation_worker *w)
{
    return !w->closed && !w->leaving && !w->resting;
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

void tutti__generation_enter(tutti__generation_worker *w, tutti__generation_worker_state state,
                             uint64_t now)
{
    w->state = state;
    w->since_ms = now;
    w->broken = false;
}

/* ---- Actions -------------------------------------------------------------------------------------- */

void tutti__generation_act(const tutti__generations *g, tutti__act what,
                           const tutti__generation_worker *w, const char *why)
{
    g->opts.act(g->opts.context, &(tutti__action){.act = what, .id = w->id, .why = why});
}

/* No worker will be started with its local rank again. */
void tutti__generation_close_resting(tutti__generations *g, tutti__generation_worker *w)
{
    if (!w->resting)
        return;
    w->resting = false;
    w->closed = true;
    tutti__generation_act(g, TUTTI__ACT_LET_GO, w, NULL);
}

void tutti__generation_tell_leave(tutti__generations *g, tutti__generation_worker *w)
{
    tutti__generation_close_resting(g, w);
    w->leaving = true;
    if (w->state == TUTTI__WORKER_WAITING || w->state == TUTTI__WORKER_IN)
        tutti__generation_act(g, TUTTI__ACT_LEAVE, w, NULL); /* else told when it is READY */
}

static void send_regroup(tutti__generations *g, tutti__generation_worker *w)
{
    if (w->state != TUTTI__WORKER_IN || w->sent_regroup || g->finished)
        return;
    w->sent_regroup = true;
    g->opts.act(
        g->opts.context,
        &(tutti__action){.act = TUTTI__ACT_REGROUP, .id = w->id, .generation = w->generation});
}

/* A worker has left the generation. Workers still forming it would wait for it forever. */
void tutti__generation_break_up(tutti__generations *g, uint32_t generation, uint64_t now)
{
    for (int i = 0; i < g->n; i++) {
        tutti__generation_worker *w = &g->list[i];

        if (w->state != TUTTI__WORKER_IN || w->generation != generation)
            continue;
        if (!w->broken)
            w->broken_ms = now;
        w->broken = true;
        send_regroup(g, w);
    }
}

void tutti__generation_note_trouble(tutti__generations *g, uint64_t since)
{
    if (!g->trouble && g->last > 0 && !g->finished)
        g->trouble_ms = since;
    g->trouble = g->last > 0 && !g->finished;
}

static void kill_worker(tutti__generations *g, tutti__generation_worker *w, uint64_t now,
                        const char *why)
{
    bool was_in = w->state == TUTTI__WORKER_IN;

    tutti__generation_enter(w, TUTTI__WORKER_GONE, now);
    tutti__generation_note_trouble(g, now);
    tutti__generation_act(g, TUTTI__ACT_KILL, w, why);
    if (was_in)
        tutti__generation_break_up(g, w->generation, now);
}

/* ---- A generation -------------------------------------------------------------------------------------- */

/* Sorts rank 0 first: the worker with the highest step, and among these the previous rank 0 first. Workers of the last
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

static int by_local_rank(const void *a, const void *b)
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

/* Chooses among waiting workers: list[0] becomes rank 0, followed by the others of its node, then the rest in order. */
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
    qsort(list + 1, (size_t)n - 1, sizeof(*list), by_local_rank);
    for (int i = 1; i < n; i++)
        if (list[i]->id.node == leader->id.node) {
            tutti__generation_worker *w = list[i];

            memmove(list + first + 1, list + first, (size_t)(i - first) * sizeof(*list));
            list[first++] = w;
        }
    return n;
}

/* Workers that have left, or were told to and are in no generation any more. */
static int count_left(const tutti__generations *g)
{
    int n = g->left;

    for (int i = 0; i < g->n; i++)
        n += g->list[i].leaving && g->list[i].generation > 0 &&
             g->list[i].state == TUTTI__WORKER_WAITING;
    return n;
}

/* The workers of a node follow each other in the list. */
static void tell_generation(const tutti__generations *g, tutti__generation_worker *const *list,
                            int n, bool fresh)
{
    const int left = count_left(g);

    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && list[end]->id.node == list[first]->id.node;)
            end++;
        for (int i = first; i < end; i++)
            g->opts.act(g->opts.context,
                        &(tutti__action){.act = TUTTI__ACT_GENERATION,
                                         .id = list[i]->id,
                                         .generation = g->last,
                                         .rank = i,
                                         .size = n,
                                         .local_rank = i - first,
                                         .local_size = end - first,
                                         .fresh = fresh,
                                         .committed = fresh && (g->opts.begun || g->step > 0),
                                         .left = left});
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
    g->last = (g->last > g->opts.after ? g->last : g->opts.after) + 1;
    g->size = n;
    g->formed = false;
    g->reached = fresh ? -1 : g->reached;
    for (int i = 0; i < n; i++) {
        tutti__generation_enter(list[i], TUTTI__WORKER_IN, now);
        list[i]->generation = g->last;
        list[i]->rank = i;
        list[i]->sent_regroup = false;
        list[i]->accusers = 0;
    }
    tell_generation(g, list, n, fresh);
    free(list);
}

/* ---- What the table requires --------------------------------------------------------------------------- */

/* Whether a waiting worker can continue without w; not if w is the only one with the state. If it lost its own because w, of its
 * generation, had a share of it, w has lost the others' shares as well. */
static bool waits_for(const tutti__generation_worker *o, const tutti__generation_worker *w)
{
    return o != w && o->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(o) &&
           (o->step >= 0 || w->step < 0 || (o->was_shared && o->generation == w->generation));
}

static bool is_waited_for(const tutti__generations *g, const tutti__generation_worker *w)
{
    for (int i = 0; i < g->n; i++)
        if (waits_for(&g->list[i], w))
            return true;
    return false;
}

/* Whether any waiting worker waits for one that has the state. */
static bool has_claim(const tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__WORKER_WAITING && tutti__generation_is_open(&g->list[i]) &&
            (g->list[i].step >= 0 || g->list[i].was_shared))
            return true;
    return false;
}

/* Whether all others of its generation have left it. */
static bool is_alone(const tutti__generations *g, const tutti__generation_worker *w)
{
    for (int i = 0; i < g->n; i++)
        if (&g->list[i] != w && g->list[i].state == TUTTI__WORKER_IN &&
            g->list[i].generation == w->generation)
            return false;
    return true;
}

/* Workers miss the heartbeat of one only after its first, so while they form the group a stopped one holds them up. When it is to be
 * killed; UINT64_MAX: it holds up nobody, or is the only one with the state. */
static uint64_t holds_up_until(const tutti__generations *g, const tutti__generation_worker *w)
{
    uint64_t until = UINT64_MAX;

    if (g->formed || !w->stopped || w->state != TUTTI__WORKER_IN || w->generation != g->last ||
        g->opts.stopped_ms == 0)
        return UINT64_MAX;
    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *o = &g->list[i];
        uint64_t since = w->turned_ms > w->since_ms ? w->turned_ms : w->since_ms;

        if (o->state != TUTTI__WORKER_IN || o->generation != g->last || o->stopped ||
            (o->step < 0 && w->step >= 0))
            continue;
        since = o->turned_ms > since ? o->turned_ms : since;
        until = since + g->opts.stopped_ms < until ? since + g->opts.stopped_ms : until;
    }
    return until;
}

static bool is_late(const tutti__generations *g, const tutti__generation_worker *w, uint64_t now)
{
    if (now >= holds_up_until(g, w))
        return true;
    return w->state == TUTTI__WORKER_IN && w->broken &&
           (w->stopped || (w->accusers > 0 && is_alone(g, w)) ||
            now >= w->broken_ms + g->opts.limit_ms) &&
           is_waited_for(g, w); /* last, since it looks at all: mostly no worker is late */
}

/* Whether it is its node that another cannot reach: all workers there, or a replacement, too. */
static bool is_of_its_node(const tutti__generations *g, const tutti__generation_worker *w)
{
    bool all = true;

    for (int i = 0; i < g->n; i++)
        all &= g->list[i].id.node != w->id.node || g->list[i].accusers > 0 ||
               g->list[i].state != TUTTI__WORKER_WAITING;
    return w->accuser != w->id.node && (all || w->unreached);
}

/* Workers that cannot reach each other, or one that reaches no other, would form generations in vain forever: returns the one
 * that most others could not reach. If it is the only one with the state, it must not be killed, but its accuser's node can be
 * excluded. */
static tutti__generation_worker *unreachable(const tutti__generations *g)
{
    tutti__generation_worker *worst = NULL;

    for (int i = 0; i < g->n && g->uncommitted + !g->formed >= UNCOMMITTED; i++) {
        tutti__generation_worker *w = &g->list[i];

        if (w->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(w) && w->accusers > 0 &&
            (is_waited_for(g, w) || is_of_its_node(g, w)) &&
            (!worst || w->accusers > worst->accusers ||
             (w->accusers == worst->accusers && w->rank > worst->rank)))
            worst = w;
    }
    return worst;
}

/* A replacement on the same node would not be reached either. Nothing is formed until one of the nodes is lost. */
static void exclude(tutti__generations *g, const tutti__generation_worker *w)
{
    const bool stays = !is_waited_for(g, w); /* the only one with the state: its accuser goes */
    const tutti__worker_id accuser = {.node = w->accuser};

    if (g->excludes)
        return;
    g->excludes = true;
    g->opts.act(g->opts.context, &(tutti__action){.act = TUTTI__ACT_EXCLUDE,
                                                  .id = stays ? accuser : w->id,
                                                  .other = stays ? w->id.node : w->accuser,
                                                  .several = stays || w->accusers > 1});
}

/* The first waiting worker that was not in the last generation; NULL: none. */
static const tutti__generation_worker *first_newcomer(const tutti__generations *g)
{
    const tutti__generation_worker *first = NULL;

    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *w = &g->list[i];

        if (w->state == TUTTI__WORKER_WAITING && tutti__generation_is_open(w) &&
            (!first || w->since_ms < first->since_ms))
            first = w;
    }
    return first;
}

/* There is room for them, and no worker was told yet. A commit of any worker implies that all have formed the group. */
static bool may_end_for_newcomers(const tutti__generations *g)
{
    int in_last = 0, unsent = 0;

    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *w = &g->list[i];

        in_last += w->state == TUTTI__WORKER_IN && w->generation == g->last;
        unsent += w->state == TUTTI__WORKER_IN && !w->sent_regroup;
    }
    return g->formed && in_last < g->shards && unsent > 0;
}

static void consider_newcomers(tutti__generations *g, uint64_t now)
{
    const tutti__generation_worker *first = first_newcomer(g);

    if (!first || !may_end_for_newcomers(g) ||
        (count(g, TUTTI__WORKER_STARTING) > 0 && now < first->since_ms + g->opts.gather_ms))
        return;
    for (int i = 0; i < g->n; i++)
        send_regroup(g, &g->list[i]);
}

/* If no worker has the state, none is working: then all begin together. */
static bool may_begin(const tutti__generations *g, const tutti__generation_worker *first,
                      uint64_t now)
{
    if (has_state(g, TUTTI__WORKER_WAITING))
        return true;
    return now >= g->hold_ms &&
           (count(g, TUTTI__WORKER_STARTING) == 0 || now >= first->since_ms + g->opts.limit_ms);
}

void tutti__generation_order_replacement(tutti__generations *g, uint64_t now,
                                         tutti__generation_worker *w)
{
    tutti__generation_act(g, TUTTI__ACT_REPLACE, w, NULL);
    g->replaced++;
    w->id.start++;
    w->step = -1;
    w->generation = 0;
    w->accusers = 0;
    w->stopped = w->resting = w->fails = w->finished = false;
    tutti__generation_enter(w, TUTTI__WORKER_STARTING, now);
}

/* Retries resting local ranks after some steps, or if no worker is left to do any. */
static void wake_resting(tutti__generations *g, uint64_t now)
{
    bool nobody = tutti__generations_living(g, -1) == 0;

    for (int i = 0; i < g->n; i++)
        if (g->list[i].resting && (nobody || g->work >= g->list[i].wake))
            tutti__generation_order_replacement(g, now, &g->list[i]);
}

/* Workers waiting in a failed round would wait until they are killed. */
static void dismiss(tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__WORKER_WAITING && tutti__generation_is_open(&g->list[i]))
            tutti__generation_tell_leave(g, &g->list[i]);
}

static void end_late(tutti__generations *g, tutti__generation_worker *w, uint64_t now)
{
    const bool cut_off = !g->formed && w->accusers > 0 && w->accuser != w->id.node && !w->stopped;

    if (cut_off && w->unreached) {
        exclude(g, w);
        return;
    }
    w->unreached |= cut_off;
    kill_worker(g, w, now,
                w->stopped ? "it is stopped, and others wait for it"
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
        send_regroup(g, &g->list[i]);
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
    const bool claims = first && has_claim(g);
    uint64_t next = UINT64_MAX, at;

    if (g->finished || g->failed || g->paused || !g->elastic)
        return next;
    for (int i = 0; i < g->n; i++) {
        const tutti__generation_worker *w = &g->list[i];

        at = w->broken_ms + g->opts.limit_ms;
        if (w->state == TUTTI__WORKER_IN && w->broken && at < next && (claims || w->step < 0) &&
            is_waited_for(g, w))
            next = at;
        at = holds_up_until(g, w);
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
