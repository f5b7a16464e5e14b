/* history_agent.c -- the agents of a simulated job: what they do with the machines' actions, and with messages.
 * SPDX-License-Identifier: MIT */
#include "simulate/history_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- An agent ------------------------------------------------------------------------------------------------------ */
/* A worker is in a generation: it needs the rendezvous only for the next death. */
static bool is_at_work(const tutti__history *c, const tutti__history_agent *a)
{
    for (int i = 0; i < c->local; i++)
        if (tutti__history_keeps_running(a) && a->w[i].in)
            return true;
    return false;
}

static void end_agent(tutti__history *c, tutti__history_agent *a, int code)
{
    tutti__history_trace(c, tutti__history_node_of(c, a), "ends with %d", code);
    a->ended = true;
    a->code = code;
    c->gave_up |= code != 0 && !c->ended;
    tutti__history_stop_workers(c, a);
}

void tutti__history_kill_agent(tutti__history *c, tutti__history_agent *a)
{
    for (int i = 0; i < c->local; i++)
        a->w[i] = (tutti__history_worker){0};
    tutti__history_unhost(c, a);
    a->alive = false;
    for (tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        if (x->agent_open && x->agent_process == a->process)
            tutti__history_close_agent_end(c, x);
        if (x->host_open && x->host_process == a->process)
            tutti__history_close_host_end(c, x, true, "");
    }
    a->main = a->dial = NULL;
    a->phase = TUTTI__HISTORY_IDLE;
}

void tutti__history_start_agent(tutti__history *c, int node)
{
    tutti__history_agent *a = &c->a[node];

    if (a->alive)
        return;
    memset(a, 0, offsetof(tutti__history_agent, rounds));
    memset(&a->succession, 0, offsetof(tutti__succession, roster.list));
    memset((char *)&a->succession + sizeof(tutti__roster), 0,
           sizeof a->succession - sizeof(tutti__roster));
    memset(&a->dial_until, 0, sizeof *a - offsetof(tutti__history_agent, dial_until));
    a->alive = true;
    a->process = ++c->last_process;
    a->since = c->now;
}

static void send_join(tutti__history *c, tutti__history_agent *a, tutti__history_connection *x)
{
    tutti__history_message *m = tutti__history_new_message(c, TUTTI__HISTORY_JOIN);

    if (a->port == 0)
        a->port = 100 + a->process;
    m->job = a->job;
    m->listens = a->port;
    m->rounds = a->n_rounds;
    m->restarts = a->restarts;
    m->n_nodes = a->n_rounds > 0 ? a->n_nodes : 0;
    m->running = tutti__history_keeps_running(a);
    m->group_rank = a->group_rank;
    m->first_rank = a->first_rank;
    m->node_id = a->succession.id;
    if (tutti__history_keeps_running(a) && a->succession.roster.n > 0)
        m->list = tutti__history_copy_list(c, &a->succession.roster);
    tutti__history_put(c, x, &x->up, m);
}

/* The state of all workers, for a coordinator that does not know it. */
static void tell_all(tutti__history *c, tutti__history_agent *a)
{
    for (int i = 0; i < c->local; i++) {
        const tutti__history_worker *w = &a->w[i];
        const bool over = !w->runs && !w->awaits;
        tutti__history_message *m = tutti__history_new_message(c, TUTTI__HISTORY_RESUMED);

        m->generation = over ? 0 : w->generation;
        m->rank = w->rank;
        m->version = w->step;
        tutti__history_tell(c, a, i, m);
        if (w->waits && w->runs)
            tutti__history_say(c, a, i, TUTTI__WORKER_READY, -1);
        if (w->finished)
            tutti__history_say(c, a, i, TUTTI__WORKER_FINISHED, -1);
        if (over || w->awaits) {
            m = tutti__history_new_message(c, TUTTI__HISTORY_EXITED);
            m->code = over ? 0 : w->code;
            m->rank = over ? 0 : w->sig;
            tutti__history_tell(c, a, i, m);
        }
    }
    tutti__history_send_up(c, a, tutti__history_new_message(c, TUTTI__HISTORY_HERE));
}

