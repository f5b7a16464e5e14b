/* launch_agents.h -- the agents of that job: what they do with the machines' actions, and with messages.   SPDX-License-Identifier: MIT
 *
 * What each function is a model of, in src/launch; who changes one there changes the other:
 *
 *     act                        act (host/coordinator.c), tutti__round_message (coordinator_messages.c)
 *     note_generation            nothing: the checks of the test
 *     host, unhost               tutti__membership_host (agent/host_rendezvous.c), tutti__coordinator_free
 *     on_join, hear_node         on_join; on_message, on_node and on_worker (host/coordinator.c)
 *     answer                     on_question (agent/find_coordinator.c)
 *     keeps_running              keeps_running (agent/agent_lost.c)
 *     is_at_work                 tutti__elastic_is_at_work (agent/elastic_workers.c)
 *     start_agent, kill_agent    tutti__agent_run (agent/agent_run.c), and the end of its process
 *     end_agent                  tutti__agent_fail, and what on_end (agent/agent_round.c) and exit_code do
 *     send_join                  tutti__membership_join (agent/host_rendezvous.c)
 *     tell_all                   tutti__elastic_report_all (agent/elastic_workers.c)
 *     begin_round, on_end, obey  begin_round, on_end, tutti__agent_execute (agent/agent_round.c)
 *     on_order, on_verdict       tutti__elastic_execute, execute_verdict (agent/elastic_workers.c)
 *     drop_main                  tutti__connection_close, in tutti__membership_take (agent/membership.c)
 *     on_lost                    tutti__membership_take, tutti__agent_lost_coordinator (agent/agent_lost.c)
 *     search_is_on, search       tutti__search_is_on, tutti__search_advance (agent/find_coordinator.c)
 *     dial                       dial, on_refused (agent/find_coordinator.c)
 *     on_answer                  on_accepted, on_redirected, on_no_answer (agent/find_coordinator.c)
 *     find_rendezvous            tutti__agent_look_for_rendezvous (agent/agent_lost.c), tutti__membership_try
 *     on_redirect                follow (agent/membership.c)
 *
 * In launch_cluster.h: tell, say, say_ready: report_message; end_worker, start_worker: report_end, tutti__workers_replace;
 * stop_workers, fail_round: tutti__workers_stop, tutti__agent_report_failure. The loop's turn (agent_run.c) is take_turn of
 * tests/unit/launch_histories.c. */
#ifndef TUTTI_TESTS_LAUNCH_AGENTS_H
#define TUTTI_TESTS_LAUNCH_AGENTS_H

#include "harness/launch_cluster.h"

/* ---- An agent's coordinator ------------------------------------------------------------------------------------------ */

static connection *connection_of(const tutti__round_node *node)
{
    return (connection *)(uintptr_t)((const char *)node - offsetof(connection, node));
}

static void note_generation(cluster *c, const connection *x, const tutti__action *w)
{
    const int round = c->a[x->host].rounds.number;
    group *g = NULL;

    for (int i = c->n_groups - 1; i >= 0 && !g; i--)
        if (c->groups[i].generation == w->generation &&
            c->groups[i].host_process == x->host_process && c->groups[i].round == round)
            g = &c->groups[i];
    if (!g) {
        g = &c->groups[c->n_groups++ % GROUPS];
        c->n_groups = c->n_groups < GROUPS ? c->n_groups : GROUPS;
        *g = (group){.generation = w->generation,
                     .host_process = x->host_process,
                     .round = round,
                     .size = w->size,
                     .fresh = w->fresh,
                     .formed_at = c->now};
    }
    if (w->size != g->size || w->rank != g->told)
        broken(c, "ranks of a generation are not dense and unique", x->agent);
    g->member[g->told].node = x->agent;
    g->member[g->told].process = x->agent_process;
    g->member[g->told].local_rank = w->id.local_rank;
    g->member[g->told++].start = w->id.start;
    g->next = c->now + STEP_MS;
}

