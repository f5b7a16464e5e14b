/* history.c -- random histories of a job: what happens to it, and what must hold.   SPDX-License-Identifier: MIT */
#include "simulate/history_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_MS = 120000, /* of a history */
    FAULTS_MS = 8000, /* in which there are faults */
    SLOW_MS = 200     /* of a slow connection's messages, at most */
};

/* ---- An agent's turn ----------------------------------------------------------------------------------------------- */
static void advance_workers(tutti__history *c, tutti__history_agent *a)
{
    for (int i = 0; i < c->local; i++) {
        tutti__history_worker *w = &a->w[i];

        if (a->phase == TUTTI__HISTORY_RUNNING && c->elastic && w->runs && w->ready_at > 0 &&
            c->now >= w->ready_at) {
            w->ready_at = 0;
            tutti__history_say_ready(c, a, i, -1);
        }
    }
    if (a->phase == TUTTI__HISTORY_RUNNING && a->elastic && tutti__history_all_over(c, a)) {
        a->phase = TUTTI__HISTORY_STOPPING;
        a->idle_at = c->now;
    }
    if (a->phase == TUTTI__HISTORY_STOPPING && c->now >= a->idle_at) {
        tutti__history_message *m = tutti__history_new_message(c, TUTTI__HISTORY_OVER);

        for (int i = 0; i < c->local; i++)
            a->w[i].runs = a->w[i].in = a->w[i].awaits = false;
        a->phase = TUTTI__HISTORY_IDLE;
        m->number = a->number;
        tutti__history_send_up(c, a, m);
        if (a->finished && !a->main)
            a->ended = true; /* no coordinator is left to end it */
    }
}

static bool may_go(const tutti__history *c, const tutti__history_agent *a)
{
    if (a->phase != TUTTI__HISTORY_IDLE || !(a->ended || a->stopped))
        return false;
    if (!a->hosts || a->rounds.retired)
        return true;
    if (a->rounds.state != TUTTI__ROUNDS_ENDED)
        return false;
    if (c->now >= a->rounds.since + TUTTI__HISTORY_LINGER_MS)
        return true;
    for (const tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++)
        if (x->host_open && x->host_process == a->process && x->agent != x->host)
            return false;
    return true;
}

/* A node with a list finds the others again, unless machines are down: then it may not continue alone, and gives up with 3. */
static bool knows_end(const tutti__history_agent *a)
{
    return a->process > 0 && a->elastic && a->succession.id > 0 && !a->killed && !a->stopped &&
           !a->excluded;
}

static void note_reach(tutti__history *c, uint64_t passed_ms)
{
    /* in which a node that searches has asked all others */
    const uint64_t ask_ms = (uint64_t)(c->nodes - 1) * TUTTI__HISTORY_DIAL_MS + 500;

    for (int i = 0; i < c->nodes; i++) {
        tutti__history_agent *a = &c->a[i];
        bool knows = false;

        for (int k = 0; k < c->nodes && !a->ended; k++)
            knows |= c->a[k].alive && c->a[k].ended && knows_end(&c->a[k]) &&
                     c->a[k].job == a->job && tutti__history_reach(c, i, k);
        a->in_reach = knows ? a->in_reach + passed_ms : 0;
        a->could_ask |= a->in_reach >= ask_ms;
    }
}

/* The node ends. One that was not told how the job ended, because it was cut off or the coordinator died, and reached nobody who knows
 * for long enough to ask, cannot know: it gives up, or ends under another coordinator, perhaps otherwise. A signal to a node may end its side just
 * before, or after, the work of the others is done. */
static void check_success(tutti__history *c, const tutti__history_agent *a)
{
    bool down = false;

    for (int i = 0; i < c->nodes; i++)
        down |= c->off[i];
    for (int i = 0; i < c->nodes && !down; i++) {
        const tutti__history_agent *b = &c->a[i];

        if (b != a && b->ended && knows_end(b) && knows_end(a) && b->job == a->job &&
            b->n_rounds == a->n_rounds && (b->code == 0) != (a->code == 0) && a->code != 143 &&
            b->code != 143 && (a->could_ask || (a->ended_by > 0 && a->ended_by == b->ended_by)))
            tutti__history_broken(c, "a job ended with 0 on one node, and not on another", i);
    }
}

static void take_turn(tutti__history *c, tutti__history_agent *a)
{
    advance_workers(c, a);
    tutti__history_advance_plain(c, a);
    if (tutti__history_search_is_on(a))
        tutti__history_search(c, a);
    else
        tutti__history_find_rendezvous(c, a);
    if (a->hosts && c->now >= a->tick_at) {
        tutti__rounds_tick(&a->rounds, c->now);
        a->tick_at = tutti__rounds_deadline(&a->rounds);
    }
    if (may_go(c, a)) {
        check_success(c, a);
        tutti__history_kill_agent(c, a);
        a->gone = true;
    }
}

