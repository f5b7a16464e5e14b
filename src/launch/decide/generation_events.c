/* generation_events.c -- events of an elastic job, applied to the table of generation.c: messages of workers, their ends,
 * nodes that join and leave.   SPDX-License-Identifier: MIT */
#include "launch/decide/generation_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEATHS = 3,     /* with a local rank, after which none is started with it for a while */
    PAUSE = 1 << 20 /* steps, at most */
};

/* ---- Messages of workers ---------------------------------------------------------------------------------- */

/* Whether one is the other, or its beginning: a worker that fails before it has kernels does not name them, and must be able to
 * tell the others why. */
static bool is_same_build(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b), both = n < m ? n : m;
    const char next = n < m ? b[both] : a[both];

    return strncmp(a, b, both) == 0 && (next == ',' || !next);
}

/* Names the first of "NAME: VALUE;" that is not the same. */
static bool differs(const char *its, const char *ours, char *text, size_t bytes)
{
    int n = (int)strcspn(its, ";"), m = (int)strcspn(ours, ";"), name;

    while (its[n] && n == m && strncmp(its, ours, (size_t)n + 1) == 0) {
        its += n + 1;
        ours += m + 1;
        n = (int)strcspn(its, ";");
        m = (int)strcspn(ours, ";");
    }
    if (strcmp(its, ours) == 0)
        return false;
    name = (int)strcspn(its, ":;");
    snprintf(text, bytes,
             "%.*s: it has%.60s, the others%.60s: start it with the same configuration", name, its,
             n > name ? strndupa(its + name + 1, (size_t)(n - name - 1)) : "",
             m > name ? strndupa(ours + name + 1, (size_t)(m - name - 1)) : "");
    return true;
}

/* NULL: it may be in the group. */
static const char *misfit(tutti__generations *g, const tutti__worker_message *message, char *text,
                          size_t bytes)
{
    if (message->protocol != TUTTI__AGENT_PROTOCOL)
        snprintf(text, bytes,
                 "it speaks protocol %u with its launcher, which speaks %d: install the same "
                 "version of tutti on all nodes",
                 message->protocol, TUTTI__AGENT_PROTOCOL);
    else if (message->shards < 1)
        snprintf(text, bytes, "it says that a step has %d shards", message->shards);
    else if (g->shards > 0 && !is_same_build(g->build, message->build))
        snprintf(text, bytes,
                 "it is \"%.127s\", the others are \"%.127s\": sums would differ in their last "
                 "bits. Install the same build everywhere, and set TUTTI_CPU_ISA (avx512, avx2, "
                 "sse41) to what all machines have, or TUTTI_KERNELS=reference",
                 message->build, g->build);
    else if (g->shards > 0 && g->shards != message->shards)
        snprintf(text, bytes, "its step has %d shards, that of the others %d: --shards must agree",
                 message->shards, g->shards);
    else if (!*message->settings || !*g->settings ||
             !differs(message->settings, g->settings, text, bytes))
        return NULL;
    else /* before a group has formed, it is unknown which configuration is meant: the job fails when this worker has ended */
        g->failed |= g->last == 0 && !g->opts.begun;
    return text;
}

static void note_accusations(tutti__generations *g, int node, const tutti__worker_message *message,
                             uint64_t now)
{
    int n = message->n_lost < TUTTI__AGENT_MAX_LOST ? message->n_lost : TUTTI__AGENT_MAX_LOST;

    if (n > 0) /* the others may have been waiting for them since the last step */
        tutti__generation_note_trouble(g, g->formed ? g->commit_ms : now);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < g->n; i++)
            if (g->list[i].generation == message->generation && message->generation > 0 &&
                g->list[i].rank == message->lost[k]) {
                g->list[i].accusers++;
                g->list[i].accuser = node;
            }
}

/* g->step is the highest ever; work also counts steps repeated after all workers that had them died. */
static void note_step(tutti__generations *g, int64_t step)
{
    g->work += g->reached >= 0 && step > g->reached ? step - g->reached : 0;
    g->reached = step > g->reached ? step : g->reached;
    g->step = step > g->step ? step : g->step;
}

