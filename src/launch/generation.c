/* generation.c -- generations of an elastic job: events in, actions out.   SPDX-License-Identifier: MIT
 *
 * Every event changes the table, and `consider` then does what the table as a whole asks for; so the order in which news of
 * several nodes arrives does not matter. */
#include "launch/generation.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIMIT_MS = 60000,
    GATHER_MS = 100,
    DEATHS = 3,      /* in a place, before it stays empty for a while */
    PAUSE = 1 << 20, /* steps, at most */
    VOIDS = 3        /* generations without a commit: whoever others cannot reach goes */
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

static tutti__member *find(const tutti__generations *g, int node, int place)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].id.node == node && g->list[i].id.place == place)
            return &g->list[i];
    return NULL;
}

const tutti__member *tutti__generations_find(const tutti__generations *g, int node, int place)
{
    return find(g, node, place);
}

/* That very process; NULL: it is not known (any more). */
static tutti__member *find_worker(const tutti__generations *g, tutti__worker_id id)
{
    tutti__member *m = find(g, id.node, id.place);

    return m && m->id.start == id.start ? m : NULL;
}

/* Somebody works in its place, or will at once. */
static bool is_open(const tutti__member *m)
{
    return !m->closed && !m->leaving && !m->resting;
}

int tutti__generations_living(const tutti__generations *g, int node)
{
    int count = 0;

    for (int i = 0; i < g->n; i++)
        count += is_open(&g->list[i]) && (node < 0 || g->list[i].id.node == node);
    return count;
}

static int count(const tutti__generations *g, tutti__member_state state)
{
    int found = 0;

    for (int i = 0; i < g->n; i++)
        found += g->list[i].state == state && (state == TUTTI__MEMBER_IN || is_open(&g->list[i]));
    return found;
}

static void enter(tutti__member *m, tutti__member_state state, uint64_t now)
{
    m->state = state;
    m->since_ms = now;
    m->broken = false;
}

/* ---- What is told -------------------------------------------------------------------------------------- */

static void act(const tutti__generations *g, tutti__act what, const tutti__member *m,
                const char *why)
{
    g->opts.act(g->opts.context, &(tutti__action){.act = what, .id = m->id, .why = why});
}

/* Nobody will be tried in its place again. */
static void close_resting(tutti__generations *g, tutti__member *m)
{
    if (!m->resting)
        return;
    m->resting = false;
    m->closed = true;
    act(g, TUTTI__ACT_LET_GO, m, NULL);
}

static void tell_leave(tutti__generations *g, tutti__member *m)
{
    close_resting(g, m);
    m->leaving = true;
    if (m->state == TUTTI__MEMBER_WAITING || m->state == TUTTI__MEMBER_IN)
        act(g, TUTTI__ACT_LEAVE, m, NULL); /* else it is told when it is READY */
}

static void tell_regroup(tutti__generations *g, tutti__member *m)
{
    if (m->state != TUTTI__MEMBER_IN || m->told_regroup || g->finished)
        return;
    m->told_regroup = true;
    g->opts.act(
        g->opts.context,
        &(tutti__action){.act = TUTTI__ACT_REGROUP, .id = m->id, .generation = m->generation});
}

/* One of the generation is out of it. Those who form it still would wait for it in vain. */
static void break_up(tutti__generations *g, uint32_t generation, uint64_t now)
{
    for (int i = 0; i < g->n; i++) {
        tutti__member *m = &g->list[i];

        if (m->state != TUTTI__MEMBER_IN || m->generation != generation)
            continue;
        if (!m->broken)
            m->broken_ms = now;
        m->broken = true;
        tell_regroup(g, m);
    }
}

static void note_trouble(tutti__generations *g, uint64_t since)
{
    if (!g->trouble && g->last > 0 && !g->finished)
        g->trouble_ms = since;
    g->trouble = g->last > 0 && !g->finished;
}

static void kill_member(tutti__generations *g, tutti__member *m, uint64_t now, const char *why)
{
    bool was_in = m->state == TUTTI__MEMBER_IN;

    enter(m, TUTTI__MEMBER_GONE, now);
    note_trouble(g, now);
    act(g, TUTTI__ACT_KILL, m, why);
    if (was_in)
        break_up(g, m->generation, now);
}

/* ---- A generation -------------------------------------------------------------------------------------- */

/* The first is to be rank 0: whoever has most, and of these who was first before. Who was in the last generation comes
 * before others, so that spares stay spares. */