/* ---- Faults -------------------------------------------------------------------------------------------------------- */
static void cut(tutti__history *c, int what, int i, int k)
{
    switch (what) {
    case 6:
    case 7:
        tutti__history_set_cut(c, i, k, true);
        break;
    case 8:
        for (int n = 0; n < c->nodes; n++)
            tutti__history_set_cut(c, i, n, true);
        break;
    case 9:
        for (int n = 0; n < c->nodes; n++)
            for (int o = 0; o < n; o++)
                tutti__history_set_cut(c, n, o, (n <= i) != (o <= i));
        break;
    case 10:
        for (int n = 0; n < c->nodes; n++)
            for (int o = 0; o < n; o++)
                tutti__history_set_cut(c, n, o, false);
        memset(c->slow_ms, 0, sizeof c->slow_ms);
        break;
    case 11:
        c->slow_ms[i][k] = c->slow_ms[k][i] = SLOW_MS;
        break;
    }
}

static void leave(tutti__history *c, tutti__history_agent *a)
{
    if (!a->alive || a->stopped || a->ended || tutti__history_chance(c, 3) > 0)
        return;
    a->stopped = true;
    tutti__history_send_up(c, a, tutti__history_new_message(c, TUTTI__HISTORY_LEAVE));
    if (!tutti__history_keeps_running(a) || !a->main)
        tutti__history_stop_workers(c, a);
}

static void disturb(tutti__history *c)
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
                                        "is far from another",
                                        "a worker dies"};
    const int i = (int)tutti__history_chance(c, (uint64_t)c->nodes),
              k = (int)tutti__history_chance(c, (uint64_t)c->nodes);
    const bool dies = c->kind == TUTTI__HISTORY_DEATHS ||
                      (c->kind == TUTTI__HISTORY_BOTH && tutti__history_chance(c, 2));
    const int what = (int)(dies ? tutti__history_chance(c, 6) : 6 + tutti__history_chance(c, 7));
    tutti__history_agent *a = &c->a[i];

    if (what >= 6 && what <= 11)
        tutti__history_trace(c, i, "%s (node %d)", names[what], k);
    else
        tutti__history_trace(c, i, "%s", names[what]);
    if (what == 0 || what == 1) {
        c->off[i] |= what == 1; /* no peer is notified */
        c->dark |= what == 1;
        a->killed = true;
        tutti__history_kill_agent(c, a);
    } else if (what == 2) {
        leave(c, a);
    } else if (what == 3 || what == 4) {
        c->off[i] = false;
        tutti__history_start_agent(c, i);
    } else if (what >= 6 && what <= 11) {
        cut(c, what, i, k);
    } else if (a->phase == TUTTI__HISTORY_RUNNING && a->elastic) {
        tutti__history_end_worker(c, a, (int)tutti__history_chance(c, (uint64_t)c->local), 0, 9);
    } else if (a->phase == TUTTI__HISTORY_RUNNING && tutti__history_chance(c, 3) == 0) {
        tutti__history_fail_round(c, a, 1);
    }
}

/* ---- A history ----------------------------------------------------------------------------------------------------- */
static void begin(tutti__history *c, uint64_t seed)
{
    memset(&c->now, 0, offsetof(tutti__history, a) - offsetof(tutti__history, now));
    for (int i = 0; i < TUTTI__HISTORY_NODES; i++)
        c->a[i].alive = false, c->a[i].process = 0;
    c->now = 1000;
    c->random = seed;
    c->kind = (tutti__history_faults)tutti__history_chance(c, 3);
    c->elastic = tutti__history_chance(c, 4) > 0;
    c->min = 1 + (int)tutti__history_chance(c, c->nodes < 3 ? (uint64_t)c->nodes : 3);
    c->max = c->min + (int)tutti__history_chance(c, (uint64_t)(c->nodes - c->min + 1));
    c->max_restarts = (int)tutti__history_chance(c, 4);
    c->steps = 20 + (int)tutti__history_chance(c, 200);
    c->faults_end = c->now + tutti__history_chance(c, FAULTS_MS);
    c->fault = c->now + tutti__history_chance(c, 800);
    for (int i = 0; i < c->nodes; i++)
        c->start[i] = c->now + (i == 0 ? 0 : tutti__history_chance(c, i < c->min ? 400 : 4000));
}

static bool all_gone(const tutti__history *c)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->a[i].alive || c->start[i] > 0)
            return false;
    return c->calm;
}

