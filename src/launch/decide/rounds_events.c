/* rounds_events.c -- events of a job's rounds: nodes that join, leave, fail and are lost.   SPDX-License-Identifier: MIT */
#include "launch/decide/rounds_parts.h"

enum {
    /* to wait for nodes that lost their coordinator, before a job starts from the beginning */
    HOLD_S = 5
};

void tutti__rounds_connected(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n)
{
    r->now = now_ms;
    n->group_rank = -1;
    n->says.wanted_rank = -1;
    if (r->newest)
        r->newest->next = n;
    else
        r->nodes = n;
    r->newest = n;
}

void tutti__rounds_refuse(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n, const char *why)
{
    char name[128];

    r->now = now_ms;
    if (!n->says.local)
        tutti__round_say(r, "node %s is refused: %s", tutti__node_name(n, name), why);
    n->refused = true;
    n->joined = false;
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_REFUSE, .node = n, .why = why});
    if (n->says.local)
        tutti__round_end_job(r, 2);
}

/* ---- Joining ------------------------------------------------------------------------------------------------ */

/* A restarted rendezvous host learns the job's progress from the other nodes. */
static void learn(tutti__rounds *r, const tutti__join *says)
{
    r->restarts = says->restarts > r->restarts ? says->restarts : r->restarts;
    if (says->n_nodes > 1)
        r->survivors = says->n_nodes - 1;
}

/* This coordinator's first round is one that the nodes are in. */
static void resume_round(tutti__rounds *r, const tutti__round_node *n)
{
    r->began = true;
    r->state = TUTTI__ROUNDS_RUNNING;
    snprintf(r->master_addr, sizeof r->master_addr, "%s", n->says.address);
    r->master_port = n->says.port;
    r->committed |= r->succeeds;
    tutti__round_renew(r, n->says.rounds - 1);
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_FENCE, .number = r->number});
    r->inherited = r->succeeds;
    r->announced = r->generations.elastic = true;
    r->generations.paused = r->paused;
    tutti__round_hold(r, HOLD_S);
}

/* It has workers of an elastic round, and has lost its connection or its coordinator. list: of nodes, that it has. Without
 * one, which it got no more, it does not know whether others continue: it may find them if it begins again. */
static void resume(tutti__rounds *r, tutti__round_node *n, const tutti__roster *list)
{
    if (!r->began && (list || r->succeeds || n->says.n_nodes > TUTTI__ROSTER_MAX))
        resume_round(r, n);
    if (r->state != TUTTI__ROUNDS_RUNNING || r->number != n->says.rounds - 1 ||
        !tutti__rounds_is_elastic(r)) {
        n->busy = true;
        tutti__round_do(r,
                        &(tutti__round_action){.act = TUTTI__ROUND_STOP,
                                               .node = n,
                                               .number = n->says.rounds - 1,
                                               .why = "the job has continued without this node"});
        return;
    }
    n->group_rank = n->says.group_rank;
    n->first_rank = n->says.first_rank;
    n->id = n->says.id;
    r->last_id = n->id > r->last_id ? n->id : r->last_id;
    tutti__round_enter(r, n);
    tutti__round_note_list(r, n, list);
    n->here = false;
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_WELCOME, .node = n});
    if (r->survivors > 0 && tutti__round_count(r) >= r->survivors)
        tutti__round_hold(r, 0);
}

bool tutti__rounds_joined(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n,
                          const tutti__join *says)
{
    r->now = now_ms;
    n->says = *says;
    n->says.roster = NULL;
    n->says.misfit = NULL;
    if (r->state == TUTTI__ROUNDS_ENDED) {
        n->joined = true;
        tutti__round_tell_end(r, n);
        return true;
    }
    if (says->running && tutti__round_redirects(r, n, says->roster))
        return true;
    if (says->misfit) {
        tutti__rounds_refuse(r, now_ms, n, says->misfit);
        return true;
    }
    if (tutti__rounds_holder(r, n))
        return false;
    n->joined = true;
    if (!r->began)
        learn(r, says);
    if (says->running)
        resume(r, n, says->roster);
    return true;
}

void tutti__rounds_here(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n)
{
    r->now = now_ms;
    n->here = r->list_changed = r->recount = true;
}

/* ---- Leaving ------------------------------------------------------------------------------------------------ */

/* Says that the round continues with fewer nodes than requested. */
static void tell_of_min(tutti__rounds *r)
{
    int left = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        left += n->in_round && !n->left;
    if (left > 0 && left < r->opts.min)
        tutti__round_say(r, "%d node%s left, fewer than --nnodes asks for (%d)", left,
                         left == 1 ? " is" : "s are", r->opts.min);
}

static void forget(tutti__rounds *r, tutti__round_node *n)
{
    tutti__round_node **at = &r->nodes, *before = NULL;

    tutti__round_unhash(r, n);
    while (*at && *at != n) {
        before = *at;
        at = &before->next;
    }
    if (!*at)
        return;
    *at = n->next;
    r->newest = r->newest == n ? before : r->newest;
}

