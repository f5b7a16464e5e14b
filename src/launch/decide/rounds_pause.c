/* rounds_pause.c -- the list of the nodes of an elastic round, which of them may continue when others are cut off, and the round
 * under a coordinator that succeeds another.   SPDX-License-Identifier: MIT */
#include "launch/decide/rounds_parts.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_LINE_MS = 1000 };

/* ---- Who is there ------------------------------------------------------------------------------------------- */

static bool is_here(void *context, int id)
{
    const tutti__round_node *n = tutti__round_find(context, id);

    return n && n->here;
}

static int count_here(const tutti__rounds *r)
{
    int count = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        count += n->in_round && n->here;
    return count;
}

static tutti__round_node *local_node(const tutti__rounds *r)
{
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->says.local && n->in_round)
            return n;
    return NULL;
}

void tutti__rounds_is_dead(tutti__rounds *r, int id)
{
    tutti__roster *lists[] = {&r->roster, &r->confirmed};

    for (int i = 0; i < 2; i++) {
        tutti__roster_node *entry = tutti__roster_find(lists[i], id);

        if (entry)
            entry->dead = true;
    }
    r->recount = true;
}

const tutti__roster_node *tutti__rounds_missing(const tutti__rounds *r, int *at_p)
{
    for (; *at_p < r->roster.n + r->confirmed.n; ++*at_p) {
        const bool newest = *at_p < r->roster.n;
        const tutti__roster_node *node =
            newest ? &r->roster.list[*at_p] : &r->confirmed.list[*at_p - r->roster.n];

        if (!node->dead && node->port > 0 && !tutti__round_find(r, node->id) &&
            (newest || tutti__roster_index(&r->roster, node->id) < 0))
            return node;
    }
    return NULL;
}

const tutti__roster *tutti__rounds_successor(const tutti__rounds *r)
{
    return r->state == TUTTI__ROUNDS_RUNNING && !r->paused && r->roster.term > 1 && r->roster.n > 0
               ? &r->roster
               : NULL;
}

/* ---- Pausing ------------------------------------------------------------------------------------------------ */

void tutti__round_hold(tutti__rounds *r, double seconds)
{
    r->generations.hold_ms = r->now + (uint64_t)(seconds * 1e3);
}

void tutti__round_succeed(tutti__rounds *r)
{
    tutti__roster_copy(&r->roster, r->opts.roster);
    r->succeeds = r->paused = r->recount = true;
    r->paused_since = r->now;
    r->until = r->now + 2 * tutti__round_ms(r->opts.keep_alive_s, 5);
    r->next_line = r->now + FIRST_LINE_MS;
    for (int i = 0; i < r->roster.n; i++)
        if (r->roster.list[i].id > r->last_id)
            r->last_id = r->roster.list[i].id;
}

static void tell_succession(tutti__rounds *r)
{
    const tutti__round_node *n = local_node(r);
    const bool is_ipv6 = n && strchr(n->says.listens_at, ':');

    if (n)
        tutti__round_say(
            r,
            "this node coordinates the job from now on (term %lld), with %d of %d nodes; nodes "
            "that come now find it by --rdzv-endpoint %s%s%s:%d",
            (long long)r->roster.term, count_here(r), r->roster.n, is_ipv6 ? "[" : "",
            n->says.listens_at, is_ipv6 ? "]" : "", n->says.listens);
}

static void confirm(tutti__rounds *r)
{
    if (r->confirmed.term == r->roster.term && r->confirmed.version == r->roster.version)
        return;
    tutti__roster_copy(&r->confirmed, &r->roster);
    r->recount = true;
}

/* The node of this coordinator knows of the term from its beginning, with the list that it succeeded by: should it give up its role, a coordinator
 * of an earlier term does not take it back, and it does not continue with fewer than that list asks for. */
static void tell_term(tutti__rounds *r)
{
    tutti__round_node *n = local_node(r);

    if (n)
        tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_LIST, .node = n});
}

