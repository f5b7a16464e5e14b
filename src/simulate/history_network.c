/* history_network.c -- the network of a simulated job: connections, and the messages on them.   SPDX-License-Identifier: MIT */
#include "simulate/chance.h"
#include "simulate/history_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Chance, and what went wrong ----------------------------------------------------------------------------------- */
uint64_t tutti__history_chance(tutti__history *c, uint64_t n)
{
    return tutti__chance_next(&c->random) % n;
}

void tutti__history_broken(tutti__history *c, const char *what, int node)
{
    if (!c->broken)
        snprintf(c->what, sizeof c->what, "at %llu ms, node %d: %s", (unsigned long long)c->now,
                 node, what);
    c->broken = c->what;
}

void tutti__history_trace(const tutti__history *c, int node, const char *format, ...)
{
    va_list args;

    if (!c->opts.events)
        return;
    fprintf(c->opts.events, "%6llu node %d: ", (unsigned long long)c->now, node);
    va_start(args, format);
    vfprintf(c->opts.events, format, args);
    va_end(args);
    fputc('\n', c->opts.events);
}

void tutti__history_set_cut(tutti__history *c, int i, int k, bool cut)
{
    if (i == k || c->cut[i][k] == cut)
        return;
    c->cut[i][k] = c->cut[k][i] = cut;
    c->cut_at[i][k] = c->cut_at[k][i] = c->now;
}

/* ---- Messages ------------------------------------------------------------------------------------------------------ */
tutti__history_message *tutti__history_new_message(tutti__history *c, tutti__history_kind what)
{
    tutti__history_message *m = c->spare;

    if (m)
        c->spare = m->next;
    else
        m = malloc(sizeof *m);
    if (!m) {
        c->no_memory = true;
        m = &c->lost;
    }
    memset(m, 0, sizeof *m);
    m->kind = what;
    m->lost = -1;
    c->n_messages++;
    return m;
}

void tutti__history_drop(tutti__history *c, tutti__history_message *m)
{
    free(m->list);
    m->list = NULL;
    if (m == &c->lost)
        return;
    m->next = c->spare;
    c->spare = m;
}

void tutti__history_drop_all(tutti__history *c, tutti__history_pipe *p)
{
    while (p->first) {
        tutti__history_message *m = p->first;

        p->first = m->next;
        tutti__history_drop(c, m);
    }
    p->end = &p->first;
}

void tutti__history_put(tutti__history *c, const tutti__history_connection *x,
                        tutti__history_pipe *p, tutti__history_message *m)
{
    const int slow_ms = c->slow_ms[x->agent][x->host];

    if (m == &c->lost) {
        tutti__history_drop(c, m);
        return;
    }
    if (x->host != x->agent)
        m->at = 1 + tutti__history_chance(c, 3) +
                (slow_ms > 0 ? tutti__history_chance(c, (uint64_t)slow_ms) : 0);
    m->at += c->now;
    *p->end = m;
    p->end = &m->next;
}

tutti__roster *tutti__history_copy_list(tutti__history *c, const tutti__roster *r)
{
    tutti__roster *copy =
        malloc(offsetof(tutti__roster, list) + (size_t)(r->n + 1) * sizeof *r->list);

    if (copy)
        tutti__roster_copy(copy, r);
    else
        c->no_memory = true;
    return copy;
}

void tutti__history_send_up(tutti__history *c, tutti__history_agent *a, tutti__history_message *m)
{
    if (a->main)
        tutti__history_put(c, a->main, &a->main->up, m);
    else
        tutti__history_drop(c, m);
}

/* ---- Connections --------------------------------------------------------------------------------------------------- */
tutti__history_connection *tutti__history_connect_to(tutti__history *c,
                                                     const tutti__history_agent *a, int host)
{
    tutti__history_connection *x = c->pool;

    while (x < c->pool + c->n_pool && (x->agent_open || x->host_open))
        x++;
    if (x == c->pool + TUTTI__HISTORY_CONNECTIONS) {
        tutti__history_broken(c, "the model has too few connections", host);
        x--;
    }
    if (x == c->pool + c->n_pool)
        c->n_pool++;
    tutti__history_drop_all(c, &x->up);
    tutti__history_drop_all(c, &x->down);
    memset(x, 0, sizeof *x);
    x->up.end = &x->up.first;
    x->down.end = &x->down.first;
    x->agent_open = x->host_open = true;
    x->agent = tutti__history_node_of(c, a);
    x->host = host;
    x->agent_process = a->process;
    x->host_process = c->a[host].process;
    x->agent_ms = TUTTI__HISTORY_LOST_MS + tutti__history_chance(c, TUTTI__HISTORY_KEEP_ALIVE_MS);
    x->host_ms = TUTTI__HISTORY_LOST_MS + tutti__history_chance(c, TUTTI__HISTORY_KEEP_ALIVE_MS);
    return x;
}

