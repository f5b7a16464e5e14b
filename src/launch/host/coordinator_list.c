/* coordinator_list.c -- the coordinator's list of the nodes of an elastic round, and which of them may continue.
 * SPDX-License-Identifier: MIT */
#include "launch/host/coordinator_parts.h"
#include "launch/host/roster_message.h"

#include <string.h>

enum { FIRST_WORD_MS = 1000, LATER_WORD_MS = 30000 };

tutti__node *tutti__coordinator_find(const tutti__coordinator *c, int id)
{
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->in_round && n->id == id)
            return n;
    return NULL;
}

static bool is_here(void *context, int id)
{
    const tutti__node *n = tutti__coordinator_find(context, id);

    return n && n->here;
}

static int count_here(const tutti__coordinator *c)
{
    int count = 0;

    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        count += n->in_round && n->here;
    return count;
}

void tutti__coordinator_is_dead(tutti__coordinator *c, int id)
{
    tutti__roster *lists[] = {&c->roster, &c->base};

    for (int i = 0; i < 2; i++) {
        tutti__roster_node *entry = tutti__roster_find(lists[i], id);

        if (entry)
            entry->dead = true;
    }
}

void tutti__list_succeed(tutti__coordinator *c)
{
    c->roster = *c->opts.roster;
    c->succeeds = c->paused = true;
    c->paused_since = tutti__now_ms();
    c->until = tutti__now_ms() + 2e3 * tutti__or(limits(c)->keep_alive_s, 5);
    c->next_word = tutti__now_ms() + FIRST_WORD_MS;
    for (int i = 0; i < c->roster.n; i++)
        if (c->roster.list[i].id > c->last_id)
            c->last_id = c->roster.list[i].id;
}

static void tell_succession(tutti__coordinator *c)
{
    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->client.local)
            SAY(c,
                "this node coordinates the job from now on (term %lld), with %d of %d nodes; nodes "
                "that come now find it by --rdzv-endpoint %s%s%s:%d",
                (long long)c->roster.term, count_here(c), c->roster.n,
                strchr(n->listens_at, ':') ? "[" : "", n->listens_at,
                strchr(n->listens_at, ':') ? "]" : "", n->listens);
}

static void go_on(tutti__coordinator *c)
{
    double silent_s =
        tutti__roster_all_here(&c->roster, is_here, c) ? 0 : tutti__or(limits(c)->keep_alive_s, 5);

    c->paused = false;
    if (c->succeeds) {
        c->succeeds = false;
        for (int i = 0; i < c->roster.n; i++)
            if (!is_here(c, c->roster.list[i].id))
                c->elastic.generations.deaths += c->roster.list[i].workers;
        c->base = c->roster;
        c->roster.term++;
        c->roster.version = 0;
        c->list_changed = true;
        tell_succession(c);
    } else {
        SAY(c, "%d of %d nodes are back: the job continues", count_here(c), c->roster.n);
    }
    /* A silent node may still be working with the state, until it notices the loss of this one too. */
    tutti__elastic_round_hold(&c->elastic, silent_s);
    tutti__elastic_round_pause(&c->elastic, false);
}

bool tutti__list_may_go_on(tutti__coordinator *c)
{
    return !c->replaced && tutti__roster_suffices(&c->roster, is_here, c) &&
           tutti__roster_suffices(&c->base, is_here, c);
}

static void tell_pause(tutti__coordinator *c)
{
    SAY(c,
        "only %d of %d nodes are connected, and the others may continue without this node: waiting",
        count_here(c), c->base.n > c->roster.n ? c->base.n : c->roster.n);
    c->next_word = tutti__now_ms() + LATER_WORD_MS;
}

void tutti__list_consider_pause(tutti__coordinator *c)
{
    bool may = tutti__list_may_go_on(c);

    if (!may && !c->paused) {
        c->paused = true;
        c->paused_since = tutti__now_ms();
        c->until = 0;
        tell_pause(c);
        tutti__elastic_round_pause(&c->elastic, true);
    } else if (may && c->paused &&
               (tutti__now_ms() >= c->until || tutti__roster_all_here(&c->roster, is_here, c))) {
        go_on(c);
    } else if (c->paused && tutti__now_ms() >= c->next_word) {
        tell_pause(c);
    }
}