static int by_state(const void *a, const void *b)
{
    const tutti__member *x = *(tutti__member *const *)a, *y = *(tutti__member *const *)b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->generation != y->generation)
        return x->generation > y->generation ? -1 : 1;
    if (x->generation > 0 && x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x < y ? -1 : 1; /* the table is in order */
}

static int by_place(const void *a, const void *b)
{
    const tutti__member *x = *(tutti__member *const *)a, *y = *(tutti__member *const *)b;

    return (x > y) - (x < y);
}

static bool has_state(const tutti__generations *g, tutti__member_state state)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == state && is_open(&g->list[i]) && g->list[i].step >= 0)
            return true;
    return false;
}

/* Chooses among those who wait: list[0] is to be rank 0, then the rest of its node, then the others in order. */
static int choose(tutti__generations *g, tutti__member **list)
{
    int n = 0, first = 1;
    tutti__member *leader;

    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__MEMBER_WAITING && is_open(&g->list[i]))
            list[n++] = &g->list[i];
    qsort(list, (size_t)n, sizeof(*list), by_state);
    n = n < g->shards ? n : g->shards;
    leader = list[0];
    qsort(list + 1, (size_t)n - 1, sizeof(*list), by_place);
    for (int i = 1; i < n; i++)
        if (list[i]->id.node == leader->id.node) {
            tutti__member *m = list[i];

            memmove(list + first + 1, list + first, (size_t)(i - first) * sizeof(*list));
            list[first++] = m;
        }
    return n;
}

static void tell_generation(const tutti__generations *g, tutti__member *const *list, int n,
                            bool fresh)
{
    for (int i = 0; i < n; i++) {
        tutti__action a = {.act = TUTTI__ACT_GENERATION,
                           .id = list[i]->id,
                           .generation = g->last,
                           .rank = i,
                           .size = n,
                           .fresh = fresh,
                           .committed = fresh && (g->opts.begun || g->step > 0)};

        for (int k = 0; k < n; k++) {
            a.local_size += list[k]->id.node == a.id.node;
            a.local_rank += list[k]->id.node == a.id.node && k < i;
        }
        g->opts.act(g->opts.context, &a);
    }
}

static void form(tutti__generations *g, uint64_t now)
{
    tutti__member **list = malloc((size_t)g->n * sizeof(*list));
    bool fresh = !has_state(g, TUTTI__MEMBER_WAITING);
    int n;

    if (!list)
        return; /* with the next event, then */
    n = choose(g, list);
    g->voids = g->last > 0 && !g->formed ? g->voids + 1 : 0;
    g->last++;
    g->size = n;
    g->formed = false;
    g->reached = fresh ? -1 : g->reached;
    for (int i = 0; i < n; i++) {
        enter(list[i], TUTTI__MEMBER_IN, now);
        list[i]->generation = g->last;
        list[i]->rank = i;
        list[i]->told_regroup = false;
        list[i]->accusers = 0;
    }
    tell_generation(g, list, n, fresh);
    free(list);
}

/* ---- What the table asks for --------------------------------------------------------------------------- */

/* Does somebody wait who can go on without m? The only one that has the state is waited for. */
static bool is_waited_for(const tutti__generations *g, const tutti__member *m)
{
    for (int i = 0; i < g->n; i++) {
        const tutti__member *o = &g->list[i];

        if (o != m && o->state == TUTTI__MEMBER_WAITING && is_open(o) &&
            (o->step >= 0 || m->step < 0))
            return true;
    }
    return false;
}

/* All others of its generation are out of it. */
static bool is_alone(const tutti__generations *g, const tutti__member *m)
{
    for (int i = 0; i < g->n; i++)
        if (&g->list[i] != m && g->list[i].state == TUTTI__MEMBER_IN &&
            g->list[i].generation == m->generation)
            return false;
    return true;
}

static bool is_late(const tutti__generations *g, const tutti__member *m, uint64_t now)
{
    return m->state == TUTTI__MEMBER_IN && m->broken && is_waited_for(g, m) &&
           (m->stopped || (m->accusers > 0 && is_alone(g, m)) ||
            now >= m->broken_ms + g->opts.limit_ms);
}

/* Members that cannot reach each other, or one that can reach nobody, would form generations in vain for ever: the one goes whom
 * most could not reach. */