static void act(void *context, const tutti__round_action *a)
{
    static const char *const names[] = {"begin",   "stop",    "end",  "refuse",   "wait",
                                        "welcome", "elastic", "list", "redirect", "worker"};
    cluster *c = context;
    connection *x = a->node ? connection_of(a->node) : NULL;
    const agent *h;
    message *m;

    if (a->act == TUTTI__ROUND_SAY)
        trace(c, -1, "%s", a->why);
    if (!x)
        return;
    if (a->act != TUTTI__ROUND_WORKER)
        trace(c, x->host, "to %d: %s, round %d%s%s", x->agent, names[a->act], a->number,
              a->why ? ": " : "", a->why ? a->why : "");
    else if (a->worker->act == TUTTI__ACT_GENERATION)
        trace(c, x->host, "to %d: generation %u, worker %d is rank %d of %d", x->agent,
              a->worker->generation, a->worker->id.local_rank, a->worker->rank, a->worker->size);
    h = &c->a[x->host];
    m = new_message(c, ACTION);
    m->action = *a;
    m->action.why = NULL;
    m->job = h->job;
    m->n_restarts = h->rounds.restarts;
    m->elastic = tutti__rounds_is_elastic(&h->rounds);
    m->group_rank = a->node->group_rank;
    m->first_rank = a->node->first_rank;
    m->node_id = a->node->id;
    c->ended |= h->rounds.state == TUTTI__ROUNDS_ENDED;
    m->paused = h->rounds.paused;
    m->excluded = a->act == TUTTI__ROUND_END && h->rounds.state != TUTTI__ROUNDS_ENDED;
    if (h->rounds.restarts > c->max_restarts)
        broken(c, "more restarts than allowed", x->host);
    if (a->act == TUTTI__ROUND_LIST)
        m->list = copy_list(&h->rounds.roster);
    if (a->act == TUTTI__ROUND_WORKER) {
        m->worker = *a->worker;
        if (a->worker->act == TUTTI__ACT_GENERATION)
            note_generation(c, x, a->worker);
    }
    if (x->host_open)
        put(c, x, &x->down, m);
    else
        drop(c, m);
}

static void host(cluster *c, agent *a, const tutti__roster *list)
{
    trace(c, node_of(c, a), list ? "takes over" : "hosts");
    a->hosts = true;
    if (!list)
        a->job = ++c->last_job;
    tutti__rounds_init(&a->rounds, c->now,
                       &(tutti__rounds_opts){.min = c->min,
                                             .max = c->max,
                                             .native = true,
                                             .max_restarts = c->max_restarts,
                                             .join_timeout_s = JOIN_TIMEOUT_MS * 1e-3,
                                             .last_call_s = 0.5,
                                             .keep_alive_s = KEEP_ALIVE_MS * 1e-3,
                                             .settle_ms = 200,
                                             .after = a->last_generation,
                                             .roster = list,
                                             .act = act,
                                             .context = c});
    a->main = connect_to(c, a, node_of(c, a));
}

/* Its coordinator ends: that of a process that ends, or one for which there is another. */
static void unhost(cluster *c, agent *a)
{
    if (!a->hosts)
        return;
    for (connection *x = c->pool; x < c->pool + c->n_pool; x++)
        if (x->host_open && x->known && x->host_process == a->process) {
            x->known = false;
            close_host_end(c, x, true, "");
        }
    if (a->rounds.generations.last > a->last_generation)
        a->last_generation = a->rounds.generations.last;
    tutti__rounds_free(&a->rounds);
    a->hosts = false;
}

static void on_join(cluster *c, connection *x, const message *m)
{
    agent *h = &c->a[x->host];
    tutti__join join = m->join;

    join.local = x->agent == x->host;
    join.is_of_this_job = m->job == h->job;
    join.roster = m->list;
    (void)tutti__rounds_joined(&h->rounds, c->now, &x->node, &join);
}

/* A message arrives at a process that coordinates. */
static void hear_node(cluster *c, connection *x, const message *m)
{
    agent *h = &c->a[x->host];
    tutti__rounds *r = &h->rounds;
    tutti__round_node *n = &x->node;
    tutti__generations *g;
    tutti__worker_id id = m->id;

    if (!x->known)
        tutti__rounds_connected(r, c->now, n);
    x->known = true;
    if (m->kind == JOIN)
        on_join(c, x, m);
    if (m->kind == APART)
        tutti__rounds_apart(n);
    if (!n->joined || m->kind == JOIN)
        return;
    g = tutti__rounds_workers(r, c->now, n, m->number);
    id.node = n->id;
    if (m->kind == FAILED)
        tutti__rounds_failed(r, c->now, n, m->number, m->code, false, "a worker failed");
    else if (m->kind == OVER)
        tutti__rounds_over(r, c->now, n, m->number, 1);
    else if (m->kind == LEAVE)
        tutti__rounds_leaves(r, c->now, n, false, 143, "SIGTERM");
    else if (m->kind == HERE)
        tutti__rounds_here(r, c->now, n);
    else if (m->kind == ACKED)
        tutti__rounds_acked(n, m->version);
    else if (g && m->kind == SAID)
        tutti__generations_said(g, c->now, id, &m->said);
    else if (g && m->kind == EXITED)
        tutti__generations_ended(g, c->now, id, m->code, m->rank);
    else if (g && m->kind == RESUMED)
        tutti__generations_resumed(g, c->now, id, m->generation, m->rank, m->version);
}

