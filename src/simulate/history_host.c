/* history_host.c -- the coordinators of a simulated job: the real machines, and what connects them with the model.
 * SPDX-License-Identifier: MIT */
#include "simulate/history_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- An agent's coordinator ---------------------------------------------------------------------------------------- */
static tutti__history_connection *connection_of(const tutti__round_node *node)
{
    return (tutti__history_connection *)(uintptr_t)((const char *)node -
                                                    offsetof(tutti__history_connection, node));
}

static tutti__history_group *group_of(tutti__history *c, int process, int round,
                                      const tutti__action *w)
{
    tutti__history_group *g;

    for (g = c->groups + c->n_groups - 1; g >= c->groups; g--)
        if (g->generation == w->generation && g->host_process == process && g->round == round)
            return g;
    g = &c->groups[c->groups_made++ % TUTTI__HISTORY_GROUPS];
    c->n_groups += c->n_groups < TUTTI__HISTORY_GROUPS;
    memset(g, 0, offsetof(tutti__history_group, member));
    g->generation = w->generation;
    g->host_process = process;
    g->round = round;
    g->size = w->size;
    g->fresh = w->fresh;
    g->formed_at = c->now;
    return g;
}

static void note_generation(tutti__history *c, const tutti__history_connection *x,
                            const tutti__action *w)
{
    tutti__history_group *g = group_of(c, x->host_process, c->a[x->host].rounds.number, w);

    if (w->size != g->size || w->rank != g->told || g->told >= c->nodes * c->local) {
        tutti__history_broken(c, "ranks of a generation are not dense and unique", x->agent);
        return;
    }
    g->member[g->told].node = x->agent;
    g->member[g->told].process = x->agent_process;
    g->member[g->told].local_rank = w->id.local_rank;
    g->member[g->told++].start = w->id.start;
    g->next = c->now + TUTTI__HISTORY_STEP_MS;
}

static void trace_action(const tutti__history *c, const tutti__history_connection *x,
                         const tutti__round_action *a)
{
    static const char *const names[] = {"begin",   "stop",    "end",  "refuse",   "wait",
                                        "welcome", "elastic", "list", "redirect", "worker"},
                             *const orders[] = {"generation", "regroup", "leave", "refuse", "kill",
                                                "exclude",    "replace", "rest",  "let go", "fail"};

    if (a->act != TUTTI__ROUND_WORKER)
        tutti__history_trace(c, x->host, "to %d: %s, round %d%s%s", x->agent, names[a->act],
                             a->number, a->why ? ": " : "", a->why ? a->why : "");
    else if (a->worker->act == TUTTI__ACT_GENERATION)
        tutti__history_trace(c, x->host, "to %d: generation %u, worker %d is rank %d of %d",
                             x->agent, a->worker->generation, a->worker->id.local_rank,
                             a->worker->rank, a->worker->size);
    else
        tutti__history_trace(c, x->host, "to %d: worker %d: %s", x->agent, a->worker->id.local_rank,
                             orders[a->worker->act]);
}

static void act(void *context, const tutti__round_action *a)
{
    tutti__history *c = context;
    tutti__history_connection *x = a->node ? connection_of(a->node) : NULL;
    const tutti__history_agent *h;
    tutti__history_message *m;

    if (a->act == TUTTI__ROUND_SAY)
        tutti__history_trace(c, -1, "%s", a->why);
    if (!x)
        return;
    if (c->opts.events)
        trace_action(c, x, a);
    h = &c->a[x->host];
    m = tutti__history_new_message(c, TUTTI__HISTORY_ACTION);
    m->action = *a;
    m->action.why = NULL;
    m->job = h->job;
    m->n_restarts = h->rounds.restarts;
    m->elastic = tutti__rounds_is_elastic(&h->rounds);
    m->group_rank = a->node->group_rank;
    m->first_rank = a->node->first_rank;
    m->node_id = a->node->id;
    c->ended |= h->rounds.state == TUTTI__ROUNDS_ENDED;
    m->excluded = a->act == TUTTI__ROUND_END && h->rounds.state != TUTTI__ROUNDS_ENDED;
    if (h->rounds.restarts > c->max_restarts)
        tutti__history_broken(c, "more restarts than allowed", x->host);
    if (a->act == TUTTI__ROUND_LIST)
        m->list = tutti__history_copy_list(c, &h->rounds.roster);
    if (a->act == TUTTI__ROUND_WORKER) {
        m->worker = *a->worker;
        if (a->worker->act == TUTTI__ACT_GENERATION)
            note_generation(c, x, a->worker);
    }
    if (x->host_open)
        tutti__history_put(c, x, &x->down, m);
    else
        tutti__history_drop(c, m);
}