/* What happens to the job at this time. */
static void happen(tutti__history *c)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->start[i] > 0 && c->now >= c->start[i]) {
            tutti__history_start_agent(c, i);
            c->start[i] = 0;
        }
    if (c->now >= c->fault && c->now < c->faults_end) {
        disturb(c);
        c->fault = c->now + 1 + tutti__history_chance(c, 600);
    }
    if (c->now >= c->faults_end && !c->calm) {
        c->calm = true;
        memset(c->cut, 0, sizeof c->cut);
        memset(c->slow_ms, 0, sizeof c->slow_ms);
    }
}

static void advance(tutti__history *c)
{
    tutti__history_advance_network(c);
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].next > 0 && c->now >= c->groups[i].next)
            tutti__history_advance_group(c, &c->groups[i]);
    for (int i = 0; i < c->nodes; i++)
        if (c->a[i].alive)
            take_turn(c, &c->a[i]);
}

/* To the next time at which anything happens. */
static void pass(tutti__history *c)
{
    const uint64_t before = c->now;

    c->next = MOST_MS;
    if (!c->calm) {
        tutti__history_due(c, c->faults_end);
        tutti__history_due(c, c->fault);
    }
    for (int i = 0; i < c->nodes; i++) {
        if (c->start[i] > 0)
            tutti__history_due(c, c->start[i]);
        if (c->a[i].alive)
            tutti__history_agent_due(c, &c->a[i]);
    }
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].next > 0)
            tutti__history_due(c, c->groups[i].next);
    tutti__history_network_due(c);
    if (c->ended)
        note_reach(c, c->next - before);
    c->now = c->next;
}

/* Its processes end, and what is under way is dropped. */
static void finish(tutti__history *c)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->a[i].alive)
            tutti__history_kill_agent(c, &c->a[i]);
    for (tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        tutti__history_drop_all(c, &x->up);
        tutti__history_drop_all(c, &x->down);
        x->agent_open = x->host_open = false;
    }
}

tutti_status tutti__history_run(tutti__history *c, uint64_t seed, tutti__history_result *result)
{
    finish(c);
    begin(c, seed);
    do {
        pass(c);
        happen(c);
        advance(c);
    } while (!c->broken && !all_gone(c) && !c->no_memory && c->now < MOST_MS);
    if (c->no_memory)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the messages of a simulated job");
    if (!c->broken && !all_gone(c))
        tutti__history_broken(c, "it does not end", 0);
    *result = (tutti__history_result){
        .virtual_ms = c->now, .messages = c->n_messages, .broken = c->broken};
    return TUTTI_OK;
}

tutti_status tutti__history_new(tutti__history **history_p, const tutti__history_opts *opts)
{
    tutti__history *c = tutti__alloc(sizeof *c);

    *history_p = c;
    if (!c)
        return TUTTI_ERR_MEMORY;
    c->opts = *opts;
    c->nodes = opts->nodes;
    c->local = opts->workers;
    c->said.protocol = TUTTI__AGENT_PROTOCOL;
    c->said.shards = c->nodes * c->local;
    snprintf(c->said.build, sizeof c->said.build, "one");
    return TUTTI_OK;
}

void tutti__history_free(tutti__history *c)
{
    if (!c)
        return;
    finish(c);
    while (c->spare) {
        tutti__history_message *m = c->spare;

        c->spare = m->next;
        free(m);
    }
    free(c);
}

/* ---- For people --------------------------------------------------------------------------------------------------- */

static void show_worker(const tutti__history_worker *w, int k, FILE *out)
{
    fprintf(out, "; worker %d:%s%s%s%s generation %u step %lld", k, w->runs ? " runs" : "",
            w->waits ? " waits" : "", w->in ? " in" : "", w->awaits ? " awaits" : "", w->generation,
            (long long)w->step);
}

void tutti__history_show(const tutti__history *c, FILE *out)
{
    static const char *const states[] = {"gathering", "running", "stopping", "ended"},
                             *const phases[] = {"idle", "running", "stopping"};

    for (int i = 0; i < c->nodes; i++) {
        const tutti__history_agent *a = &c->a[i];

        if (a->process == 0)
            continue;
        fprintf(out,
                "  node %d: %s, code %d, %s%s%s%s, round %d, connected to %d, id %d, list of "
                "%d in term %lld",
                i,
                a->alive    ? "alive"
                : a->killed ? "killed"
                            : "ended",
                a->code, phases[a->phase], a->elastic ? ", elastic" : "", a->ended ? ", ended" : "",
                a->stopped ? ", stopped" : "", a->number, a->main ? a->main->host : -1,
                a->succession.id, a->succession.roster.n, (long long)a->succession.roster.term);
        if (a->hosts)
            fprintf(out, "; hosts: %s, round %d%s, generation %u", states[a->rounds.state],
                    a->rounds.number, a->rounds.paused ? ", paused" : "",
                    a->rounds.generations.last);
        for (int k = 0; k < c->local; k++)
            show_worker(&a->w[k], k, out);
        fputc('\n', out);
    }
}