static void lose_elastic(tutti__rounds *r, const tutti__round_node *n, const char *why)
{
    char name[128];

    r->list_changed = r->recount = true;
    if (!n->left && !n->over)
        tutti__round_say(r, "node %s was lost with %d worker%s: %s%s", tutti__node_name(n, name),
                         n->says.workers, n->says.workers == 1 ? "" : "s",
                         n->apart ? "it no longer hears from this node" : why,
                         tutti__round_may_continue(r) ? "; the others continue" : "");
    tell_of_min(r);
    tutti__round_continue_without(r, n->id);
}

void tutti__rounds_lost(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n, bool ended,
                        const char *why)
{
    const bool was_in = n->in_round, was_running = n->in_round && !n->over;
    char text[512], name[128];

    r->now = now_ms;
    n->joined = n->in_round = false;
    forget(r, n);
    if (ended && !n->apart && (was_in || n->excluded))
        tutti__rounds_is_dead(r, n->id);
    if (was_in && r->state == TUTTI__ROUNDS_RUNNING && tutti__rounds_is_elastic(r)) {
        lose_elastic(r, n, why);
        return;
    }
    if (!was_running || (r->state != TUTTI__ROUNDS_RUNNING && r->state != TUTTI__ROUNDS_STOPPING))
        return;
    if (n->left) {
        if (r->state == TUTTI__ROUNDS_RUNNING) {
            snprintf(r->why, sizeof r->why, "node %s left", tutti__node_name(n, name));
            tutti__round_stop(r, false);
        }
        return;
    }
    snprintf(text, sizeof text, "node %s was lost: %s", tutti__node_name(n, name), why);
    tutti__round_note_failure(r, NULL, 3, text);
}

/* Its workers leave after the current step, without a restart. False: no others are left to continue. */
static bool leave_elastic(tutti__rounds *r, const tutti__round_node *n, const char *why)
{
    const tutti__generations *g = &r->generations;
    char name[128];

    if (tutti__generations_living(g, -1) == tutti__generations_living(g, n->id))
        return false;
    tutti__round_say(r, "node %s leaves: %s; the others continue", tutti__node_name(n, name), why);
    tell_of_min(r);
    tutti__generations_node_leaves(&r->generations, r->now, n->id);
    return true;
}

void tutti__rounds_leaves(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n, bool final,
                          int code, const char *why)
{
    const bool may_return = r->restarts < r->opts.max_restarts,
               in_round = n->in_round && r->state == TUTTI__ROUNDS_RUNNING;
    int others = -1;
    bool ends;
    char name[128];

    r->now = now_ms;
    n->left = true;
    for (const tutti__round_node *o = r->nodes; o; o = o->next)
        others += o->joined && (o == n || !o->left);
    if (r->state == TUTTI__ROUNDS_ENDED)
        return;
    if (!final && in_round && tutti__rounds_is_elastic(r) && leave_elastic(r, n, why))
        return;
    if (n->says.local && others > 0 && may_return && !final) {
        r->retired = true;
        if (n->in_round && !n->over)
            tutti__round_do(
                r, &(tutti__round_action){
                       .act = TUTTI__ROUND_STOP, .node = n, .number = r->number, .why = ""});
        return;
    }
    ends = n->says.local || final || (others < r->opts.min && !may_return);
    if (ends || r->state == TUTTI__ROUNDS_RUNNING) /* else the round was already being stopped */
        snprintf(r->why, sizeof r->why, "node %s ends: %s", tutti__node_name(n, name), why);
    if (ends) {
        tutti__round_end_job(r, code);
    } else if (in_round) {
        r->restarts += others < r->opts.min;
        tutti__round_stop(r, false);
    } else if (r->state == TUTTI__ROUNDS_GATHERING) {
        n->joined = false;
    }
}

void tutti__rounds_apart(tutti__round_node *n)
{
    n->apart = true;
}

/* ---- Of a round --------------------------------------------------------------------------------------------- */

static bool is_current(const tutti__rounds *r, const tutti__round_node *n, int number)
{
    return n->joined && n->in_round && number == r->number;
}

void tutti__rounds_failed(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n, int number,
                          int code, bool permanent, const char *why)
{
    r->now = now_ms;
    if (!is_current(r, n, number) || (r->state == TUTTI__ROUNDS_STOPPING && !r->failing))
        return; /* workers of nodes that stop in order may lose faster peers */
    r->permanent = r->permanent || permanent;
    n->failed |= code != 3;
    tutti__round_note_failure(r, n, code, why);
}

void tutti__rounds_over(tutti__rounds *r, uint64_t now_ms, tutti__round_node *n, int number,
                        int port)
{
    r->now = now_ms;
    if (n->busy) {
        n->busy = false;
    } else if (is_current(r, n, number)) {
        n->over = true;
        r->retired |= n->left && n->says.local;
        n->joined = !n->left;
        n->says.port = port;
        if (n->n_refused >= n->says.workers && r->state == TUTTI__ROUNDS_RUNNING)
            tutti__rounds_refuse(r, now_ms, n, n->misfit);
    }
}

tutti__generations *tutti__rounds_workers(tutti__rounds *r, uint64_t now_ms,
                                          const tutti__round_node *n, int number)
{
    r->now = now_ms;
    return is_current(r, n, number) && r->state == TUTTI__ROUNDS_RUNNING ? &r->generations : NULL;
}
