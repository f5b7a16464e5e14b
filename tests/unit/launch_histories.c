/* launch: random histories of a job on several nodes: joins, deaths, cuts, and what the nodes' machines make of them.
 * SPDX-License-Identifier: MIT
 *
 * One process, virtual time (harness/launch_cluster.h, launch_agents.h). Nodes come, their processes are killed, their machines lose power and
 * come back, they are told to end, workers die, connections between some or all nodes are cut and mended. After that nothing more
 * happens, and in each history:
 *
 *   ends       every process ends, within minutes
 *   one        two coordinators never both make progress; if there are deaths as well as cuts, or nodes that have completed the
 *              job, they may (elasticity.md)
 *   restarts   are never more than allowed
 *   ranks      of a round, and of a generation, are dense and unique
 *   once       no action is repeated
 *   success    if the job of a node ends with 0, so does each node that was in it and was not told to end; but a node that was cut off
 *              meanwhile, or lost the coordinator, and reached nobody who knows for long enough to ask, may give up with 3, or by the
 *              deaths of workers that wait, and a signal to another node may end its side with 143
 *
 * HISTORIES is their number, SEED the first seed; the seed of a history that breaks one is printed. TRACE=1 shows what happens.
 *
 * Two rules do not hold in all histories; one in RARE of them (launch_histories_all; 0: none) may break these:
 *
 *   one        1 in 200,000: a node whose presence let a coordinator continue is cut off before it has that coordinator's list, and
 *              lets another one continue by the list that it has (SEED=77044466, 77087570)
 *   once       1 in 700,000: deaths and cuts left two coordinators of one term, and a node that the first had sent its lists comes to
 *              the second, whose list has a lower version (SEED=1795812837079644) */
#include "harness/launch_agents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

enum {
    MOST_MS = 120000,  /* of a history */
    FAULTS_MS = 8000,  /* in which there are faults */
    SETTLED_MS = 1000, /* after which two sides both at work have noticed each other's absence */
    ASK_MS = (NODES - 1) * DIAL_MS + 500 /* in which a node that searches has asked all others */
};

/* ---- Groups of elastic workers ------------------------------------------------------------------------------------ */

static worker *member(cluster *c, const group *g, int r)
{
    agent *a = &c->a[g->member[r].node];
    worker *w = &a->w[g->member[r].local_rank];

    return a->alive && a->process == g->member[r].process && a->number == g->round &&
                   w->start == g->member[r].start && w->runs && w->in &&
                   w->generation == g->generation
               ? w
               : NULL;
}

/* Whether member k has left the group, or died; not, if it has not come yet. */
static bool is_gone(const cluster *c, const group *g, int k)
{
    const agent *a = &c->a[g->member[k].node];
    const worker *w = &a->w[g->member[k].local_rank];

    return !a->alive || a->process != g->member[k].process || a->number != g->round ||
           w->start != g->member[k].start || !w->runs || w->generation > g->generation ||
           (w->generation == g->generation && !w->in);
}

/* The rank whose absence member r notices; -1: none. */
static int misses(const cluster *c, const group *g, int r)
{
    for (int k = 0; k < g->told; k++) {
        const int i = g->member[r].node, j = g->member[k].node;

        if (reach(c, i, j)
                ? is_gone(c, g, k)
                : c->now >= c->cut_at[i][j] + SILENCE_MS && c->now >= g->formed_at + SILENCE_MS)
            return k;
    }
    return -1;
}

static void check_alone(cluster *c, const group *g)
{
    for (int i = 0; i < c->n_groups; i++) {
        const group *o = &c->groups[i];

        if (c->kind != ALL && !c->ended && o != g && o->formed &&
            o->committed_at + 2 * STEP_MS >= c->now && o->host_process != g->host_process &&
            c->now >= g->formed_at + SETTLED_MS && c->now >= o->formed_at + SETTLED_MS &&
            c->a[o->member[0].node].job == c->a[g->member[0].node].job)
            broken_rarely(c, "two coordinators make progress", g->member[0].node);
    }
}