static tutti__member *unreachable(const tutti__generations *g)
{
    tutti__member *worst = NULL;

    for (int i = 0; i < g->n && g->voids + !g->formed >= VOIDS; i++) {
        tutti__member *m = &g->list[i];

        if (m->state == TUTTI__MEMBER_WAITING && is_open(m) && m->accusers > 0 &&
            is_waited_for(g, m) &&
            (!worst || m->accusers > worst->accusers ||
             (m->accusers == worst->accusers && m->rank > worst->rank)))
            worst = m;
    }
    return worst;
}

/* The first who waits without having been in the last generation; NULL: none. */
static const tutti__member *first_newcomer(const tutti__generations *g)
{
    const tutti__member *first = NULL;

    for (int i = 0; i < g->n; i++) {
        const tutti__member *m = &g->list[i];

        if (m->state == TUTTI__MEMBER_WAITING && is_open(m) &&
            (!first || m->since_ms < first->since_ms))
            first = m;
    }
    return first;
}

/* There is room for them, and nobody has been told yet. That somebody has committed says that all have formed the group. */
static bool may_end_for_newcomers(const tutti__generations *g)
{
    int members = 0, untold = 0;

    for (int i = 0; i < g->n; i++) {
        const tutti__member *m = &g->list[i];

        members += m->state == TUTTI__MEMBER_IN && m->generation == g->last;
        untold += m->state == TUTTI__MEMBER_IN && !m->told_regroup;
    }
    return g->formed && members < g->shards && untold > 0;
}

static void consider_newcomers(tutti__generations *g, uint64_t now)
{
    const tutti__member *first = first_newcomer(g);

    if (!first || !may_end_for_newcomers(g) ||
        (count(g, TUTTI__MEMBER_STARTING) > 0 && now < first->since_ms + g->opts.gather_ms))
        return;
    for (int i = 0; i < g->n; i++)
        tell_regroup(g, &g->list[i]);
}

/* Where nobody has the state nothing is at work that could go on: then all begin together. */
static bool may_begin(const tutti__generations *g, const tutti__member *first, uint64_t now)
{
    if (has_state(g, TUTTI__MEMBER_WAITING))
        return true;
    return now >= g->hold_ms &&
           (count(g, TUTTI__MEMBER_STARTING) == 0 || now >= first->since_ms + g->opts.limit_ms);
}

static void order_replacement(tutti__generations *g, uint64_t now, tutti__member *m)
{
    act(g, TUTTI__ACT_REPLACE, m, NULL);
    g->replaced++;
    m->id.start++;
    m->step = -1;
    m->generation = 0;
    m->accusers = 0;
    m->stopped = m->resting = false;
    enter(m, TUTTI__MEMBER_STARTING, now);
}

/* Places that stay empty are tried again after some steps, and where nobody is left to make any. */
static void wake_resting(tutti__generations *g, uint64_t now)
{
    bool nobody = tutti__generations_living(g, -1) == 0;

    for (int i = 0; i < g->n; i++)
        if (g->list[i].resting && (nobody || g->work >= g->list[i].wake))
            order_replacement(g, now, &g->list[i]);
}

/* Who waits in a round that has failed would wait until it is killed. */
static void dismiss(tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].state == TUTTI__MEMBER_WAITING && is_open(&g->list[i]))
            tell_leave(g, &g->list[i]);
}

static void consider(tutti__generations *g, uint64_t now)
{
    const tutti__member *first;
    tutti__member *worst;

    if (g->failed)
        dismiss(g);
    if (g->finished || g->failed || g->paused || !g->elastic)
        return;
    wake_resting(g, now);
    for (int i = 0; i < g->n; i++)
        if (is_late(g, &g->list[i], now))
            kill_member(g, &g->list[i], now,
                        g->list[i].stopped ? "it is stopped, and others wait for it"
                                           : "others wait for it, and it does not answer");
    if (count(g, TUTTI__MEMBER_IN) > 0) {
        consider_newcomers(g, now);
        return;
    }
    if ((worst = unreachable(g)) != NULL)
        kill_member(g, worst, now, "no generation comes about with it");
    first = first_newcomer(g);
    if (first && may_begin(g, first, now))
        form(g, now);
}

void tutti__generations_pause(tutti__generations *g, uint64_t now_ms, bool paused)
{
    g->paused = paused;
    for (int i = 0; paused && i < g->n; i++)
        tell_regroup(g, &g->list[i]);
    consider(g, now_ms);
}

void tutti__generations_tick(tutti__generations *g, uint64_t now_ms)
{
    consider(g, now_ms);
}