void tutti__history_host(tutti__history *c, tutti__history_agent *a, const tutti__roster *list)
{
    tutti__history_trace(c, tutti__history_node_of(c, a), list ? "takes over" : "hosts");
    a->hosts = true;
    if (!list)
        a->job = ++c->last_job;
    tutti__rounds_init(
        &a->rounds, c->now,
        &(tutti__rounds_opts){.min = c->min,
                              .max = c->max,
                              .native = true,
                              .max_restarts = c->max_restarts,
                              .join_timeout_s = TUTTI__HISTORY_JOIN_TIMEOUT_MS * 1e-3,
                              .last_call_s = 0.5,
                              .keep_alive_s = TUTTI__HISTORY_KEEP_ALIVE_MS * 1e-3,
                              .settle_ms = 200,
                              .after = a->last_generation,
                              .roster = list,
                              .act = act,
                              .context = c});
    a->main = tutti__history_connect_to(c, a, tutti__history_node_of(c, a));
}

void tutti__history_unhost(tutti__history *c, tutti__history_agent *a)
{
    if (!a->hosts)
        return;
    for (tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++)
        if (x->host_open && x->known && x->host_process == a->process) {
            x->known = false;
            tutti__history_close_host_end(c, x, true, "");
        }
    if (a->rounds.generations.last > a->last_generation)
        a->last_generation = a->rounds.generations.last;
    tutti__rounds_free(&a->rounds);
    a->hosts = false;
}

static void on_join(tutti__history *c, tutti__history_connection *x,
                    const tutti__history_message *m)
{
    tutti__history_agent *h = &c->a[x->host];
    tutti__join join = {.local = x->agent == x->host,
                        .workers = c->local,
                        .port = 1,
                        .wanted_rank = -1,
                        .listens = m->listens,
                        .pid = x->agent_process,
                        .rounds = m->rounds,
                        .restarts = m->restarts,
                        .n_nodes = m->n_nodes,
                        .running = m->running,
                        .group_rank = m->group_rank,
                        .first_rank = m->first_rank,
                        .id = m->node_id,
                        .is_of_this_job = m->job == h->job,
                        .roster = m->list};

    snprintf(join.host, sizeof join.host, "n%d", x->agent);
    snprintf(join.listens_at, sizeof join.listens_at, "%d", x->agent);
    (void)tutti__rounds_joined(&h->rounds, c->now, &x->node, &join);
}

static void on_said(tutti__history *c, tutti__generations *g, tutti__worker_id id,
                    const tutti__history_message *m)
{
    c->said.kind = m->said;
    c->said.generation = m->generation;
    c->said.step = m->step;
    c->said.n_lost = m->lost >= 0;
    c->said.lost[0] = m->lost;
    tutti__generations_said(g, c->now, id, &c->said);
}

void tutti__history_hear_node(tutti__history *c, tutti__history_connection *x,
                              const tutti__history_message *m)
{
    tutti__history_agent *h = &c->a[x->host];
    tutti__rounds *r = &h->rounds;
    tutti__round_node *n = &x->node;
    tutti__generations *g;
    tutti__worker_id id = m->id;

    if (!x->known)
        tutti__rounds_connected(r, c->now, n);
    x->known = true;
    if (m->kind == TUTTI__HISTORY_JOIN)
        on_join(c, x, m);
    if (m->kind == TUTTI__HISTORY_APART)
        tutti__rounds_apart(n);
    if (!n->joined || m->kind == TUTTI__HISTORY_JOIN)
        return;
    g = tutti__rounds_workers(r, c->now, n, m->number);
    id.node = n->id;
    if (m->kind == TUTTI__HISTORY_FAILED)
        tutti__rounds_failed(r, c->now, n, m->number, m->code, false, "a worker failed");
    else if (m->kind == TUTTI__HISTORY_OVER)
        tutti__rounds_over(r, c->now, n, m->number, 1);
    else if (m->kind == TUTTI__HISTORY_LEAVE)
        tutti__rounds_leaves(r, c->now, n, false, 143, "SIGTERM");
    else if (m->kind == TUTTI__HISTORY_HERE)
        tutti__rounds_here(r, c->now, n);
    else if (m->kind == TUTTI__HISTORY_ACKED)
        tutti__rounds_acked(n, m->version);
    else if (g && m->kind == TUTTI__HISTORY_SAID)
        on_said(c, g, id, m);
    else if (g && m->kind == TUTTI__HISTORY_EXITED)
        tutti__generations_ended(g, c->now, id, m->code, m->rank);
    else if (g && m->kind == TUTTI__HISTORY_RESUMED)
        tutti__generations_resumed(g, c->now, id, m->generation, m->rank, m->version);
}

void tutti__history_answer(tutti__history *c, tutti__history_connection *x,
                           const tutti__history_message *m)
{
    const tutti__history_agent *h = &c->a[x->host];
    const tutti__roster *r = &h->succession.roster;
    const bool knows = h->main && r->n > 0;
    tutti__history_message *m2;

    if (m->kind != TUTTI__HISTORY_JOIN)
        return;
    m2 = tutti__history_new_message(c, TUTTI__HISTORY_ACTION);
    m2->action.act = TUTTI__ROUND_REDIRECT;
    m2->term = knows ? r->term : 0;
    m2->port = knows ? r->list[0].port : 0;
    m2->rank = knows ? atoi(r->list[0].address) : 0;
    tutti__history_put(c, x, &x->down, m2);
}