static void go_on(tutti__rounds *r)
{
    double silent_s =
        tutti__roster_all_here(&r->roster, is_here, r) ? 0 : tutti__or(r->opts.keep_alive_s, 5);

    r->paused = false;
    if (r->succeeds) {
        r->succeeds = false;
        for (int i = 0; i < r->roster.n; i++)
            if (!is_here(r, r->roster.list[i].id))
                r->generations.deaths += r->roster.list[i].workers;
        confirm(r);
        r->roster.term++;
        r->roster.version = r->least_version = 0;
        r->list_changed = true;
        tell_term(r);
        tell_succession(r);
    } else {
        tutti__round_say(r, "%d of %d nodes are back: the job continues", count_here(r),
                         r->roster.n);
    }
    /* A silent node may still be working with the state, until it notices the loss of this one too. */
    tutti__round_hold(r, silent_s);
    tutti__generations_pause(&r->generations, r->now, false);
}

bool tutti__round_may_continue(tutti__rounds *r)
{
    if (r->recount)
        r->suffices = tutti__roster_suffices(&r->roster, is_here, r) &&
                      tutti__roster_suffices(&r->confirmed, is_here, r);
    r->recount = false;
    return !r->replaced && r->suffices;
}

static void tell_pause(tutti__rounds *r)
{
    tutti__round_say(
        r,
        "only %d of %d nodes are connected, and the others may continue without this node: waiting",
        count_here(r), r->confirmed.n > r->roster.n ? r->confirmed.n : r->roster.n);
    r->next_line = r->now + TUTTI__ROUNDS_REPEAT_MS;
}

void tutti__round_consider_pause(tutti__rounds *r)
{
    bool may = tutti__round_may_continue(r);

    if (!may && !r->paused) {
        r->paused = true;
        r->paused_since = r->now;
        r->until = 0;
        tell_pause(r);
        tutti__generations_pause(&r->generations, r->now, true);
    } else if (may && r->paused &&
               (r->now >= r->until || tutti__roster_all_here(&r->roster, is_here, r))) {
        go_on(r);
    } else if (r->paused && r->now >= r->next_line) {
        tell_pause(r);
    }
}

/* If too few are left to continue, nothing may begin without its workers; else nothing may begin with them. */
void tutti__round_continue_without(tutti__rounds *r, int id)
{
    if (!tutti__round_may_continue(r))
        tutti__round_consider_pause(r);
    tutti__generations_node_lost(&r->generations, r->now, id);
}

void tutti__round_consider_giving_up(tutti__rounds *r)
{
    const double limit_s = tutti__or(r->opts.join_timeout_s, 600);

    if (!r->paused || r->now < tutti__round_limit(r))
        return;
    snprintf(r->why, sizeof r->why,
             "timed out after %g s waiting for nodes that may have continued without this one: are "
             "they cut off, or their machines down? (--rdzv-conf join_timeout=%g)",
             limit_s, limit_s);
    tutti__round_end_job(r, 3);
}

/* ---- Nodes that do not reach each other --------------------------------------------------------------------- */

/* Until it ends it counts as one that is missing: it may be cut off before it is told, and be one of those who continue without
 * this coordinator. */
void tutti__round_exclude(tutti__rounds *r)
{
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->in_round && n->excluded) {
            tutti__round_say(r, "%s", n->misfit);
            tutti__round_do(r,
                            &(tutti__round_action){
                                .act = TUTTI__ROUND_END, .node = n, .code = 3, .why = n->misfit});
            n->joined = n->in_round = false;
            n->refused = r->list_changed = r->recount = true;
            tutti__round_continue_without(r, n->id);
        }
}

/* ---- The list ----------------------------------------------------------------------------------------------- */