static void commit(cluster *c, group *g, worker *const *all)
{
    bool leaves = false;

    if (!g->formed) {
        int64_t newest = -1;

        for (int r = 0; r < g->size; r++)
            newest = all[r]->step > newest ? all[r]->step : newest;
        if (newest >= 0 && all[0]->step != newest)
            broken(c, "rank 0 has not the newest state", g->member[0].node);
        for (int r = 0; r < g->size; r++)
            all[r]->step = newest < 0 ? 0 : newest;
        g->formed = true;
        g->formed_at = c->now;
        return;
    }
    g->committed_at = c->now;
    check_alone(c, g);
    for (int r = 0; r < g->size; r++) {
        agent *a = &c->a[g->member[r].node];

        all[r]->step++;
        say(c, a, g->member[r].local_rank, TUTTI__WORKER_COMMITTED, -1);
        leaves |= all[r]->regroup || all[r]->leave;
    }
    for (int r = 0; r < g->size; r++) {
        agent *a = &c->a[g->member[r].node];
        const int i = g->member[r].local_rank;

        if (all[r]->step >= c->steps) {
            say(c, a, i, TUTTI__WORKER_FINISHED, -1);
            all[r]->finished = a->finished = true;
            end_worker(c, a, i, 0, 0);
        } else if (leaves) {
            say_ready(c, a, i, -1);
        }
    }
}

static void advance_group(cluster *c, group *g)
{
    worker *all[NODES * LOCAL];
    int present = 0, missed;
    bool together = true;

    for (int r = 0; r < g->told; r++) {
        all[r] = member(c, g, r);
        present += all[r] != NULL;
        for (int k = 0; k < r; k++)
            together &= reach(c, g->member[r].node, g->member[k].node);
    }
    g->next = present > 0 || c->now < g->formed_at + MOST_MS / 2 ? c->now + STEP_MS : 0;
    if (present == g->size && together) {
        commit(c, g, all);
        return;
    }
    for (int r = 0; r < g->told; r++) {
        agent *a = &c->a[g->member[r].node];

        if (!all[r])
            continue;
        missed = misses(c, g, r);
        if (missed >= 0 || (!g->formed && all[r]->regroup))
            say_ready(c, a, g->member[r].local_rank, missed);
    }
}

/* ---- Other workers -------------------------------------------------------------------------------------------------- */

/* Whether all nodes of this node's round are at work and reach each other. */
static bool is_whole(const cluster *c, const agent *a)
{
    int n = 0, first = 0;

    for (int i = 0; i < NODES; i++) {
        const agent *b = &c->a[i];

        if (!b->alive || b->phase != RUNNING || b->number != a->number || b->job != a->job)
            continue;
        for (int k = 0; k < i; k++)
            if (c->a[k].alive && c->a[k].phase == RUNNING && c->a[k].number == a->number &&
                c->a[k].job == a->job && !reach(c, i, k))
                return false;
        n++;
        first |= 1 << b->group_rank;
        if (b->first_rank != b->group_rank * LOCAL || b->world_size != b->n_nodes * LOCAL)
            return false;
    }
    return n == a->n_nodes && first == (1 << n) - 1;
}

static void advance_plain(cluster *c, agent *a)
{
    if (a->phase != RUNNING || a->elastic || a->since_work == 0)
        return;
    if (is_whole(c, a)) {
        a->whole_at = c->now;
        if (c->now >= a->since_work + (uint64_t)c->steps * STEP_MS) {
            a->phase = STOPPING; /* with success */
            a->idle_at = c->now + 1;
        }
    } else if (c->now >= a->whole_at + SILENCE_MS) {
        fail_round(c, a, 3);
    }
}

/* ---- An agent's turn ---------------------------------------------------------------------------------------------- */

static void advance_workers(cluster *c, agent *a)
{
    for (int i = 0; i < LOCAL; i++) {
        worker *w = &a->w[i];

        if (a->phase == RUNNING && c->elastic && w->runs && w->ready_at > 0 &&
            c->now >= w->ready_at) {
            w->ready_at = 0;
            say_ready(c, a, i, -1);
        }
    }
    if (a->phase == RUNNING && a->elastic && all_over(a)) {
        a->phase = STOPPING;
        a->idle_at = c->now;
    }
    if (a->phase == STOPPING && c->now >= a->idle_at) {
        message *m = new_message(c, OVER);

        for (int i = 0; i < LOCAL; i++)
            a->w[i].runs = a->w[i].in = a->w[i].awaits = false;
        a->phase = IDLE;
        m->number = a->number;
        send_up(c, a, m);
        if (a->finished && !a->main)
            a->ended = true; /* no coordinator is left to end it */
    }
}