/* ... or at one that does not: names the coordinator that it knows. */
static void answer(cluster *c, connection *x, const message *m)
{
    const agent *h = &c->a[x->host];
    const tutti__roster *r = &h->succession.roster;
    const bool knows = h->main && r->n > 0;
    message *m2;

    if (m->kind != JOIN)
        return;
    m2 = new_message(c, ACTION);
    m2->action.act = TUTTI__ROUND_REDIRECT;
    m2->term = knows ? r->term : 0;
    m2->port = knows ? r->list[0].port : 0;
    m2->rank = knows ? atoi(r->list[0].address) : 0;
    put(c, x, &x->down, m2);
}

/* ---- An agent -------------------------------------------------------------------------------------------------------- */

static bool keeps_running(const agent *a)
{
    return a->elastic && a->phase == RUNNING;
}

/* A worker is in a generation: it needs the rendezvous only for the next death. */
static bool is_at_work(const agent *a)
{
    for (int i = 0; i < LOCAL; i++)
        if (keeps_running(a) && a->w[i].in)
            return true;
    return false;
}

static void end_agent(cluster *c, agent *a, int code)
{
    trace(c, node_of(c, a), "ends with %d", code);
    a->ended = true;
    a->code = code;
    stop_workers(c, a);
}

/* The process ends, and with it its workers. Its machine's kernel closes its connections. */
static void kill_agent(cluster *c, agent *a)
{
    for (int i = 0; i < LOCAL; i++)
        a->w[i] = (worker){0};
    unhost(c, a);
    a->alive = false;
    for (connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        if (x->agent_open && x->agent_process == a->process)
            close_agent_end(c, x);
        if (x->host_open && x->host_process == a->process)
            close_host_end(c, x, true, "");
    }
    a->main = a->dial = NULL;
    a->phase = IDLE;
}

static void start_agent(cluster *c, int node)
{
    agent *a = &c->a[node];

    if (a->alive)
        return;
    memset(a, 0, offsetof(agent, rounds));
    memset(&a->succession, 0, offsetof(tutti__succession, roster.list));
    memset((char *)&a->succession + sizeof(tutti__roster), 0,
           sizeof a->succession - sizeof(tutti__roster));
    memset(&a->dial_until, 0, sizeof *a - offsetof(agent, dial_until));
    a->alive = true;
    a->process = ++c->last_process;
    a->since = c->now;
}

static void send_join(cluster *c, agent *a, connection *x)
{
    message *m = new_message(c, JOIN);

    if (a->port == 0)
        a->port = 100 + a->process;
    m->job = a->job;
    m->join = (tutti__join){.workers = LOCAL,
                            .port = 1,
                            .wanted_rank = -1,
                            .listens = a->port,
                            .pid = a->process,
                            .rounds = a->n_rounds,
                            .restarts = a->restarts,
                            .n_nodes = a->n_rounds > 0 ? a->n_nodes : 0,
                            .running = keeps_running(a),
                            .group_rank = a->group_rank,
                            .first_rank = a->first_rank,
                            .id = a->succession.id};
    snprintf(m->join.host, sizeof m->join.host, "n%d", node_of(c, a));
    snprintf(m->join.listens_at, sizeof m->join.listens_at, "%d", node_of(c, a));
    if (keeps_running(a) && a->succession.roster.n > 0)
        m->list = copy_list(&a->succession.roster);
    put(c, x, &x->up, m);
}

/* The state of all workers, for a coordinator that does not know it. */
static void tell_all(cluster *c, agent *a)
{
    for (int i = 0; i < LOCAL; i++) {
        const worker *w = &a->w[i];
        const bool over = !w->runs && !w->awaits;
        message *m = new_message(c, RESUMED);

        m->generation = over ? 0 : w->generation;
        m->rank = w->rank;
        m->version = w->step;
        tell(c, a, i, m);
        if (w->waits && w->runs)
            say(c, a, i, TUTTI__WORKER_READY, -1);
        if (w->finished)
            say(c, a, i, TUTTI__WORKER_FINISHED, -1);
        if (over || w->awaits) {
            m = new_message(c, EXITED);
            m->code = over ? 0 : w->code;
            m->rank = over ? 0 : w->sig;
            tell(c, a, i, m);
        }
    }
    send_up(c, a, new_message(c, HERE));
}

