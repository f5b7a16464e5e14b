/* rounds_actions.c -- what the rounds of a job do, at an event or a tick: the actions, and the changes of the table that go with them.
 * SPDX-License-Identifier: MIT */
#include "launch/decide/rounds_parts.h"

#include <stdarg.h>
#include <string.h>

/* ---- Nodes -------------------------------------------------------------------------------------------------- */

const char *tutti__node_name(const tutti__round_node *n, char text[128])
{
    snprintf(text, 128, "%.63s (process %lld)", n->says.host, (long long)n->says.pid);
    return text;
}

tutti__round_node *tutti__round_find(const tutti__rounds *r, int id)
{
    for (tutti__round_node *n = r->by_id[(unsigned)id % TUTTI__ROUNDS_HASH]; n; n = n->next_same)
        if (n->in_round && n->id == id)
            return n;
    return NULL;
}

void tutti__round_unhash(tutti__rounds *r, tutti__round_node *n)
{
    tutti__round_node **at = &r->by_id[(unsigned)n->hashed % TUTTI__ROUNDS_HASH];

    while (*at && *at != n)
        at = &(*at)->next_same;
    if (*at)
        *at = n->next_same;
    n->hashed = 0;
}

static void hash_id(tutti__rounds *r, tutti__round_node *n)
{
    tutti__round_node **head = &r->by_id[(unsigned)n->id % TUTTI__ROUNDS_HASH];

    tutti__round_unhash(r, n);
    n->next_same = *head;
    n->hashed = n->id;
    *head = n;
}

tutti__round_node *tutti__rounds_holder(const tutti__rounds *r, const tutti__round_node *node)
{
    const int rank = node->says.wanted_rank;

    for (tutti__round_node *n = rank >= 0 ? r->nodes : NULL; n; n = n->next)
        if (n != node && n->joined && n->says.wanted_rank == rank)
            return n;
    return NULL;
}

int tutti__round_count(const tutti__rounds *r)
{
    int count = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        count += n->in_round;
    return count;
}

/* ---- Messages ----------------------------------------------------------------------------------------------- */

void tutti__round_do(const tutti__rounds *r, const tutti__round_action *action)
{
    r->opts.act(r->opts.context, action);
}

void tutti__round_say(const tutti__rounds *r, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_SAY, .why = line});
}

void tutti__round_tell_end(tutti__rounds *r, tutti__round_node *n)
{
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_END,
                                              .node = n,
                                              .why = r->why,
                                              .code = r->code,
                                              .permanent = r->permanent});
}

void tutti__round_end_job(tutti__rounds *r, int code)
{
    r->state = TUTTI__ROUNDS_ENDED;
    r->code = code;
    r->since = r->now;
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->joined)
            tutti__round_tell_end(r, n);
}

void tutti__round_stop(tutti__rounds *r, bool failing)
{
    r->failing = failing;
    r->state = TUTTI__ROUNDS_STOPPING;
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->in_round && !n->over)
            tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_STOP,
                                                      .node = n,
                                                      .why = r->why,
                                                      .number = r->number,
                                                      .failing = failing});
}

void tutti__round_note_failure(tutti__rounds *r, tutti__round_node *node, int code, const char *why)
{
    if (r->state == TUTTI__ROUNDS_ENDED || (r->failing && (r->code != 3 || code == 3)))
        return;
    r->code = code;
    snprintf(r->why, sizeof r->why, "%s", why);
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        n->is_cause = n == node;
    if (r->state == TUTTI__ROUNDS_RUNNING)
        tutti__round_stop(r, true);
    r->failing = true;
}

/* ---- Workers ------------------------------------------------------------------------------------------------ */

/* The one that came later; but not the local one, without which the others would have no coordinator, nor the one that can reach
 * the rest, if the other cannot. */
static void note_pair(tutti__rounds *r, const tutti__action *a)
{
    tutti__round_node *n = tutti__round_find(r, a->id.node),
                      *other = tutti__round_find(r, a->other);
    char name[128], others[128];

    if (!n || !other) {
        r->generations.excludes = false; /* it was lost meanwhile */
        return;
    }
    if (n->says.local || (!a->several && !other->says.local && other->id > n->id)) {
        tutti__round_node *swapped = n;

        n = other;
        other = swapped;
    }
    n->excluded = true;
    snprintf(n->misfit, sizeof n->misfit,
             "nodes %s and %s cannot reach each other, while both reach this job's coordinator: "
             "the former, which came later, is excluded; is a firewall or a link between them?",
             tutti__node_name(n, name), tutti__node_name(other, others));
}

static void act_on_worker(void *context, const tutti__action *a)
{
    tutti__rounds *r = context;
    tutti__round_node *n = a->id.node < 0 ? NULL : tutti__round_find(r, a->id.node);

    if (a->act == TUTTI__ACT_REFUSE) {
        tutti__round_say(r, "a worker is refused: %s", a->why);
        if (n) {
            n->n_refused++;
            snprintf(n->misfit, sizeof n->misfit, "%.255s", a->why);
        }
    }
    if (a->act == TUTTI__ACT_EXCLUDE)
        note_pair(r, a);
    else if (n)
        tutti__round_do(r,
                        &(tutti__round_action){.act = TUTTI__ROUND_WORKER, .node = n, .worker = a});
    else if (a->id.node < 0)
        tutti__round_note_failure(r, NULL, a->code, a->why);
}

/* ---- Beginning ---------------------------------------------------------------------------------------------- */

void tutti__round_enter(tutti__rounds *r, tutti__round_node *n)
{
    if (n->id == 0 || tutti__round_find(r, n->id))
        n->id = ++r->last_id;
    hash_id(r, n);
    n->in_round = n->here = true;
    n->over = n->failed = n->is_cause = false;
    n->n_refused = 0;
    n->listed = n->sent = n->acked = 0;
    r->list_changed = r->recount = true;
    if (tutti__generations_node_came(&r->generations, n->id, n->says.workers) == TUTTI_OK)
        return;
    snprintf(r->why, sizeof r->why, "%s", tutti_last_error());
    tutti__round_end_job(r, 4);
}

void tutti__round_renew(tutti__rounds *r, int number)
{
    r->committed |= r->generations.step > 0;
    r->number = number;
    r->inherited = r->announced = false;
    r->since = r->now;
    tutti__generations_free(&r->generations);
    tutti__generations_init(&r->generations,
                            &(tutti__generations_opts){.stopped_ms = r->opts.stopped_ms,
                                                       .begun = r->committed,
                                                       .after = r->opts.after,
                                                       .act = act_on_worker,
                                                       .context = r});
}

uint64_t tutti__round_limit(const tutti__rounds *r)
{
    return (r->state == TUTTI__ROUNDS_RUNNING ? r->paused_since : r->since) +
           tutti__round_ms(r->opts.join_timeout_s, 600);
}