static void on_ready(tutti__generations *g, uint64_t now, tutti__generation_worker *w,
                     const tutti__worker_message *message)
{
    bool was_in = w->state == TUTTI__WORKER_IN;
    /* Without being told, before any commit, and without blaming others: the worker itself gave up. */
    bool gave_up = was_in && !w->broken && !w->sent_regroup && !g->formed && message->n_lost <= 0;
    char text[512];
    const char *why = misfit(g, message, text, sizeof text);

    g->elastic = true;
    if (why) {
        w->closed = !g->failed;
        tutti__generation_enter(w, TUTTI__WORKER_GONE, now);
        tutti__generation_act(g, TUTTI__ACT_REFUSE, w, why);
        if (was_in)
            tutti__generation_break_up(g, w->generation, now);
        return;
    }
    g->shards = message->shards;
    if (!*g->settings)
        snprintf(g->settings, sizeof g->settings, "%s", message->settings);
    if (strlen(message->build) > strlen(g->build))
        snprintf(g->build, sizeof g->build, "%.127s", message->build);
    g->joined += w->state == TUTTI__WORKER_STARTING && g->last > 0 && w->id.start == 0;
    if (w->state != TUTTI__WORKER_WAITING)
        tutti__generation_enter(w, TUTTI__WORKER_WAITING, now);
    w->was_shared = message->step == TUTTI__STATE_WAS_SHARED;
    w->step = message->step < 0 ? -1 : message->step;
    note_step(g, message->step);
    note_accusations(g, w->id.node, message, now);
    if (gave_up) {
        w->accusers++;
        w->accuser = w->id.node;
    }
    if (was_in)
        tutti__generation_break_up(g, w->generation, now);
    if (w->leaving || g->finished)
        tutti__generation_tell_leave(g, w);
}

static bool rests(const tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].resting)
            return true;
    return false;
}

/* Whether it may require an action: all workers report their commits, as long as the job runs. */
static bool on_committed(tutti__generations *g, uint64_t now, tutti__generation_worker *w,
                         const tutti__worker_message *message)
{
    const bool is_new = message->step > g->step || message->step > g->reached;
    bool forms;

    w->step = message->step > w->step ? message->step : w->step;
    note_step(g, message->step);
    w->unreached = false;
    if (message->step > w->death_step) {
        w->deaths = 0;
        w->pause = 0;
    }
    if (w->state != TUTTI__WORKER_IN || message->generation != g->last)
        return is_new && rests(g);
    forms = !g->formed;
    g->formed = true;
    g->commit_ms = now;
    g->uncommitted = 0;
    g->lost_ms += g->trouble ? now - g->trouble_ms : 0;
    g->trouble = false;
    return forms || (is_new && rests(g));
}

static void on_leaves(tutti__generations *g, uint64_t now, tutti__generation_worker *w,
                      const tutti__worker_message *message)
{
    bool was_in = w->state == TUTTI__WORKER_IN;

    note_step(g, message->step);
    w->leaving = w->closed = true;
    tutti__generation_enter(w, TUTTI__WORKER_GONE, now);
    g->left += !g->finished;
    if (was_in)
        tutti__generation_break_up(g, w->generation, now);
}

static void on_finished(tutti__generations *g, uint64_t now, tutti__generation_worker *w,
                        const tutti__worker_message *message)
{
    note_step(g, message->step);
    w->finished = true;
    if (w->rank != 0)
        return;
    g->lost_ms += g->trouble ? now - g->trouble_ms : 0;
    g->trouble = false;
    g->finished = true;
    for (int i = 0; i < g->n; i++) {
        tutti__generation_worker *o = &g->list[i];

        tutti__generation_close_resting(g, o);
        /* A later generation began while this message was under way. */
        if (o != w && !o->leaving &&
            (o->state == TUTTI__WORKER_WAITING ||
             (o->state == TUTTI__WORKER_IN && o->generation > w->generation)))
            tutti__generation_tell_leave(g, o);
    }
}

void tutti__generations_said(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                             const tutti__worker_message *message)
{
    tutti__generation_worker *w = tutti__generation_find_worker(g, id);

    /* FINISHED is valid even from a worker that was considered dead since. */
    if (!w || (w->state == TUTTI__WORKER_GONE && message->kind != TUTTI__WORKER_FINISHED))
        return;
    if (message->kind == TUTTI__WORKER_READY)
        on_ready(g, now_ms, w, message);
    else if (message->kind == TUTTI__WORKER_COMMITTED && !on_committed(g, now_ms, w, message))
        return;
    else if (message->kind == TUTTI__WORKER_LEAVES)
        on_leaves(g, now_ms, w, message);
    else if (message->kind == TUTTI__WORKER_FINISHED)
        on_finished(g, now_ms, w, message);
    else if (message->kind == TUTTI__WORKER_FAILS)
        w->fails = true;
    tutti__generation_consider(g, now_ms);
}