static void begin_round(cluster *c, agent *a, const message *m)
{
    if (a->n_rounds > m->action.number && a->job == m->job)
        broken(c, "a node begins a round twice, or an earlier one", node_of(c, a));
    a->number = m->action.number;
    a->n_nodes = m->action.n_nodes;
    a->world_size = m->action.world_size;
    a->group_rank = m->group_rank;
    a->first_rank = m->first_rank;
    a->job = m->job;
    a->failed = false;
    tutti__succession_forget(&a->succession);
    if (a->stopped || a->ended)
        return;
    if (a->phase != IDLE)
        broken(c, "a round begins while workers of another run", node_of(c, a));
    a->n_rounds = a->number + 1;
    a->restarts = m->n_restarts;
    a->phase = RUNNING;
    a->elastic = m->elastic;
    a->finished = false;
    a->since_work = a->whole_at = c->now + SILENCE_MS;
    for (int i = 0; i < LOCAL; i++)
        start_worker(c, a, i, 0);
}

static void on_verdict(cluster *c, agent *a, int i, tutti__act act_)
{
    worker *w = &a->w[i];

    if (!w->awaits)
        return;
    if (act_ == TUTTI__ACT_REST)
        return;
    w->awaits = false;
    if (act_ == TUTTI__ACT_REPLACE && a->phase == RUNNING)
        start_worker(c, a, i, w->start + 1);
    else if (act_ == TUTTI__ACT_FAIL)
        fail_round(c, a, w->code ? w->code : 128 + w->sig);
}

static void on_order(cluster *c, agent *a, const message *m)
{
    const tutti__action *o = &m->worker;
    worker *w = &a->w[o->id.local_rank];

    if (m->action.number != 0 && m->action.number != a->number)
        return;
    if (a->phase != RUNNING || o->id.start != w->start)
        return;
    switch (o->act) {
    case TUTTI__ACT_GENERATION:
        if (w->runs && w->waits && o->generation > w->generation) {
            w->waits = w->regroup = false;
            w->in = true;
            w->generation = o->generation;
            w->rank = o->rank;
        } else if (w->runs && o->generation == w->generation) {
            broken(c, "a worker is told a generation twice", node_of(c, a));
        }
        break;
    case TUTTI__ACT_REGROUP:
        w->regroup |= w->in && o->generation == w->generation;
        break;
    case TUTTI__ACT_LEAVE:
        w->leave = true;
        if (w->runs && w->waits)
            say_ready(c, a, o->id.local_rank, -1);
        break;
    case TUTTI__ACT_KILL:
        end_worker(c, a, o->id.local_rank, 0, 9);
        break;
    case TUTTI__ACT_REFUSE:
        end_worker(c, a, o->id.local_rank, 2, 0);
        break;
    default:
        on_verdict(c, a, o->id.local_rank, o->act);
    }
}

static void drop_main(cluster *c, agent *a)
{
    close_agent_end(c, a->main);
    a->main = NULL;
}

static void on_end(cluster *c, agent *a, const message *m)
{
    if (a->ended)
        broken(c, "a node is told twice that the job is over", node_of(c, a));
    a->excluded = m->excluded;
    a->waited = m->paused;
    end_agent(c, a, m->action.code);
}

static void obey(cluster *c, agent *a, const message *m)
{
    switch (m->action.act) {
    case TUTTI__ROUND_BEGIN:
        begin_round(c, a, m);
        break;
    case TUTTI__ROUND_STOP:
        if (m->action.number == a->number)
            stop_workers(c, a);
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
        if (tutti__succession_listed(&a->succession, m->list, m->node_id)) {
            message *m2 = new_message(c, ACKED);

            m2->version = m->list->version;
            send_up(c, a, m2);
        } else {
            broken_rarely(c, "a node gets a list twice, or an earlier one", node_of(c, a));
        }
        break;
    case TUTTI__ROUND_WORKER:
        on_order(c, a, m);
        break;
    default:
        break;
    }
}

/* The connection to the coordinator was lost; ended: by its end, or its kernel. */
static void on_lost(cluster *c, agent *a, bool ended)
{
    trace(c, node_of(c, a), "has lost its coordinator%s", ended ? "" : ", which is silent");
    drop_main(c, a);
    hang_up(c, a->dial);
    a->dial = NULL;
    a->succession.may_coordinate = a->port > 0;
    tutti__succession_begin(&a->succession, ended);
    a->next_try = a->since = c->now;
    if (a->stopped)
        stop_workers(c, a);
    if (a->finished && a->phase == IDLE)
        end_agent(c, a, 0);
    if (a->ended || a->stopped || keeps_running(a))
        return;
    stop_workers(c, a);
    if (a->n_rounds == 0)
        return;
    if (a->restarts < c->max_restarts)
        a->restarts++;
    else
        end_agent(c, a, 3);
}