static bool may_go(const cluster *c, const agent *a)
{
    if (a->phase != IDLE || !(a->ended || a->stopped))
        return false;
    if (!a->hosts || a->rounds.retired)
        return true;
    if (a->rounds.state != TUTTI__ROUNDS_ENDED)
        return false;
    if (c->now >= a->rounds.since + 5000)
        return true;
    for (const connection *x = c->pool; x < c->pool + c->n_pool; x++)
        if (x->host_open && x->host_process == a->process && x->agent != x->host)
            return false;
    return true;
}

/* A node with a list finds the others again, unless machines are down: then it may not continue alone, and gives up with 3. */
static bool knows_end(const agent *a)
{
    return a->process > 0 && a->elastic && a->succession.id > 0 && !a->killed && !a->stopped &&
           !a->excluded;
}

/* A node that was not told how the job ended, because it was cut off or the coordinator died, and reached nobody who knows for long
 * enough to ask, cannot know, and gives up, or a worker of its waiting side dies too often. A signal to a node may end its side just
 * before, or after, the work of the others is done. */
static bool may_differ(const agent *a)
{
    return a->code == 143 || (!a->could_ask && (a->code == 3 || (a->code == 128 + 9 && a->waited)));
}

static void note_reach(cluster *c, uint64_t passed_ms)
{
    for (int i = 0; i < NODES; i++) {
        agent *a = &c->a[i];
        bool knows = false;

        for (int k = 0; k < NODES && !a->ended; k++)
            knows |= c->a[k].alive && c->a[k].ended && c->a[k].code == 0 && knows_end(&c->a[k]) &&
                     c->a[k].job == a->job && reach(c, i, k);
        a->in_reach = knows ? a->in_reach + passed_ms : 0;
        a->could_ask |= a->in_reach >= ASK_MS;
    }
}

static void check_success(cluster *c, const agent *a)
{
    bool down = false;

    for (int i = 0; i < NODES; i++)
        down |= c->off[i];
    for (int i = 0; i < NODES && !down; i++) {
        const agent *b = &c->a[i];

        if (b != a && b->ended && knows_end(b) && knows_end(a) && b->job == a->job &&
            b->n_rounds == a->n_rounds && (b->code == 0) != (a->code == 0) &&
            !may_differ(b->code ? b : a))
            broken(c, "a job ended with 0 on one node, and not on another", i);
    }
}

static void take_turn(cluster *c, agent *a)
{
    advance_workers(c, a);
    advance_plain(c, a);
    if (search_is_on(a))
        search(c, a);
    else
        find_rendezvous(c, a);
    if (a->hosts && c->now >= a->tick_at) {
        tutti__rounds_tick(&a->rounds, c->now);
        a->tick_at = tutti__rounds_deadline(&a->rounds);
    }
    if (may_go(c, a)) {
        check_success(c, a);
        kill_agent(c, a);
        a->gone = true;
    }
}

/* ---- The network ---------------------------------------------------------------------------------------------------- */

static void deliver_up(cluster *c, connection *x, message *m)
{
    agent *h = &c->a[x->host];

    if (!x->host_open)
        return;
    if (m->kind == CLOSED)
        close_host_end(c, x, true, "the connection was lost");
    else if (h->hosts)
        hear_node(c, x, m);
    else
        answer(c, x, m);
    if (h->hosts) {
        tutti__rounds_tick(&h->rounds, c->now);
        h->tick_at = tutti__rounds_deadline(&h->rounds);
    }
}

static void deliver_down(cluster *c, connection *x, message *m)
{
    agent *a = &c->a[x->agent];

    if (!x->agent_open)
        return;
    if (x == a->dial)
        on_answer(c, a, x, m);
    else if (x != a->main)
        close_agent_end(c, x);
    else if (m->kind == CLOSED)
        on_lost(c, a, true);
    else if (m->action.act == TUTTI__ROUND_REDIRECT)
        on_redirect(c, a);
    else
        obey(c, a, m);
}

static void run_pipe(cluster *c, connection *x, pipe *p,
                     void (*deliver)(cluster *, connection *, message *))
{
    while (p->first && p->first->at <= c->now && reach(c, x->agent, x->host)) {
        message *m = p->first;

        p->first = m->next;
        if (!p->first)
            p->end = &p->first;
        deliver(c, x, m);
        drop(c, m);
    }
}