/* This node first, then in the order of joining. */
static void make_list(tutti__coordinator *c)
{
    tutti__roster *r = &c->roster;
    int n = count_here(c), at;

    r->version++;
    r->n = 0;
    for (const tutti__node *o = first_node(c); n <= TUTTI__ROSTER_MAX && o; o = next_node(o)) {
        if (!o->in_round || !o->here)
            continue;
        for (at = r->n++;
             at > 0 && !(r->list[at - 1].first) && (o->client.local || r->list[at - 1].id > o->id);
             at--)
            r->list[at] = r->list[at - 1];
        r->list[at] = (tutti__roster_node){
            .id = o->id, .workers = o->n, .port = o->listens, .first = o->client.local};
        snprintf(r->list[at].address, sizeof r->list[at].address, "%s", o->listens_at);
    }
    c->list_changed = false;
}

/* A new node gets the list after the others know of it, so that it cannot outvote them before. */
void tutti__list_spread(tutti__coordinator *c)
{
    bool known = true, known_to_all = true;

    if (limits(c)->max <= 1 || c->paused)
        return;
    if (c->list_changed)
        make_list(c);
    for (const tutti__node *n = first_node(c); n; n = next_node(n)) {
        bool knows = !n->in_round || !n->here || n->acked >= c->roster.version;

        known_to_all &= knows;
        known &= knows || n->acked == 0;
    }
    if (known_to_all)
        c->base = c->roster;
    for (tutti__node *n = first_node(c); n; n = next_node(n)) {
        json_t *m;

        if (!n->in_round || !n->here || n->told >= c->roster.version || (n->acked == 0 && !known))
            continue;
        n->told = c->roster.version;
        m = tutti__roster_write(&c->roster);
        json_object_set_new(m, "type", json_string("nodes"));
        json_object_set_new(m, "me", json_integer(n->id));
        json_object_set_new(m, "store", tutti__message_string(c->opts.job->store_address));
        send_to(c, n, m);
    }
}

/* ---- Nodes from, or for, another coordinator ---------------------------------------------------- */

/* `stranger`: this process was never part of the asker's job, so the process that listened here before is dead. */
void tutti__list_send_elsewhere(tutti__coordinator *c, tutti__node *n)
{
    send_to(c, n,
            json_pack("{s:s, s:I, s:b}", "type", "elsewhere", "term", (json_int_t)0, "stranger",
                      n->is_strangers));
}

bool tutti__list_gives_way(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    tutti__roster theirs;
    int me = -1, other;

    if (n->client.local || !tutti__roster_read(&theirs, json_object_get(m, "roster")))
        return false;
    for (const tutti__node *o = first_node(c); o; o = next_node(o))
        if (o->client.local && o->in_round)
            me = o->id;
    n->is_strangers =
        !c->succeeds && (!c->began || strcmp(tutti__message_text(m, "id"), c->opts.job->id) != 0);
    if (n->is_strangers)
        return true;
    if (theirs.term > c->roster.term && !c->succeeds) {
        c->replaced = true;
        c->base = theirs; /* one of these coordinates: they are asked, and accept this node */
        return true;
    }
    if (c->succeeds && tutti__roster_is_newer(&theirs, &c->roster))
        c->roster = theirs;
    other = tutti__roster_index(&c->roster, (int)tutti__message_number(m, "me", 0));
    return c->paused && other >= 0 && other < tutti__roster_index(&c->roster, me);
}

void tutti__list_on_moved(tutti__coordinator *c, const json_t *m)
{
    for (tutti__node *n = first_node(c); !c->began && n; n = next_node(n))
        if (n->joined)
            send_to(c, n,
                    json_pack("{s:s, s:o, s:I}", "type", "elsewhere", "address",
                              tutti__message_string(tutti__message_text(m, "address")), "port",
                              (json_int_t)tutti__message_number(m, "port", 0)));
}

bool tutti__coordinator_is_paused(const tutti__coordinator *c)
{
    return c->paused && c->state == RUNNING;
}

const tutti__roster_node *tutti__coordinator_missing(const tutti__coordinator *c, int *at_p)
{
    for (; *at_p < c->roster.n + c->base.n; ++*at_p) {
        bool newest = *at_p < c->roster.n;
        const tutti__roster_node *node =
            newest ? &c->roster.list[*at_p] : &c->base.list[*at_p - c->roster.n];

        if (!node->dead && node->port > 0 && !tutti__coordinator_find(c, node->id) &&
            (newest || tutti__roster_index(&c->roster, node->id) < 0))
            return node;
    }
    return NULL;
}

const tutti__roster *tutti__coordinator_successor(const tutti__coordinator *c)
{
    return c->state == RUNNING && !c->paused && c->roster.term > 1 && c->roster.n > 0 ? &c->roster
                                                                                      : NULL;
}