/* ---- Finding the coordinator ------------------------------------------------------------------------------------------ */

/* The node where a process listens on a port that the kernel chose, or -1. */
static int listener(const cluster *c, int port)
{
    for (int i = 0; i < NODES; i++)
        if (c->a[i].alive && c->a[i].port == port)
            return i;
    return -1;
}

static bool search_is_on(const agent *a)
{
    if (!keeps_running(a) || a->ended || a->stopped)
        return false;
    if (a->hosts)
        return a->succession.id > 0 && tutti__rounds_is_paused(&a->rounds);
    return a->succession.roster.n > 1 && a->succession.id > 0 && !a->main;
}

static void dial(cluster *c, agent *a, const char *address, int port)
{
    const int machine = atoi(address), node = listener(c, port);

    a->dial_until = c->now + DIAL_MS;
    if (!reach(c, node_of(c, a), machine))
        return; /* no answer until then */
    if (node != machine) {
        a->dial_until = 0;
        tutti__succession_refused(&a->succession, a->hosts ? &a->rounds : NULL);
        a->tick_at = c->now; /* the coordinator is served in each turn */
        return;
    }
    a->dial = connect_to(c, a, node);
    if (a->dial)
        send_join(c, a, a->dial);
}

static void search(cluster *c, agent *a)
{
    const char *address;
    int port;

    if (a->dial_until > 0 && c->now < a->dial_until)
        return;
    if (a->dial_until > 0) {
        hang_up(c, a->dial);
        a->dial = NULL;
        a->dial_until = 0;
        tutti__succession_unanswered(&a->succession, c->now, false);
    }
    for (int i = 0; i < 20 && search_is_on(a) && a->dial_until == 0; i++)
        switch (tutti__succession_next(&a->succession, c->now, a->hosts ? &a->rounds : NULL,
                                       &address, &port)) {
        case TUTTI__SUCCESSION_WAIT:
            return;
        case TUTTI__SUCCESSION_TAKE_OVER:
            host(c, a, &a->succession.roster);
            send_join(c, a, a->main);
            tell_all(c, a);
            return;
        case TUTTI__SUCCESSION_ASK:
            dial(c, a, address, port);
        }
}

/* A process that was asked has answered. */
static void on_answer(cluster *c, agent *a, connection *x, message *m)
{
    char address[16];

    a->dial_until = 0;
    a->dial = NULL;
    if (m->kind == CLOSED || !search_is_on(a)) {
        hang_up(c, x);
        tutti__succession_unanswered(&a->succession, c->now, m->kind == CLOSED);
        return;
    }
    if (m->action.act == TUTTI__ROUND_REDIRECT) {
        snprintf(address, sizeof address, "%d", m->rank);
        close_agent_end(c, x);
        tutti__succession_redirected(&a->succession, a->hosts ? &a->rounds : NULL, m->term, address,
                                     m->port, m->action.unrelated);
        return;
    }
    if (a->hosts) {
        drop_main(c, a);
        unhost(c, a);
    }
    a->main = x;
    tutti__succession_accepted(&a->succession);
    obey(c, a, m);
    tell_all(c, a);
}

/* Looks for the rendezvous at its endpoint, on node 0. */
static void find_rendezvous(cluster *c, agent *a)
{
    const int node = node_of(c, a);
    int at = listener(c, ENDPOINT);

    if (a->main || a->ended || a->stopped || c->now < a->next_try ||
        !(a->phase == IDLE || keeps_running(a)))
        return;
    a->next_try = c->now + 100;
    if (node == 0 && (at < 0 || at == 0)) {
        a->port = ENDPOINT;
        host(c, a, NULL);
    } else if (at == 0 && reach(c, node, 0)) {
        a->main = connect_to(c, a, 0);
    } else if (c->now >= a->since + JOIN_TIMEOUT_MS) {
        if (!is_at_work(a))
            end_agent(c, a, 3);
        a->since = c->now;
    }
    if (!a->main)
        return;
    send_join(c, a, a->main);
    if (keeps_running(a))
        tell_all(c, a);
}

/* The job continues elsewhere, says one that does not coordinate, before a round has begun. */
static void on_redirect(cluster *c, agent *a)
{
    drop_main(c, a);
    unhost(c, a);
    a->next_try = c->now + 100;
}

#endif