void tutti__history_close_host_end(tutti__history *c, tutti__history_connection *x, bool ended,
                                   const char *why)
{
    tutti__history_agent *h = &c->a[x->host];

    if (!x->host_open)
        return;
    x->host_open = false;
    if (x->known && h->hosts && h->process == x->host_process)
        tutti__rounds_lost(&h->rounds, c->now, &x->node, ended, why);
    x->known = false;
    tutti__history_put(c, x, &x->down, tutti__history_new_message(c, TUTTI__HISTORY_CLOSED));
}

void tutti__history_hang_up(tutti__history *c, tutti__history_connection *x)
{
    if (x && x->agent_open)
        tutti__history_put(c, x, &x->up, tutti__history_new_message(c, TUTTI__HISTORY_APART));
    tutti__history_close_agent_end(c, x);
}

void tutti__history_close_agent_end(tutti__history *c, tutti__history_connection *x)
{
    if (!x || !x->agent_open)
        return;
    x->agent_open = false;
    tutti__history_put(c, x, &x->up, tutti__history_new_message(c, TUTTI__HISTORY_CLOSED));
}

/* ---- The network --------------------------------------------------------------------------------------------------- */
static void deliver_up(tutti__history *c, tutti__history_connection *x, tutti__history_message *m)
{
    tutti__history_agent *h = &c->a[x->host];

    if (!x->host_open)
        return;
    if (m->kind == TUTTI__HISTORY_CLOSED)
        tutti__history_close_host_end(c, x, true, "the connection was lost");
    else if (h->hosts)
        tutti__history_hear_node(c, x, m);
    else
        tutti__history_answer(c, x, m);
    if (h->hosts) {
        tutti__rounds_tick(&h->rounds, c->now);
        h->tick_at = tutti__rounds_deadline(&h->rounds);
    }
}

static void deliver_down(tutti__history *c, tutti__history_connection *x, tutti__history_message *m)
{
    tutti__history_agent *a = &c->a[x->agent];

    if (!x->agent_open)
        return;
    if (x == a->dial)
        tutti__history_on_answer(c, a, x, m);
    else if (x != a->main)
        tutti__history_close_agent_end(c, x);
    else if (m->kind == TUTTI__HISTORY_CLOSED)
        tutti__history_on_lost(c, a, true);
    else if (m->action.act == TUTTI__ROUND_REDIRECT)
        tutti__history_on_redirect(c, a);
    else
        tutti__history_obey(c, a, m);
}

static void run_pipe(tutti__history *c, tutti__history_connection *x, tutti__history_pipe *p,
                     void (*deliver)(tutti__history *, tutti__history_connection *,
                                     tutti__history_message *))
{
    while (p->first && p->first->at <= c->now && tutti__history_reach(c, x->agent, x->host)) {
        tutti__history_message *m = p->first;

        p->first = m->next;
        if (!p->first)
            p->end = &p->first;
        deliver(c, x, m);
        tutti__history_drop(c, m);
    }
}

static void note_due(tutti__history *c, const tutti__history_connection *x)
{
    const tutti__history_message *up = x->up.first, *down = x->down.first;

    if (!x->agent_open && !x->host_open)
        return;
    if (!tutti__history_reach(c, x->agent, x->host)) {
        if (x->agent_open && x == c->a[x->agent].main)
            tutti__history_due(c, x->silent_since + x->agent_ms);
        if (x->host_open)
            tutti__history_due(c, x->silent_since + x->host_ms);
        return;
    }
    if (up)
        tutti__history_due(c, up->at);
    if (down)
        tutti__history_due(c, down->at);
}

static void advance_silence(tutti__history *c, tutti__history_connection *x)
{
    tutti__history_agent *a = &c->a[x->agent];

    if (tutti__history_reach(c, x->agent, x->host)) {
        x->silent_since = 0;
        return;
    }
    if (x->silent_since == 0)
        x->silent_since = c->now;
    if (x->agent_open && x == a->main && c->now >= x->silent_since + x->agent_ms) {
        tutti__history_put(c, x, &x->up, tutti__history_new_message(c, TUTTI__HISTORY_APART));
        tutti__history_on_lost(c, a, false);
    }
    if (x->host_open && c->now >= x->silent_since + x->host_ms) {
        tutti__history_agent *h = &c->a[x->host];

        tutti__history_close_host_end(c, x, false, "it was silent");
        if (h->alive && h->hosts)
            h->tick_at = c->now;
    }
}

void tutti__history_advance_network(tutti__history *c)
{
    for (tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++) {
        if (!x->agent_open && !x->host_open)
            continue;
        run_pipe(c, x, &x->up, deliver_up);
        run_pipe(c, x, &x->down, deliver_down);
        if (x->agent != x->host)
            advance_silence(c, x);
    }
}

void tutti__history_network_due(tutti__history *c)
{
    for (const tutti__history_connection *x = c->pool; x < c->pool + c->n_pool; x++)
        note_due(c, x);
}