static void advance_silence(cluster *c, connection *x)
{
    agent *a = &c->a[x->agent];

    if (reach(c, x->agent, x->host)) {
        x->silent_since = 0;
        return;
    }
    if (x->silent_since == 0)
        x->silent_since = c->now;
    if (x->agent_open && x == a->main && c->now >= x->silent_since + x->agent_ms) {
        put(c, x, &x->up, new_message(c, APART));
        on_lost(c, a, false);
    }
    if (x->host_open && c->now >= x->silent_since + x->host_ms) {
        agent *h = &c->a[x->host];

        close_host_end(c, x, false, "it was silent");
        if (h->alive && h->hosts)
            h->tick_at = c->now;
    }
}

static void advance_network(cluster *c)
{
    for (connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        if (!x->agent_open && !x->host_open)
            continue;
        run_pipe(c, x, &x->up, deliver_up);
        run_pipe(c, x, &x->down, deliver_down);
        if (x->agent != x->host)
            advance_silence(c, x);
    }
}

/* ---- Faults --------------------------------------------------------------------------------------------------------- */

static void cut(cluster *c, int what, int i, int k)
{
    switch (what) {
    case 6:
    case 7:
        set_cut(c, i, k, true);
        break;
    case 8:
        for (int n = 0; n < NODES; n++)
            set_cut(c, i, n, true);
        break;
    case 9:
        for (int n = 0; n < NODES; n++)
            for (int o = 0; o < n; o++)
                set_cut(c, n, o, (n <= i) != (o <= i));
        break;
    case 10:
        for (int n = 0; n < NODES; n++)
            for (int o = 0; o < n; o++)
                set_cut(c, n, o, false);
        break;
    }
}

static void disturb(cluster *c)
{
    static const char *const names[] = {"is killed",
                                        "loses power",
                                        "is told to end",
                                        "starts",
                                        "starts",
                                        "a worker dies",
                                        "is cut from another",
                                        "is cut from another",
                                        "is cut from all",
                                        "is on one side of a cut",
                                        "all is mended",
                                        "a worker dies"};
    const int i = (int)chance(c, NODES), k = (int)chance(c, NODES);
    const bool dies = c->kind == ONLY_DEATHS || (c->kind == ALL && chance(c, 2));
    const int what = dies ? (int)chance(c, 6) : 6 + (int)chance(c, 6);
    agent *a = &c->a[i];

    trace(c, i, "%s", names[what]);
    switch (what) {
    case 0:
        a->killed = true;
        kill_agent(c, a);
        break;
    case 1: /* no peer is notified */
        c->off[i] = true;
        a->killed = true;
        kill_agent(c, a);
        break;
    case 2:
        if (a->alive && !a->stopped && !a->ended && chance(c, 3) == 0) {
            a->stopped = true;
            send_up(c, a, new_message(c, LEAVE));
            if (!keeps_running(a) || !a->main)
                stop_workers(c, a);
        }
        break;
    case 3:
    case 4:
        c->off[i] = false;
        start_agent(c, i);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
        cut(c, what, i, k);
        break;
    default:
        if (a->phase == RUNNING && a->elastic)
            end_worker(c, a, (int)chance(c, LOCAL), 0, 9);
        else if (a->phase == RUNNING && chance(c, 3) == 0)
            fail_round(c, a, 1);
    }
}

/* ---- A history ------------------------------------------------------------------------------------------------------ */

static void begin(cluster *c, uint64_t seed)
{
    message *spare = c->spare;

    memset(&c->now, 0, offsetof(cluster, a));
    for (int i = 0; i < NODES; i++)
        c->a[i].alive = false, c->a[i].process = 0;
    memset(c->cut, 0, sizeof *c - offsetof(cluster, cut));
    c->spare = spare;
    c->now = 1000;
    c->trace = getenv("TRACE") != NULL;
    c->random = seed;
    c->kind = (faults)chance(c, 3);
    c->elastic = chance(c, 4) > 0;
    c->min = 1 + (int)chance(c, 3);
    c->max = 3 + (int)chance(c, NODES - 2);
    c->max_restarts = (int)chance(c, 4);
    c->steps = 20 + (int)chance(c, 200);
}

static bool all_gone(const cluster *c)
{
    for (int i = 0; i < NODES; i++)
        if (c->a[i].alive)
            return false;
    return true;
}

static void advance(cluster *c)
{
    advance_network(c);
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].next > 0 && c->now >= c->groups[i].next)
            advance_group(c, &c->groups[i]);
    for (int i = 0; i < NODES; i++)
        if (c->a[i].alive)
            take_turn(c, &c->a[i]);
}

