/* coordinator_messages.c -- messages of nodes to the coordinator: join, leave, failure, loss.
 * SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"
#include "launch/host/coordinator_parts.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* to wait for nodes that lost their rendezvous host, before a job starts from the beginning */
    HOLD_S = 5
};

static void refuse(tutti__coordinator *c, tutti__node *n, const char *format, ...)
    TUTTI_PRINTF(3, 4);
static void refuse(tutti__coordinator *c, tutti__node *n, const char *format, ...)
{
    char why[512], name[128];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (!n->client.local)
        SAY(c, "node %s is refused: %s", name_of(n, name), why);
    n->refused = true;
    n->joined = false;
    send_to(c, n, json_pack("{s:s, s:o}", "type", "refuse", "why", tutti__message_string(why)));
    if (n->client.local)
        tutti__coordinator_end_job(c, 2);
}

static tutti__node *holder_of(const tutti__coordinator *c, const tutti__node *other)
{
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n != other && n->joined && n->wanted_rank >= 0 && n->wanted_rank == other->wanted_rank)
            return n;
    return NULL;
}

/* Refuses a node that cannot take part. */
static bool fits(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    char why[512];

    if (!tutti__join_misfit(c->opts.job, m, why, sizeof why))
        return true;
    refuse(c, n, "%s", why);
    return false;
}

/* Whether its rank belongs to another connected node. A machine that lost power does not close its connection: the newcomer
 * waits until the holder answers, and is then refused, or the holder is lost. */
static bool must_wait(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    tutti__node *holder = holder_of(c, n);
    char name[128];

    if (!holder)
        return false;
    if (!n->pending) {
        n->pending = json_incref((json_t *)(uintptr_t)m);
        n->pending_ms = tutti__now_ms();
        send_to(c, holder, json_pack("{s:s}", "type", "ping"));
    }
    if (holder->client.local || holder->client.connection.heard_ms > n->pending_ms)
        refuse(c, n, "--node-rank %d is taken by %s: each node needs its own, from 0 to %d",
               n->wanted_rank, name_of(holder, name), limits(c)->max - 1);
    return true;
}

/* A restarted rendezvous host learns the job's progress from the other nodes. */
static void learn(tutti__coordinator *c, const json_t *m)
{
    int rounds = (int)tutti__message_number(m, "rounds", 0),
        restarts = (int)tutti__message_number(m, "restarts", 0);

    c->round = rounds > c->round ? rounds : c->round;
    c->restarts = restarts > c->restarts ? restarts : c->restarts;
    if (tutti__message_number(m, "nodes", 0) > 1)
        c->survivors = (int)tutti__message_number(m, "nodes", 0) - 1;
}

/* It has workers of an elastic round, and has lost its connection or its rendezvous host. */
static void resume(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    int round = (int)tutti__message_number(m, "rounds", 1) - 1;

    if (!c->began) {
        c->began = true;
        c->round = round;
        c->state = RUNNING;
        snprintf(c->master_addr, sizeof c->master_addr, "%s", n->address);
        c->master_port = n->port;
        tutti__store_fence(c->opts.job->store, c->round);
        c->elastic.begun |= c->succeeds;
        tutti__elastic_round_begin(&c->elastic, c->round);
        c->elastic.succeeds = c->succeeds;
        c->elastic.generations.elastic = true;
        c->elastic.generations.paused = c->paused;
        tutti__elastic_round_hold(&c->elastic, HOLD_S);
    }
    if (c->state != RUNNING || c->round != round || !is_elastic(c)) {
        n->busy = true;
        send_to(c, n,
                json_pack("{s:s, s:i, s:s}", "type", "stop", "round", round, "why",
                          "the job has continued without this node"));
        return;
    }
    n->place = 1 + (int)tutti__message_number(m, "group_rank", 0);
    n->first_rank = (int)tutti__message_number(m, "first_rank", 0);
    n->id = (int)tutti__message_number(m, "me", 0);
    c->last_id = n->id > c->last_id ? n->id : c->last_id;
    tutti__coordinator_enter_round(c, n);
    n->here = false;
    send_to(c, n, json_pack("{s:s}", "type", "welcome"));
    if (c->survivors > 0 && count_in_round(c) >= c->survivors)
        tutti__elastic_round_hold(&c->elastic, 0);
}