uint64_t tutti__generations_deadline(const tutti__generations *g)
{
    const tutti__member *first = first_newcomer(g);
    bool starting = count(g, TUTTI__MEMBER_STARTING) > 0, in = count(g, TUTTI__MEMBER_IN) > 0;
    uint64_t next = UINT64_MAX, at;

    if (g->finished || g->failed || g->paused || !g->elastic)
        return next;
    for (int i = 0; i < g->n; i++) {
        const tutti__member *m = &g->list[i];

        at = m->broken_ms + g->opts.limit_ms;
        if (m->state == TUTTI__MEMBER_IN && m->broken && is_waited_for(g, m) && at < next)
            next = at;
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

/* ---- What workers say ---------------------------------------------------------------------------------- */

/* NULL: it may be a member. */
static const char *misfit(tutti__generations *g, const tutti__worker_word *word, char *text,
                          size_t bytes)
{
    if (word->protocol != TUTTI__AGENT_PROTOCOL)
        snprintf(text, bytes,
                 "it speaks protocol %u with its launcher, which speaks %d: install the same "
                 "version of tutti on all nodes",
                 word->protocol, TUTTI__AGENT_PROTOCOL);
    else if (word->shards < 1)
        snprintf(text, bytes, "it says that a step has %d shards", word->shards);
    else if (g->shards > 0 && strncmp(g->build, word->build, sizeof g->build - 1) != 0)
        snprintf(text, bytes,
                 "it is \"%.127s\", the others are \"%.127s\": sums would differ in their last "
                 "bits. Install the same build everywhere, and set TUTTI_CPU_ISA (avx512, avx2, "
                 "sse41) to what all machines have, or TUTTI_KERNELS=reference",
                 word->build, g->build);
    else if (g->shards > 0 && g->shards != word->shards)
        snprintf(text, bytes, "its step has %d shards, that of the others %d: --shards must agree",
                 word->shards, g->shards);
    else
        return NULL;
    return text;
}

static void note_accusations(tutti__generations *g, const tutti__worker_word *word, uint64_t now)
{
    int n = word->n_lost < TUTTI__AGENT_MAX_LOST ? word->n_lost : TUTTI__AGENT_MAX_LOST;

    if (n > 0) /* others may have waited for them since the last step */
        note_trouble(g, g->formed ? g->commit_ms : now);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < g->n; i++)
            g->list[i].accusers += g->list[i].generation == word->generation &&
                                   word->generation > 0 && g->list[i].rank == word->lost[k];
}

/* g->step is the highest ever; work counts steps that were made again after all who had them had died, too. */
static void note_step(tutti__generations *g, int64_t step)
{
    g->work += g->reached >= 0 && step > g->reached ? step - g->reached : 0;
    g->reached = step > g->reached ? step : g->reached;
    g->step = step > g->step ? step : g->step;
}

static void on_ready(tutti__generations *g, uint64_t now, tutti__member *m,
                     const tutti__worker_word *word)
{
    bool was_in = m->state == TUTTI__MEMBER_IN;
    /* Unasked, and the first: what it cannot do it can say of nobody else. */
    bool gave_up = was_in && !m->broken && !m->told_regroup && !g->formed && word->n_lost <= 0;
    char text[512];
    const char *why = misfit(g, word, text, sizeof text);

    g->elastic = true;
    if (why) {
        m->closed = true;
        enter(m, TUTTI__MEMBER_GONE, now);
        act(g, TUTTI__ACT_REFUSE, m, why);
        if (was_in)
            break_up(g, m->generation, now);
        return;
    }
    if (g->shards == 0) {
        g->shards = word->shards;
        snprintf(g->build, sizeof g->build, "%.127s", word->build);
    }
    g->joined += m->state == TUTTI__MEMBER_STARTING && g->last > 0 && m->id.start == 0;
    if (m->state != TUTTI__MEMBER_WAITING)
        enter(m, TUTTI__MEMBER_WAITING, now);
    m->step = word->step;
    note_step(g, word->step);
    note_accusations(g, word, now);
    m->accusers += gave_up;
    if (was_in)
        break_up(g, m->generation, now);
    if (m->leaving || g->finished)
        tell_leave(g, m);
}

static void on_committed(tutti__generations *g, uint64_t now, tutti__member *m,
                         const tutti__worker_word *word)
{
    m->step = word->step > m->step ? word->step : m->step;
    note_step(g, word->step);
    if (word->step > m->death_step) {
        m->deaths = 0;
        m->pause = 0;
    }
    if (m->state != TUTTI__MEMBER_IN || word->generation != g->last)
        return;
    g->formed = true;
    g->commit_ms = now;
    g->voids = 0;
    g->lost_ms += g->trouble ? now - g->trouble_ms : 0;
    g->trouble = false;
}

static void on_leaves(tutti__generations *g, uint64_t now, tutti__member *m,
                      const tutti__worker_word *word)
{
    bool was_in = m->state == TUTTI__MEMBER_IN;

    note_step(g, word->step);
    m->leaving = m->closed = true;
    enter(m, TUTTI__MEMBER_GONE, now);
    g->left += !g->finished;
    if (was_in)
        break_up(g, m->generation, now);
}

static void on_finished(tutti__generations *g, uint64_t now, tutti__member *m,
                        const tutti__worker_word *word)
{
    note_step(g, word->step);
    g->lost_ms += g->trouble ? now - g->trouble_ms : 0;
    g->trouble = false;
    g->finished = true;
    for (int i = 0; i < g->n; i++) {
        tutti__member *o = &g->list[i];

        close_resting(g, o);
        /* A later generation: it was begun while this word was under way. */
        if (o != m && !o->leaving &&
            (o->state == TUTTI__MEMBER_WAITING ||
             (o->state == TUTTI__MEMBER_IN && o->generation > m->generation)))
            tell_leave(g, o);
    }
}

void tutti__generations_said(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                             const tutti__worker_word *word)
{
    tutti__member *m = find_worker(g, id);

    /* That the work is done is so, though it was taken for dead since. */
    if (!m || (m->state == TUTTI__MEMBER_GONE && word->kind != TUTTI__WORKER_FINISHED))
        return;
    if (word->kind == TUTTI__WORKER_READY)
        on_ready(g, now_ms, m, word);
    else if (word->kind == TUTTI__WORKER_COMMITTED)
        on_committed(g, now_ms, m, word);
    else if (word->kind == TUTTI__WORKER_LEAVES)
        on_leaves(g, now_ms, m, word);
    else if (word->kind == TUTTI__WORKER_FINISHED)
        on_finished(g, now_ms, m, word);
    consider(g, now_ms);
}

/* ---- What becomes of them ------------------------------------------------------------------------------ */

/* Its death is not the program's own failure: another takes its place, or the place stays empty until others have done some
 * steps, more of them each time. */
static void replace(tutti__generations *g, uint64_t now, tutti__member *m)
{
    char why[160];

    m->deaths++;
    m->death_step = g->step;
    if (m->deaths < DEATHS) {
        order_replacement(g, now, m);
        return;
    }
    m->resting = true;
    m->pause = m->pause == 0 ? 1 : m->pause < PAUSE ? 2 * m->pause : PAUSE;
    m->wake = g->work + m->pause;
    g->failed |= tutti__generations_living(g, -1) == 0;
    if (g->failed)
        snprintf(why, sizeof why, "%d in its place have died without a new step", m->deaths);
    else
        snprintf(why, sizeof why,
                 "%d in its place have died without a new step: it stays empty for %lld step%s",
                 m->deaths, (long long)m->pause, m->pause == 1 ? "" : "s");
    act(g, g->failed ? TUTTI__ACT_FAIL : TUTTI__ACT_REST, m, why);
}

static bool rests(const tutti__generations *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].resting)
            return true;
    return false;
}