static void begin_round(tutti__history *c, tutti__history_agent *a, const tutti__history_message *m)
{
    /* one whose workers had failed before it lost its coordinator comes to the same elastic round again, as a newcomer */
    const bool again = a->n_rounds == m->action.number + 1 && m->elastic && a->lost;

    if (a->n_rounds > m->action.number && a->job == m->job && !again)
        tutti__history_broken(c, "a node begins a round twice, or an earlier one",
                              tutti__history_node_of(c, a));
    a->number = m->action.number;
    a->n_nodes = m->action.n_nodes;
    a->world_size = m->action.world_size;
    a->group_rank = m->group_rank;
    a->first_rank = m->first_rank;
    a->job = m->job;
    a->failed = a->lost = false;
    tutti__succession_forget(&a->succession);
    if (a->stopped || a->ended)
        return;
    if (a->phase != TUTTI__HISTORY_IDLE)
        tutti__history_broken(c, "a round begins while workers of another run",
                              tutti__history_node_of(c, a));
    a->n_rounds = a->number + 1;
    a->restarts = m->n_restarts;
    a->phase = TUTTI__HISTORY_RUNNING;
    a->elastic = m->elastic;
    a->finished = false;
    a->since_work = a->whole_at = c->now + TUTTI__HISTORY_SILENCE_MS;
    for (int i = 0; i < c->local; i++)
        tutti__history_start_worker(c, a, i, 0);
}

static void on_verdict(tutti__history *c, tutti__history_agent *a, int i, tutti__act what)
{
    tutti__history_worker *w = &a->w[i];

    if (!w->awaits)
        return;
    if (what == TUTTI__ACT_REST)
        return;
    w->awaits = false;
    if (what == TUTTI__ACT_REPLACE && a->phase == TUTTI__HISTORY_RUNNING)
        tutti__history_start_worker(c, a, i, w->start + 1);
    else if (what == TUTTI__ACT_FAIL)
        tutti__history_fail_round(c, a, w->code ? w->code : 128 + w->sig);
}

static void on_order(tutti__history *c, tutti__history_agent *a, const tutti__history_message *m)
{
    const tutti__action *o = &m->worker;
    tutti__history_worker *w = &a->w[o->id.local_rank];

    if (m->action.number != 0 && m->action.number != a->number)
        return;
    if (a->phase != TUTTI__HISTORY_RUNNING || o->id.start != w->start)
        return;
    switch (o->act) {
    case TUTTI__ACT_GENERATION:
        if (w->runs && w->waits && o->generation > w->generation) {
            w->waits = w->regroup = false;
            w->in = true;
            w->generation = o->generation;
            w->host_process = a->main->host_process;
            w->rank = o->rank;
        } else if (w->runs && o->generation == w->generation) {
            tutti__history_broken(c, "a worker is told a generation twice",
                                  tutti__history_node_of(c, a));
        }
        break;
    case TUTTI__ACT_REGROUP:
        w->regroup |= w->in && o->generation == w->generation;
        break;
    case TUTTI__ACT_LEAVE:
        w->leave = true;
        if (w->runs && w->waits)
            tutti__history_say_ready(c, a, o->id.local_rank, -1);
        break;
    case TUTTI__ACT_KILL:
        tutti__history_end_worker(c, a, o->id.local_rank, 0, 9);
        break;
    case TUTTI__ACT_REFUSE:
        tutti__history_end_worker(c, a, o->id.local_rank, 2, 0);
        break;
    default:
        on_verdict(c, a, o->id.local_rank, o->act);
    }
}

static void drop_main(tutti__history *c, tutti__history_agent *a)
{
    tutti__history_close_agent_end(c, a->main);
    a->main = NULL;
}

static void on_end(tutti__history *c, tutti__history_agent *a, const tutti__history_message *m)
{
    if (a->ended)
        tutti__history_broken(c, "a node is told twice that the job is over",
                              tutti__history_node_of(c, a));
    a->excluded = m->excluded;
    a->ended_by = a->main->host_process;
    end_agent(c, a, m->action.code);
}