static void on_join(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    const char *address = tutti__message_text(m, "address");

    if (n->joined)
        return;
    snprintf(n->host, sizeof n->host, "%s", tutti__message_text(m, "host"));
    snprintf(n->address, sizeof n->address, "%s", *address ? address : c->opts.address);
    n->pid = tutti__message_number(m, "pid", 0);
    n->n = (int)tutti__message_number(m, "workers", 0);
    n->port = (int)tutti__message_number(m, "port", 0);
    n->listens = (int)tutti__message_number(m, "listens", 0);
    snprintf(n->listens_at, sizeof n->listens_at, "%s", tutti__message_text(m, "listens_at"));
    n->wanted_rank = limits(c)->native ? -1 : (int)tutti__message_number(m, "node_rank", -1);
    if (c->state == ENDED) {
        n->joined = true;
        tutti__coordinator_tell_end(c, n);
        return;
    }
    if (json_is_true(json_object_get(m, "running")) && tutti__list_gives_way(c, n, m)) {
        tutti__list_send_elsewhere(c, n);
        return;
    }
    if (!fits(c, n, m) || must_wait(c, n, m))
        return;
    n->joined = true;
    tutti__join_warn(c->opts.job, c->opts.console, m);
    if (!c->began)
        learn(c, m);
    if (json_is_true(json_object_get(m, "running")))
        resume(c, n, m);
}

/* Retries nodes that wait because another has their rank. */
void tutti__coordinator_ask_again(tutti__coordinator *c)
{
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->pending && !n->joined && !n->refused)
            on_join(c, n, n->pending);
}

void tutti__coordinator_on_lost(void *context, tutti__client *client, const char *why)
{
    tutti__coordinator *c = context;
    tutti__node *n = (tutti__node *)client;
    char text[512], name[128];
    bool was_in = n->in_round, was_running = n->in_round && !n->over;

    n->joined = n->in_round = false;
    json_decref(n->pending);
    n->pending = NULL;
    if (was_in && c->state == RUNNING && is_elastic(c)) {
        c->list_changed = true;
        if (client->connection.ended && !n->apart)
            tutti__coordinator_is_dead(c, n->id);
        if (!n->left && was_running)
            SAY(c, "node %s was lost with %d worker%s: %s%s", name_of(n, name), n->n,
                n->n == 1 ? "" : "s", n->apart ? "it no longer hears from this node" : why,
                tutti__list_may_go_on(c) ? "; the others continue" : "");
        tutti__coordinator_tell_of_min(c);
        tutti__list_consider_pause(c);
        tutti__elastic_round_node_lost(&c->elastic, n->id);
        return;
    }
    if (!was_running || (c->state != RUNNING && c->state != STOPPING))
        return;
    if (n->left) {
        if (c->state == RUNNING) {
            snprintf(c->why, sizeof c->why, "node %s left", name_of(n, name));
            tutti__coordinator_stop_round(c, false);
        }
        return;
    }
    snprintf(text, sizeof text, "node %s was lost: %s", name_of(n, name), why);
    tutti__coordinator_note_failure(c, 3, text);
}

/* A valid exit code of a failure; anything else, including 0, becomes 1. */
static int code_in(const json_t *m)
{
    int64_t sig = tutti__message_number(m, "signal", 0), code = tutti__message_number(m, "code", 1);

    if (sig > 0 && sig < NSIG)
        return 128 + (int)sig;
    return code > 0 && code < 256 ? (int)code : 1;
}