/* Nobody is left, and nobody will be: who could say whether the work is done? */
static void fail_without(tutti__generations *g, int code, const char *why)
{
    if (g->finished || g->failed || rests(g) || tutti__generations_living(g, -1) > 0)
        return;
    g->failed = true;
    g->opts.act(
        g->opts.context,
        &(tutti__action){.act = TUTTI__ACT_FAIL, .id = {-1, -1, 0}, .code = code, .why = why});
}

/* It died of that, and not of somebody who can reach nobody. */
static void forget_accusations(tutti__generations *g, uint32_t generation)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].generation == generation)
            g->list[i].accusers = 0;
}

void tutti__generations_ended(tutti__generations *g, uint64_t now_ms, tutti__worker_id id, int code,
                              int sig)
{
    tutti__member *m = find_worker(g, id);
    bool was_in, unsaid, dies = sig != 0 || code == 3 || code == 4;
    uint32_t generation;

    if (!m)
        return;
    was_in = m->state == TUTTI__MEMBER_IN;
    generation = m->generation;
    enter(m, TUTTI__MEMBER_GONE, now_ms);
    if (dies && !g->finished) {
        g->deaths++;
        note_trouble(g, now_ms);
    }
    unsaid = is_open(m) && sig == 0 && code == 0;
    if (!is_open(m) || unsaid || (g->finished && dies)) {
        g->left += is_open(m) && !g->finished;
        act(g, TUTTI__ACT_LET_GO, m,
            sig == 0 && code == 0 ? NULL
            : m->leaving          ? "it was leaving"
            : m->closed           ? "it was refused"
                                  : "the job's work was done");
        m->closed = true;
        if (unsaid)
            fail_without(g, 1,
                         "all workers have ended before any said that the work was done "
                         "(tutti_elastic_end)");
    } else if (dies) {
        replace(g, now_ms, m);
    } else {
        m->closed = g->failed = true;
        act(g, TUTTI__ACT_FAIL, m, NULL);
    }
    if (was_in) {
        forget_accusations(g, generation);
        break_up(g, generation, now_ms);
    }
    consider(g, now_ms);
}