/* Returns the virtual time that it took. */
static uint64_t history(cluster *c, uint64_t seed)
{
    uint64_t start[NODES], fault, faults_end;

    begin(c, seed);
    faults_end = c->now + chance(c, FAULTS_MS);
    fault = c->now + chance(c, 800);
    for (int i = 0; i < NODES; i++)
        start[i] = c->now + (i == 0 ? 0 : chance(c, i < c->min ? 400 : 4000));
    while (!c->broken && c->now < MOST_MS) {
        for (int i = 0; i < NODES; i++)
            if (start[i] > 0 && c->now >= start[i]) {
                start_agent(c, i);
                start[i] = 0;
            }
        if (c->now >= fault && c->now < faults_end) {
            disturb(c);
            fault = c->now + 1 + chance(c, 600);
        }
        if (c->now >= faults_end && !c->calm) {
            c->calm = true;
            memset(c->cut, 0, sizeof c->cut);
        }
        advance(c);
        if (c->ended)
            note_reach(c, c->calm ? 10 : 5);
        c->now += c->calm ? 10 : 5;
        if (c->calm && c->now > 6000 && all_gone(c))
            return c->now;
    }
    if (!c->broken)
        broken(c, "it does not end", 0);
    return c->now;
}

/* The state in which a history does not end. */
static void show(const cluster *c)
{
    static const char *const states[] = {"gathering", "running", "stopping", "ended"};

    for (int i = 0; i < NODES; i++) {
        const agent *a = &c->a[i];

        if (a->process == 0)
            continue;
        printf("  node %d: %s, code %d, phase %d%s%s%s, round %d, connected to %d, id %d, list of "
               "%d in term %lld",
               i,
               a->alive    ? "alive"
               : a->killed ? "killed"
                           : "ended",
               a->code, a->phase, a->elastic ? ", elastic" : "", a->ended ? ", ended" : "",
               a->stopped ? ", stopped" : "", a->number, a->main ? a->main->host : -1,
               a->succession.id, a->succession.roster.n, (long long)a->succession.roster.term);
        if (a->hosts)
            printf("; hosts: %s, round %d%s, generation %u", states[a->rounds.state],
                   a->rounds.number, a->rounds.paused ? ", paused" : "",
                   a->rounds.generations.last);
        for (int k = 0; k < LOCAL; k++)
            printf("; worker %d:%s%s%s%s gen %u step %lld", k, a->w[k].runs ? " runs" : "",
                   a->w[k].waits ? " waits" : "", a->w[k].in ? " in" : "",
                   a->w[k].awaits ? " awaits" : "", a->w[k].generation, (long long)a->w[k].step);
        printf("; search: at %d, next %llu, dial until %llu, may %d, predecessor %d, on %d\n",
               a->succession.at, (unsigned long long)a->succession.next_ms,
               (unsigned long long)a->dial_until, a->succession.may_coordinate,
               a->succession.predecessor, search_is_on(a));
    }
}

static void end(cluster *c)
{
    for (int i = 0; i < NODES; i++)
        if (c->a[i].alive)
            kill_agent(c, &c->a[i]);
    for (connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        drop_all(c, &x->up);
        drop_all(c, &x->down);
        x->agent_open = x->host_open = false;
    }
    c->n_pool = 0;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void every_history_ends_well(void **state)
{
    cluster *c = calloc(1, sizeof *c);
    const uint64_t n = number("HISTORIES", 2000), first = number("SEED", 1),
                   allowed = number("RARE", 0);
    struct timespec begun, now;
    uint64_t virtual_ms = 0, events = 0, bad = 0, rare = 0;
    double seconds;

    (void)state;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    for (uint64_t seed = first; seed < first + n; seed++) {
        virtual_ms += history(c, seed);
        events += c->n_events;
        rare += c->rare;
        bad += c->broken != NULL;
        if (c->broken && (!c->rare || bad <= 10)) {
            printf("SEED=%llu HISTORIES=1: %s\n", (unsigned long long)seed, c->what);
            show(c);
        }
        end(c);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    seconds = (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) * 1e-9;
    printf("%llu histories of %.1f s and %.0f messages each: %.0f a second of a core\n",
           (unsigned long long)n, (double)virtual_ms * 1e-3 / (double)n, (double)events / (double)n,
           (double)n / seconds);
    while (c->spare) {
        message *m = c->spare;

        c->spare = m->next;
        free(m);
    }
    free(c);
    assert_int_equal(bad, rare);
    assert_true(rare == 0 || (allowed > 0 && rare <= n / allowed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_history_ends_well)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