static void on_list(tutti__history *c, tutti__history_agent *a, const tutti__history_message *m)
{
    tutti__history_message *answer;

    if (!m->list)
        return; /* no memory */
    if (!tutti__succession_listed(&a->succession, m->list, m->node_id)) {
        tutti__history_broken(c, "a node gets a list twice, or an earlier one",
                              tutti__history_node_of(c, a));
        return;
    }
    answer = tutti__history_new_message(c, TUTTI__HISTORY_ACKED);
    answer->version = m->list->version;
    tutti__history_send_up(c, a, answer);
}

void tutti__history_obey(tutti__history *c, tutti__history_agent *a,
                         const tutti__history_message *m)
{
    switch (m->action.act) {
    case TUTTI__ROUND_BEGIN:
        begin_round(c, a, m);
        break;
    case TUTTI__ROUND_STOP:
        if (m->action.number == a->number)
            tutti__history_stop_workers(c, a);
        break;
    case TUTTI__ROUND_END:
        on_end(c, a, m);
        break;
    case TUTTI__ROUND_REFUSE:
        end_agent(c, a, 2);
        break;
    case TUTTI__ROUND_ELASTIC:
        a->elastic |= m->action.number == a->number;
        break;
    case TUTTI__ROUND_LIST:
        on_list(c, a, m);
        break;
    case TUTTI__ROUND_WORKER:
        on_order(c, a, m);
        break;
    default:
        break;
    }
}

void tutti__history_on_lost(tutti__history *c, tutti__history_agent *a, bool ended)
{
    tutti__history_trace(c, tutti__history_node_of(c, a), "has lost its coordinator%s",
                         ended ? "" : ", which is silent");
    drop_main(c, a);
    a->lost = true;
    tutti__history_hang_up(c, a->dial);
    a->dial = NULL;
    a->succession.may_coordinate = a->port > 0;
    tutti__succession_begin(&a->succession, ended);
    a->next_try = a->since = c->now;
    if (a->stopped)
        tutti__history_stop_workers(c, a);
    if (a->finished && a->phase == TUTTI__HISTORY_IDLE)
        end_agent(c, a, 0);
    if (a->ended || a->stopped || tutti__history_keeps_running(a))
        return;
    tutti__history_stop_workers(c, a);
    if (a->n_rounds == 0)
        return;
    if (a->restarts < c->max_restarts)
        a->restarts++;
    else
        end_agent(c, a, 3);
}

/* ---- Finding the coordinator --------------------------------------------------------------------------------------- */
/* The node where a process listens on a port that the kernel chose, or -1. */
static int listener(const tutti__history *c, int port)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->a[i].alive && c->a[i].port == port)
            return i;
    return -1;
}

bool tutti__history_search_is_on(const tutti__history_agent *a)
{
    if (!tutti__history_keeps_running(a) || a->ended || a->stopped)
        return false;
    if (a->hosts)
        return a->succession.id > 0 && tutti__rounds_is_paused(&a->rounds);
    return tutti__succession_has_others(&a->succession) && !a->main;
}

static void dial(tutti__history *c, tutti__history_agent *a, const char *address, int port)
{
    const int machine = atoi(address), node = listener(c, port);

    a->dial_until = c->now + TUTTI__HISTORY_DIAL_MS;
    if (!tutti__history_reach(c, tutti__history_node_of(c, a), machine))
        return; /* no answer until then */
    if (node != machine) {
        a->dial_until = 0;
        tutti__succession_refused(&a->succession, a->hosts ? &a->rounds : NULL);
        a->tick_at = c->now; /* the coordinator is served in each turn */
        return;
    }
    a->dial = tutti__history_connect_to(c, a, node);
    send_join(c, a, a->dial);
}