/* ---- Ends of workers ------------------------------------------------------------------------------ */

/* Its death is not the program's own failure: replaces it, or starts none until others have done some steps, more of
 * them each time. */
static void replace(tutti__generations *g, uint64_t now, tutti__generation_worker *w)
{
    char why[160];

    w->deaths++;
    w->death_step = g->step;
    if (w->deaths < DEATHS) {
        tutti__generation_order_replacement(g, now, w);
        return;
    }
    w->resting = true;
    w->pause = w->pause == 0 ? 1 : w->pause < PAUSE ? 2 * w->pause : PAUSE;
    w->wake = g->work + w->pause;
    g->failed |= tutti__generations_living(g, -1) == 0;
    if (g->failed)
        snprintf(why, sizeof why, "%d with its local rank have died without a new step", w->deaths);
    else
        snprintf(why, sizeof why,
                 "%d with its local rank have died without a new step: no other is started for "
                 "%lld step%s",
                 w->deaths, (long long)w->pause, w->pause == 1 ? "" : "s");
    tutti__generation_act(g, g->failed ? TUTTI__ACT_FAIL : TUTTI__ACT_REST, w, why);
}

/* No worker is left, and none will be started: it is unknown whether the work is done. */
static void fail_without(tutti__generations *g, int code, const char *why)
{
    if (g->finished || g->failed || rests(g) || tutti__generations_living(g, -1) > 0)
        return;
    g->failed = true;
    g->opts.act(
        g->opts.context,
        &(tutti__action){.act = TUTTI__ACT_FAIL, .id = {-1, -1, 0}, .code = code, .why = why});
}

/* Whether what is done after the last step, such as writing the results, is this worker's: it is that of rank 0. */
static bool leads(const tutti__generations *g, const tutti__generation_worker *w)
{
    return w->rank == 0 && (g->finished ? w->finished : w->generation == g->last);
}

/* Whether a worker's end without a word leaves the work undone: not that of a newcomer which was told to leave by a coordinator that
 * is lost, if others say that the steps are done. */
static bool leaves_undone(const tutti__generations *g, const tutti__generation_worker *w)
{
    if (w->generation > 0 && leads(g, w))
        return true;
    for (int i = 0; i < g->n; i++)
        if (g->list[i].finished)
            return false;
    return true;
}

/* Rank 0 is dead, and its work after the last step with it: a replacement does it, from the newest checkpoint. */
static void reopen(tutti__generations *g)
{
    g->finished = false;
    for (int i = 0; i < g->n; i++)
        g->list[i].finished = false;
}

/* Clears accusations in a generation of which a worker died: they were due to its death, not to unreachable workers. */
static void forget_accusations(tutti__generations *g, uint32_t generation)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].generation == generation)
            g->list[i].accusers = 0;
}

void tutti__generations_ended(tutti__generations *g, uint64_t now_ms, tutti__worker_id id, int code,
                              int sig)
{
    tutti__generation_worker *w = tutti__generation_find_worker(g, id);
    const bool well = code == 0 && sig == 0;
    bool was_in, unsaid, dies;
    uint32_t generation;

    if (!w)
        return;
    /* After its last step a worker ends with what that came to, a lost peer and a full disk too. */
    dies = sig != 0 || ((code == 3 || code == 4) && !w->fails && !w->finished);
    if (dies && leads(g, w))
        reopen(g);
    was_in = w->state == TUTTI__WORKER_IN;
    generation = w->generation;
    tutti__generation_enter(w, TUTTI__WORKER_GONE, now_ms);
    if (dies && !g->finished) {
        g->deaths++;
        tutti__generation_note_trouble(g, now_ms);
    }
    unsaid = tutti__generation_is_open(w) && well && !w->finished;
    if (!tutti__generation_is_open(w) || well || (g->finished && dies)) {
        g->left += unsaid && !g->finished;
        tutti__generation_act(g, TUTTI__ACT_LET_GO, w,
                              well         ? NULL
                              : w->leaving ? "it was leaving"
                              : w->closed  ? "it was refused"
                                           : "the job's work was done");
        w->closed = true;
        if (unsaid && leaves_undone(g, w) && g->hold_ms > 0 && w->generation == 0)
            fail_without(g, 3,
                         "the nodes whose workers were at work are lost, and the others' workers "
                         "have ended: it is unknown whether the work was done");
        else if (unsaid && leaves_undone(g, w))
            fail_without(g, 1,
                         "all workers have ended, and none said that the work was done "
                         "(tutti_elastic_end)");
    } else if (dies) {
        replace(g, now_ms, w);
    } else {
        w->closed = g->failed = true;
        tutti__generation_act(g, TUTTI__ACT_FAIL, w, NULL);
    }
    if (was_in) {
        forget_accusations(g, generation);
        tutti__generation_break_up(g, generation, now_ms);
    }
    tutti__generation_consider(g, now_ms);
}