void tutti__generations_stopped(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                bool stopped)
{
    tutti__member *m = find_worker(g, id);

    if (m)
        m->stopped = stopped;
    consider(g, now_ms);
}

/* ---- Nodes --------------------------------------------------------------------------------------------- */

static tutti__member *insert(tutti__generations *g, tutti__worker_id id)
{
    int at = 0;

    if (g->n == g->capacity) {
        int capacity = g->capacity * 2 + 16;
        tutti__member *list = realloc(g->list, (size_t)capacity * sizeof *list);

        if (!list)
            return NULL;
        g->list = list;
        g->capacity = capacity;
    }
    while (at < g->n && (g->list[at].id.node < id.node ||
                         (g->list[at].id.node == id.node && g->list[at].id.place < id.place)))
        at++;
    memmove(g->list + at + 1, g->list + at, (size_t)(g->n - at) * sizeof *g->list);
    g->n++;
    g->list[at] = (tutti__member){.id = id, .step = -1, .death_step = -1};
    return &g->list[at];
}

tutti_status tutti__generations_node_came(tutti__generations *g, int node, int n)
{
    for (int i = 0; i < n; i++)
        if (!find(g, node, i) && !insert(g, (tutti__worker_id){node, i, 0}))
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the %d workers of a node", n);
    return TUTTI_OK;
}

void tutti__generations_resumed(tutti__generations *g, uint64_t now_ms, tutti__worker_id id,
                                uint32_t generation, int rank, int64_t step)
{
    tutti__member *m = find(g, id.node, id.place);

    if (!m || m->state != TUTTI__MEMBER_STARTING || m->id.start > id.start)
        return;
    m->id.start = id.start;
    if (generation == 0)
        return;
    enter(m, TUTTI__MEMBER_IN, now_ms);
    m->generation = generation;
    m->rank = rank;
    m->step = step;
    m->told_regroup = false;
    g->elastic = true;
    note_step(g, step);
    if (generation > g->last) {
        g->last = generation;
        g->formed = true;
        g->commit_ms = now_ms;
    }
    break_up(g, generation, now_ms); /* who else is in it, and lives, nobody knows here */
    consider(g, now_ms);
}

void tutti__generations_node_lost(tutti__generations *g, uint64_t now_ms, int node)
{
    int before = tutti__generations_living(g, -1), kept = 0;
    uint32_t generation = 0;

    for (int i = 0; i < g->n; i++) {
        const tutti__member *m = &g->list[i];

        if (m->id.node != node) {
            g->list[kept++] = *m;
            continue;
        }
        if (m->state == TUTTI__MEMBER_IN)
            generation = m->generation;
        g->deaths += m->state != TUTTI__MEMBER_GONE && !m->leaving && !g->finished;
    }
    if (kept == g->n)
        return;
    g->n = kept;
    if (generation > 0) {
        note_trouble(g, now_ms);
        break_up(g, generation, now_ms);
    }
    if (before > 0)
        fail_without(g, 3, "no worker is left");
    consider(g, now_ms);
}

void tutti__generations_node_leaves(tutti__generations *g, uint64_t now_ms, int node)
{
    for (int i = 0; i < g->n; i++)
        if (g->list[i].id.node == node && !g->list[i].leaving && !g->list[i].closed)
            tell_leave(g, &g->list[i]);
    consider(g, now_ms);
}