void tutti__history_search(tutti__history *c, tutti__history_agent *a)
{
    const char *address;
    int port;

    if (a->dial_until > 0 && c->now < a->dial_until)
        return;
    if (a->dial_until > 0) {
        tutti__history_hang_up(c, a->dial);
        a->dial = NULL;
        a->dial_until = 0;
        tutti__succession_unanswered(&a->succession, c->now, false);
    }
    for (int i = 0; i < 20 && tutti__history_search_is_on(a) && a->dial_until == 0; i++)
        switch (tutti__succession_next(&a->succession, c->now, a->hosts ? &a->rounds : NULL,
                                       &address, &port)) {
        case TUTTI__SUCCESSION_WAIT:
            return;
        case TUTTI__SUCCESSION_TAKE_OVER:
            tutti__history_host(c, a, &a->succession.roster);
            send_join(c, a, a->main);
            tell_all(c, a);
            return;
        case TUTTI__SUCCESSION_ASK:
            dial(c, a, address, port);
        }
}

void tutti__history_on_answer(tutti__history *c, tutti__history_agent *a,
                              tutti__history_connection *x, tutti__history_message *m)
{
    char address[16];

    a->dial_until = 0;
    a->dial = NULL;
    if (m->kind == TUTTI__HISTORY_CLOSED || !tutti__history_search_is_on(a)) {
        tutti__history_hang_up(c, x);
        tutti__succession_unanswered(&a->succession, c->now, m->kind == TUTTI__HISTORY_CLOSED);
        return;
    }
    if (m->action.act == TUTTI__ROUND_REDIRECT) {
        snprintf(address, sizeof address, "%d", m->rank);
        tutti__history_close_agent_end(c, x);
        tutti__succession_redirected(&a->succession, a->hosts ? &a->rounds : NULL, m->term, address,
                                     m->port, m->action.unrelated);
        return;
    }
    if (a->hosts) {
        drop_main(c, a);
        tutti__history_unhost(c, a);
    }
    a->main = x;
    tutti__succession_accepted(&a->succession);
    tutti__history_obey(c, a, m);
    tell_all(c, a);
}

void tutti__history_find_rendezvous(tutti__history *c, tutti__history_agent *a)
{
    const int node = tutti__history_node_of(c, a);
    int at = listener(c, TUTTI__HISTORY_ENDPOINT);

    if (a->main || a->ended || a->stopped || c->now < a->next_try ||
        !(a->phase == TUTTI__HISTORY_IDLE || tutti__history_keeps_running(a)))
        return;
    a->next_try = c->now + 100;
    if (node == 0 && (at < 0 || at == 0)) {
        a->port = TUTTI__HISTORY_ENDPOINT;
        tutti__history_host(c, a, NULL);
    } else if (at == 0 && tutti__history_reach(c, node, 0)) {
        a->main = tutti__history_connect_to(c, a, 0);
    } else if (c->now >= a->since + TUTTI__HISTORY_JOIN_TIMEOUT_MS) {
        if (!is_at_work(c, a))
            end_agent(c, a, 3);
        a->since = c->now;
    }
    if (!a->main)
        return;
    send_join(c, a, a->main);
    if (tutti__history_keeps_running(a))
        tell_all(c, a);
}

void tutti__history_on_redirect(tutti__history *c, tutti__history_agent *a)
{
    drop_main(c, a);
    tutti__history_unhost(c, a);
    a->next_try = c->now + 100;
    if (a->stopped)
        tutti__history_stop_workers(c, a);
}

void tutti__history_agent_due(tutti__history *c, const tutti__history_agent *a)
{
    tutti__history_workers_due(c, a);
    if (tutti__history_search_is_on(a))
        tutti__history_due(c, a->dial_until > 0 ? a->dial_until : a->succession.next_ms);
    else if (!a->main && !a->ended && !a->stopped)
        tutti__history_due(c, a->next_try);
    if (!a->hosts)
        return;
    tutti__history_due(c, a->tick_at);
    if (a->rounds.state == TUTTI__ROUNDS_ENDED)
        tutti__history_due(c, a->rounds.since + TUTTI__HISTORY_LINGER_MS);
}