static int by_joining(const void *a, const void *b)
{
    const tutti__roster_node *x = a, *y = b;

    return x->first != y->first ? (x->first ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* This node first, then in the order of joining. */
static void make_list(tutti__rounds *r)
{
    tutti__roster *l = &r->roster;
    const bool fits = count_here(r) <= TUTTI__ROSTER_MAX;

    l->version = (r->least_version > l->version ? r->least_version : l->version) + 1;
    l->n = 0;
    for (tutti__round_node *o = r->nodes; o; o = o->next) {
        tutti__roster_node *entry = &l->list[l->n];

        if (!o->in_round || !o->here)
            continue;
        o->listed = l->version;
        if (!fits)
            continue;
        *entry = (tutti__roster_node){.id = o->id,
                                      .workers = o->says.workers,
                                      .port = o->says.listens,
                                      .first = o->says.local};
        snprintf(entry->address, sizeof entry->address, "%s", o->says.listens_at);
        l->n++;
    }
    qsort(l->list, (size_t)l->n, sizeof *l->list, by_joining);
    if (!tutti__roster_fits(l))
        l->n = 0;
    r->list_changed = false;
    r->recount = true;
}

void tutti__rounds_acked(tutti__round_node *n, int64_t version)
{
    n->acked = version;
}

/* Nodes in the order in which they get a list. */
typedef enum turn { MEMBERS /* that have confirmed one before */, NEWCOMERS, LOCAL } turn;

static turn turn_of(const tutti__round_node *n)
{
    return n->says.local ? LOCAL : n->acked > 0 ? MEMBERS : NEWCOMERS;
}

/* Whether the nodes that get the list, up to those of a turn, have confirmed it. What a lost one knows does not matter as long as the connected
 * ones suffice in the list before. */
static bool is_known(const tutti__rounds *r, turn last)
{
    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->in_round && n->listed == r->roster.version && n->acked < r->roster.version &&
            turn_of(n) <= last)
            return false;
    return true;
}

void tutti__round_note_list(tutti__rounds *r, tutti__round_node *n, const tutti__roster *theirs)
{
    const bool of_this_term = theirs && theirs->term == r->roster.term;

    if (!theirs || r->succeeds)
        return;
    if (of_this_term && theirs->version > r->least_version)
        r->least_version = theirs->version;
    if ((of_this_term && theirs->version > r->roster.version) ||
        (tutti__roster_index(&r->roster, n->id) < 0 &&
         tutti__roster_index(&r->confirmed, n->id) < 0))
        return;
    n->listed = r->roster.version;
    n->acked = n->sent = of_this_term ? theirs->version : 0;
}

/* There is one list under way at a time: of those that a lost node may have, which the connected ones must suffice in, there are
 * two. A new node gets the list after the others know of it, so that it cannot outvote them before. This node is the last, so that it
 * does not begin with a list that others lack if it gives up its role and succeeds its successor. */
void tutti__round_spread_list(tutti__rounds *r)
{
    if (r->opts.max <= 1 || r->paused || !tutti__round_may_continue(r))
        return;
    if (is_known(r, LOCAL)) {
        confirm(r);
        if (r->list_changed)
            make_list(r);
    }
    for (turn t = MEMBERS; t <= LOCAL && (t == MEMBERS || is_known(r, t - 1)); t++)
        for (tutti__round_node *n = r->nodes; n; n = n->next) {
            if (!n->in_round || n->listed != r->roster.version || n->sent >= r->roster.version ||
                turn_of(n) != t)
                continue;
            n->sent = r->roster.version;
            tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_LIST, .node = n});
        }
}

/* ---- Nodes from, or for, another coordinator ---------------------------------------------------- */

/* What a node that comes back knows of this one's successor. True: its coordinator is to be found elsewhere. */
static bool is_followed(tutti__rounds *r, const tutti__round_node *n, const tutti__roster *theirs)
{
    const tutti__round_node *local = local_node(r);

    r->recount = true;
    if (theirs->term > r->roster.term && !r->succeeds) {
        r->replaced = true;
        tutti__roster_copy(
            &r->confirmed,
            theirs); /* one of these coordinates: they are asked, and accept this node */
        return true;
    }
    if (r->succeeds && tutti__roster_is_newer(theirs, &r->roster))
        tutti__roster_copy(&r->roster, theirs);
    return r->paused && local && tutti__roster_index(&r->roster, n->says.id) >= 0 &&
           tutti__roster_precedes(&r->roster, n->says.id, local->id);
}

bool tutti__round_redirects(tutti__rounds *r, tutti__round_node *n, const tutti__roster *theirs)
{
    bool unrelated;

    if (n->says.local || !theirs)
        return false;
    unrelated = !r->succeeds && (!r->began || !n->says.is_of_this_job);
    if (!unrelated && !is_followed(r, n, theirs))
        return false;
    tutti__round_do(
        r, &(tutti__round_action){
               .act = TUTTI__ROUND_REDIRECT, .node = n, .address = "", .unrelated = unrelated});
    return true;
}

void tutti__rounds_moved(tutti__rounds *r, const char *address, int port)
{
    for (tutti__round_node *n = r->nodes; !r->began && n; n = n->next)
        if (n->joined)
            tutti__round_do(
                r, &(tutti__round_action){
                       .act = TUTTI__ROUND_REDIRECT, .node = n, .address = address, .port = port});
}