void tutti__generations_stopped(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                bool stopped)
{
    tutti__generation_worker *w = tutti__generation_find_worker(g, id);

    if (w && stopped != w->stopped)
        w->turned_ms = now_ms;
    if (w)
        w->stopped = stopped;
    tutti__generation_consider(g, now_ms);
}

/* ---- Nodes --------------------------------------------------------------------------------------------- */

static tutti__generation_worker *insert(tutti__generations *g, tutti__worker_id id)
{
    const int at = tutti__generation_place(g, id.node, id.local_rank);

    if (g->n == g->capacity) {
        int capacity = g->capacity * 2 + 16;
        tutti__generation_worker *list = realloc(g->list, (size_t)capacity * sizeof *list);

        if (!list)
            return NULL;
        g->list = list;
        g->capacity = capacity;
    }
    memmove(g->list + at + 1, g->list + at, (size_t)(g->n - at) * sizeof *g->list);
    g->n++;
    g->list[at] = (tutti__generation_worker){.id = id, .step = -1, .death_step = -1};
    return &g->list[at];
}

tutti_status tutti__generations_node_came(tutti__generations *g, int node, int n)
{
    for (int i = 0; i < n; i++)
        if (!tutti__generation_find(g, node, i) && !insert(g, (tutti__worker_id){node, i, 0}))
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the %d workers of a node", n);
    return TUTTI_OK;
}

void tutti__generations_resumed(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                uint32_t generation, int rank, int64_t step)
{
    tutti__generation_worker *w = tutti__generation_find(g, id.node, id.local_rank);

    if (!w || w->state != TUTTI__WORKER_STARTING || w->id.start > id.start)
        return;
    w->id.start = id.start;
    w->rank = rank;
    if (generation == 0)
        return;
    tutti__generation_enter(w, TUTTI__WORKER_IN, now_ms);
    w->generation = generation;
    w->rank = rank;
    w->step = step;
    w->sent_regroup = false;
    g->elastic = true;
    note_step(g, step);
    if (generation > g->last) {
        g->last = generation;
        g->formed = true;
        g->commit_ms = now_ms;
    }
    /* it is unknown here which others are in it and alive */
    tutti__generation_break_up(g, generation, now_ms);
    tutti__generation_consider(g, now_ms);
}

void tutti__generations_node_lost(tutti__generations *g, uint64_t now_ms, int node)
{
    int before = tutti__generations_living(g, -1), kept = 0;
    uint32_t generation = 0;

    for (int i = 0; i < g->n; i++) {
        tutti__generation_worker *w = &g->list[i];

        if (w->id.node != node) {
            if (w->accuser == node) /* the two need not reach each other any more */
                w->accusers = 0;
            g->list[kept++] = *w;
            continue;
        }
        if (w->state == TUTTI__WORKER_IN)
            generation = w->generation;
        if (w->state != TUTTI__WORKER_GONE && leads(g, w))
            reopen(g);
        g->deaths += w->state != TUTTI__WORKER_GONE && !w->leaving && !g->finished;
    }
    if (kept == g->n)
        return;
    g->n = kept;
    g->excludes = false;
    if (generation > 0) {
        tutti__generation_note_trouble(g, now_ms);
        tutti__generation_break_up(g, generation, now_ms);
    }
    if (before > 0)
        fail_without(g, 3, "no worker is left");
    tutti__generation_consider(g, now_ms);
}

void tutti__generations_node_leaves(tutti__generations *g, uint64_t now_ms, int node)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].id.node == node && !g->list[i].leaving && !g->list[i].closed)
            tutti__generation_tell_leave(g, &g->list[i]);
    tutti__generation_consider(g, now_ms);
}