/* Its workers leave after the current step, without a restart. False: no others are left to continue. */
static bool leave_elastic(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    const tutti__generations *g = &c->elastic.generations;
    char name[128];

    if (tutti__generations_living(g, -1) == tutti__generations_living(g, n->id))
        return false;
    SAY(c, "node %s leaves: %s; the others continue", name_of(n, name),
        tutti__message_text(m, "why"));
    tutti__coordinator_tell_of_min(c);
    tutti__elastic_round_node_leaves(&c->elastic, n->id);
    return true;
}

/* A node that was told to end leaves; the job continues without it if that is allowed. */
static void on_leave(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    int others = -1;
    bool may_return = c->restarts < c->opts.job->opts.max_restarts;
    bool final = json_is_true(json_object_get(m, "final")), ends;
    char name[128];

    n->left = true;
    for (const tutti__node *o = first_node(c); o; o = next_node(o))
        others += o->joined && (o == n || !o->left);
    if (c->state == ENDED)
        return;
    if (!final && c->state == RUNNING && n->in_round && is_elastic(c) && leave_elastic(c, n, m))
        return;
    if (n->client.local && others > 0 && may_return && !final) {
        c->retired = true;
        if (n->in_round && !n->over)
            send_to(c, n,
                    json_pack("{s:s, s:i, s:s}", "type", "stop", "round", c->round, "why", ""));
        return;
    }
    ends = n->client.local || final || (others < limits(c)->min && !may_return);
    if (ends || c->state == RUNNING) /* else the round was already being stopped */
        snprintf(c->why, sizeof c->why, "node %s ends: %s", name_of(n, name),
                 tutti__message_text(m, "why"));
    if (ends) {
        tutti__coordinator_end_job(c, code_in(m));
    } else if (c->state == RUNNING && n->in_round) {
        c->restarts += others < limits(c)->min;
        tutti__coordinator_stop_round(c, false);
    } else if (c->state == GATHERING) {
        n->joined = false;
    }
}

static void hear_worker(tutti__coordinator *c, const tutti__node *n, const json_t *m)
{
    bool was_elastic = is_elastic(c);

    if (!tutti__elastic_round_hear(&c->elastic, n->id, m) || was_elastic || !is_elastic(c))
        return;
    for (tutti__node *o = first_node(c); o; o = next_node(o))
        if (o->in_round && !o->over)
            send_to(c, o, json_pack("{s:s, s:i}", "type", "elastic", "round", c->round));
}

void tutti__coordinator_on_message(void *context, tutti__client *client, const json_t *m)
{
    tutti__coordinator *c = context;
    tutti__node *n = (tutti__node *)client;
    bool current = tutti__message_number(m, "round", -1) == c->round && n->in_round;

    if (n->refused)
        return;
    if (tutti__message_is(m, "join"))
        on_join(c, n, m);
    else if (tutti__message_is(m, "moved"))
        tutti__list_on_moved(c, m);
    else if (tutti__message_is(m, "apart"))
        n->apart = true;
    else if (!n->joined && !(n->client.local && tutti__message_is(m, "leave")))
        return;
    else if (tutti__message_is(m, "failed") && current && !(c->state == STOPPING && !c->failing)) {
        /* workers of nodes that stop in order may lose faster peers */
        c->permanent = c->permanent || json_is_true(json_object_get(m, "permanent"));
        tutti__coordinator_note_failure(c, code_in(m), tutti__message_text(m, "why"));
    } else if (tutti__message_is(m, "over") && n->busy) {
        n->busy = false;
    } else if (tutti__message_is(m, "over") && current) {
        n->over = true;
        c->retired |= n->left && n->client.local;
        n->joined = !n->left;
        n->port = (int)tutti__message_number(m, "port", n->port);
    } else if (tutti__message_is(m, "leave"))
        on_leave(c, n, m);
    else if (tutti__message_is(m, "here"))
        n->here = c->list_changed = true;
    else if (tutti__message_is(m, "nodes"))
        n->acked = tutti__message_number(m, "version", 0);
    else if (current && c->state == RUNNING)
        hear_worker(c, n, m);
}
