/* coordinator.c -- the rendezvous of a job's nodes, round by round.   SPDX-License-Identifier: MIT */
#include "launch/host/coordinator_parts.h"
#include "comm/bootstrap/store/store.h"

#include <stdlib.h>
#include <string.h>

enum {
    FAREWELL_MS = 5000,   /* for the others to receive the end of the job */
    FIRST_WORD_MS = 3000, /* of waiting, before the first line about it */
    LATER_WORD_MS = 30000,
    SETTLE_MS = 5000 /* opts.settle_ms */
};

/* ---- Messages to nodes ------------------------------------------------------------------------------- */

static void send_to_id(void *context, int id, json_t *message)
{
    tutti__coordinator *c = context;

    tutti__node *n = tutti__coordinator_find(c, id);

    if (n)
        send_to(c, n, message);
    else
        json_decref(message);
}

void tutti__coordinator_tell_end(tutti__coordinator *c, tutti__node *n)
{
    send_to(c, n,
            json_pack("{s:s, s:i, s:b, s:o}", "type", "end", "code", c->code, "permanent",
                      c->permanent, "why", tutti__message_string(c->why)));
}

void tutti__coordinator_end_job(tutti__coordinator *c, int code)
{
    c->state = ENDED;
    c->code = code;
    c->ended = tutti__now_ms();
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->joined)
            tutti__coordinator_tell_end(c, n);
}

/* Orders all nodes of the round to end their workers. */
void tutti__coordinator_stop_round(tutti__coordinator *c, bool failing)
{
    c->failing = failing;
    c->state = STOPPING;
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->in_round && !n->over)
            send_to(c, n,
                    json_pack("{s:s, s:i, s:o, s:b}", "type", "stop", "round", c->round, "why",
                              tutti__message_string(c->why), "failing", failing));
}

/* ---- Beginning a round ------------------------------------------------------------------------------- */

/* Nodes of the last round in their order, then new ones by host and process. */
static int by_order(const void *a, const void *b)
{
    const tutti__node *x = *(tutti__node *const *)a, *y = *(tutti__node *const *)b;
    int order;

    if (x->wanted_rank != y->wanted_rank)
        return (unsigned)x->wanted_rank < (unsigned)y->wanted_rank ? -1 : 1;
    if (x->place != y->place) /* those without come last */
        return (unsigned)x->place - 1 < (unsigned)y->place - 1 ? -1 : 1;
    order = strcmp(x->host, y->host);
    if (order == 0)
        order = (x->pid > y->pid) - (x->pid < y->pid);
    return order;
}

static bool is_idle(const tutti__node *n)
{
    return n->joined && !n->in_round && !n->busy;
}

static int count_idle(const tutti__coordinator *c)
{
    int count = 0;

    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        count += is_idle(n);
    return count;
}

/* Chooses idle nodes in the order of their ranks, at most `max`; returns how many. */
static int choose_nodes(const tutti__coordinator *c, tutti__node **chosen, int max)
{
    tutti__node **all = malloc(((size_t)count_idle(c) + 1) * sizeof(*all));
    int count = 0;

    for (tutti__node *n = first_node(c); all && n; n = next_node(n))
        if (is_idle(n))
            all[count++] = n;
    if (count > 0)
        qsort(all, (size_t)count, sizeof(*all), by_order);
    count = count < max ? count : max;
    if (count > 0)
        memcpy(chosen, all, (size_t)count * sizeof(*all));
    free(all);
    return count;
}

/* Adds it to the round, with its place and its ranks. */
void tutti__coordinator_enter_round(tutti__coordinator *c, tutti__node *n)
{
    if (n->id == 0 || tutti__coordinator_find(c, n->id))
        n->id = ++c->last_id;
    n->in_round = n->here = true;
    n->over = false;
    n->told = n->acked = 0;
    c->list_changed = true;
    if (tutti__elastic_round_node_came(&c->elastic, n->id, n->n) == TUTTI_OK)
        return;
    snprintf(c->why, sizeof c->why, "%s", tutti_last_error());
    tutti__coordinator_end_job(c, 4);
}

static void tell_round(tutti__coordinator *c, tutti__node *n)
{
    const tutti__job *job = c->opts.job;
    int world_size = 0;

    for (const tutti__node *o = first_node(c); o; o = next_node(o))
        if (o->in_round && o->first_rank + o->n > world_size)
            world_size = o->first_rank + o->n;
    send_to(c, n,
            json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:o, s:b}", "type",
                      "round", "round", c->round, "restarts", c->restarts, "max_restarts",
                      job->opts.max_restarts, "group_rank", n->place - 1, "nodes",
                      count_in_round(c), "first_rank", n->first_rank, "world_size", world_size,
                      "master_addr", tutti__message_string(c->master_addr), "master_port",
                      c->master_port, "store", tutti__message_string(job->store_address), "id",
                      tutti__message_string(job->id), "elastic", is_elastic(c)));
}

/* The lowest node number, or rank, from which `n` are free. */
static int first_free(const tutti__coordinator *c, int n, bool ranks)
{
    int first = 0;
    bool taken;

    do {
        taken = false;
        for (const tutti__node *o = first_node(c); o && !taken; o = next_node(o)) {
            int begin = ranks ? o->first_rank : o->place - 1, end = begin + (ranks ? o->n : 1);

            taken = o->in_round && first < end && begin < first + n;
            first = taken ? end : first;
        }
    } while (taken);
    return first;
}

/* Admits nodes that come during an elastic round: their workers join at the end of a step. */
static void admit(tutti__coordinator *c)
{
    const tutti__generations *g = &c->elastic.generations;
    char name[128];

    for (tutti__node *n = first_node(c); n; n = next_node(n)) {
        if (!is_idle(n) || c->paused || count_in_round(c) >= limits(c)->max || g->finished ||
            tutti__generations_living(g, -1) == 0)
            continue;
        n->place = 1 + (n->wanted_rank >= 0 ? n->wanted_rank : first_free(c, 1, false));
        n->first_rank = first_free(c, n->n, true);
        n->id = 0;
        tutti__coordinator_enter_round(c, n);
        SAY(c, "node %s joins with %d worker%s", name_of(n, name), n->n, n->n == 1 ? "" : "s");
        tell_round(c, n);
    }
}

static void begin_round(tutti__coordinator *c)
{
    int max = limits(c)->max, n_nodes;
    tutti__node **nodes = malloc((size_t)max * sizeof(*nodes));

    if (!nodes) {
        snprintf(c->why, sizeof c->why, "no memory for %d nodes", max);
        tutti__coordinator_end_job(c, 4);
        return;
    }
    n_nodes = choose_nodes(c, nodes, max);
    c->round += c->began;
    c->began = true;
    tutti__elastic_round_begin(&c->elastic, c->round);
    c->state = RUNNING;
    c->since = tutti__now_ms();
    c->failing = c->paused = false;
    c->roster.n = c->base.n = 0; /* with new node ids */
    c->why[0] = '\0';
    c->code = 0;
    tutti__store_fence(c->opts.job->store, c->round);
    snprintf(c->master_addr, sizeof c->master_addr, "%s", nodes[0]->address);
    c->master_port = nodes[0]->port;
    for (int i = 0, rank = 0; i < n_nodes && c->state == RUNNING; rank += nodes[i++]->n) {
        nodes[i]->place = i + 1;
        nodes[i]->id = 0;
        nodes[i]->first_rank = rank;
        tutti__coordinator_enter_round(c, nodes[i]);
    }
    for (int i = 0; i < n_nodes && c->state == RUNNING; i++)
        tell_round(c, nodes[i]);
    free(nodes);
}

/* Static: all numbers are present; else there are enough nodes, and the last call is over, or they are the remaining nodes of
 * the last round. */
static bool is_complete(tutti__coordinator *c)
{
    int idle = count_idle(c);

    if (idle < limits(c)->min) {
        c->last_call = 0;
        return false;
    }
    if (idle >= limits(c)->max || c->began || (c->survivors > 0 && idle >= c->survivors))
        return true;
    if (c->last_call == 0)
        c->last_call = tutti__now_ms() + tutti__or(limits(c)->last_call_s, 30) * 1e3;
    return tutti__now_ms() >= c->last_call;
}

/* Prints which nodes have joined, and how many are missing. */
static void tell_waiting(tutti__coordinator *c)
{
    double now = tutti__now_ms();
    char text[512];
    int used, idle = count_idle(c);

    if (now < c->next_word)
        return;
    c->next_word = now + (c->told > 0 ? LATER_WORD_MS : FIRST_WORD_MS);
    c->told++;
    if (c->told == 1) /* nothing at the first time */
        return;
    used = snprintf(text, sizeof text, "waiting for nodes (%.0f s so far): %d of %d%s came (",
                    (now - c->since) * 1e-3, idle, limits(c)->min,
                    limits(c)->max > limits(c)->min ? " or more" : "");
    for (const tutti__node *n = first_node(c); n && used < (int)sizeof text - 80; n = next_node(n))
        if (is_idle(n))
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%.63s",
                             text[used - 1] == '(' ? "" : ", ", n->host);
    snprintf(text + used, sizeof text - (size_t)used, ")");
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        if (n->joined)
            send_to(c, n,
                    json_pack("{s:s, s:o}", "type", "wait", "why", tutti__message_string(text)));
}

/* When a coordinator that waits for nodes gives up. */
static double limit_of_waiting(const tutti__coordinator *c)
{
    double since = c->state == RUNNING ? c->paused_since : c->since;

    return since + tutti__or(limits(c)->join_timeout_s, 600) * 1e3;
}

static void gather(tutti__coordinator *c)
{
    double limit_s = tutti__or(limits(c)->join_timeout_s, 600);

    if (is_complete(c)) {
        begin_round(c);
    } else if (tutti__now_ms() >= limit_of_waiting(c)) {
        snprintf(c->why, sizeof c->why,
                 "waited %g s for %d nodes, but only %d came; are the others started, with this "
                 "endpoint, and can they reach it? (--rdzv-conf join_timeout=%g)",
                 limit_s, limits(c)->min, count_idle(c), limit_s);
        tutti__coordinator_end_job(c, 3);
    } else {
        tell_waiting(c);
    }
}

static void enter_gathering(tutti__coordinator *c)
{
    c->state = GATHERING;
    c->since = tutti__now_ms();
    c->last_call = c->told = 0;
    c->next_word = 0;
}

/* ---- Ending a round ---------------------------------------------------------------------------------- */

static int count_running(const tutti__coordinator *c)
{
    int count = 0;

    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        count += n->in_round && !n->over;
    return count;
}

/* Keeps the first failure, but a cause replaces the loss of a peer (3). */
void tutti__coordinator_note_failure(tutti__coordinator *c, int code, const char *why)
{
    if (c->state == ENDED || (c->failing && (c->code != 3 || code == 3)))
        return;
    c->code = code;
    snprintf(c->why, sizeof c->why, "%s", why);
    if (c->state == RUNNING)
        tutti__coordinator_stop_round(c, true);
    c->failing = true;
}

static void on_nobody_left(void *context, int code, const char *why)
{
    tutti__coordinator_note_failure(context, code, why);
}

/* Prints that the round continues with fewer nodes than requested. */
void tutti__coordinator_tell_of_min(tutti__coordinator *c)
{
    int left = 0;

    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        left += n->in_round && !n->left;
    if (left > 0 && left < limits(c)->min)
        SAY(c, "%d node%s left, fewer than --nnodes asks for (%d)", left,
            left == 1 ? " is" : "s are", limits(c)->min);
}

/* The other nodes may have continued elsewhere, and ended the job. */
static void consider_giving_up(tutti__coordinator *c)
{
    if (!c->paused || tutti__now_ms() < limit_of_waiting(c))
        return;
    snprintf(c->why, sizeof c->why,
             "timed out after %g s waiting for nodes that may have continued without this one: are "
             "they cut off, or their machines down? (--rdzv-conf join_timeout=%g)",
             tutti__or(limits(c)->join_timeout_s, 600), tutti__or(limits(c)->join_timeout_s, 600));
    tutti__coordinator_end_job(c, 3);
}

/* All workers of the round have ended. */
static void conclude(tutti__coordinator *c)
{
    tutti__elastic_round_tell(&c->elastic);
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        n->in_round = n->over = false;
    if (c->state == RUNNING) {
        tutti__coordinator_end_job(c, 0);
        return;
    }
    if (c->failing && c->opts.round_over)
        c->opts.round_over(c->opts.context);
    if (c->failing && (c->permanent || c->restarts >= c->opts.job->opts.max_restarts)) {
        tutti__coordinator_end_job(c, c->code);
        return;
    }
    c->restarts += c->failing;
    enter_gathering(c);
}

/* Whether nodes have come for which all workers must restart: there is room for them, and the round is not about to complete. */
static bool has_newcomers(const tutti__coordinator *c)
{
    return !is_elastic(c) && count_in_round(c) < limits(c)->max && count_idle(c) > 0 &&
           count_running(c) == count_in_round(c);
}

static double settled_at(const tutti__coordinator *c)
{
    return c->since + (c->opts.settle_ms > 0 ? c->opts.settle_ms : SETTLE_MS);
}

static void consider(tutti__coordinator *c)
{
    if ((c->state == RUNNING || c->state == STOPPING) && count_running(c) == 0)
        conclude(c);
    if (c->state == RUNNING && is_elastic(c)) {
        tutti__list_consider_pause(c);
        tutti__elastic_round_tick(&c->elastic);
        admit(c);
        tutti__list_spread(c);
        consider_giving_up(c);
    } else if (c->state == RUNNING && has_newcomers(c) && tutti__now_ms() >= settled_at(c)) {
        snprintf(c->why, sizeof c->why, "%d more node%s came", count_idle(c),
                 count_idle(c) == 1 ? "" : "s");
        tutti__coordinator_stop_round(c, false);
    }
    if (c->state == GATHERING)
        gather(c);
}

/* ---- Beginning and end ------------------------------------------------------------------------------- */

void tutti__coordinator_serve(tutti__coordinator *c)
{
    bool more;

    do {
        more = tutti__message_server_serve(&c->server);
        tutti__coordinator_ask_again(c);
        consider(c);
    } while (more);
}

double tutti__coordinator_deadline(const tutti__coordinator *c)
{
    double limit = limit_of_waiting(c), next = tutti__message_server_deadline(&c->server);

    if (c->state == ENDED && tutti__now_ms() < c->ended + FAREWELL_MS)
        return c->ended + FAREWELL_MS < next ? c->ended + FAREWELL_MS : next;
    if (c->state == RUNNING) {
        double elastic = tutti__elastic_round_deadline(&c->elastic);

        if (c->paused) {
            next = c->until > tutti__now_ms() && c->until < next ? c->until : next;
            next = c->next_word < next ? c->next_word : next;
            next = limit < next ? limit : next;
        }
        if (has_newcomers(c) && settled_at(c) < next)
            next = settled_at(c);
        return elastic < next ? elastic : next;
    }
    if (c->state != GATHERING)
        return next;
    next = limit < next ? limit : next;
    next = c->next_word < next ? c->next_word : next;
    return c->last_call > 0 && c->last_call < next ? c->last_call : next;
}

int tutti__coordinator_fd(const tutti__coordinator *c)
{
    return c->server.epoll;
}

bool tutti__coordinator_done(const tutti__coordinator *c)
{
    if (c->retired || (c->state == ENDED && tutti__now_ms() >= c->ended + FAREWELL_MS))
        return true;
    if (c->state != ENDED)
        return false;
    for (const tutti__node *n = first_node(c); n; n = next_node(n))
        if (!n->client.local && !n->refused)
            return false;
    return true;
}

tutti_status tutti__coordinator_new(tutti__coordinator **coordinator_p,
                                    const tutti__coordinator_opts *opts)
{
    tutti__coordinator *c = tutti__alloc(sizeof *c);
    tutti_status status;

    *coordinator_p = NULL;
    if (!c)
        return TUTTI_ERR_MEMORY;
    *c = (tutti__coordinator){.opts = *opts};
    tutti__elastic_round_init(&c->elastic, &(tutti__elastic_round_opts){.job = opts->job,
                                                                        .console = opts->console,
                                                                        .send = send_to_id,
                                                                        .fail = on_nobody_left,
                                                                        .context = c});
    enter_gathering(c);
    c->roster.term = 1;
    if (opts->roster)
        tutti__list_succeed(c);
    status = tutti__message_server_open(
        &c->server,
        &(tutti__message_server_opts){
            .client_bytes = sizeof(tutti__node),
            .listener = opts->listener,
            .secret = opts->secret,
            .claim = {.kind = 'L', .job = opts->secret->job, .process = opts->secret->process},
            .ping_ms = tutti__or(limits(c)->keep_alive_s, 5) * 1e3,
            .misses = limits(c)->keep_alive_misses > 0 ? limits(c)->keep_alive_misses : 3,
            .on_message = tutti__coordinator_on_message,
            .on_lost = tutti__coordinator_on_lost,
            .context = c},
        opts->local);
    if (status != TUTTI_OK) {
        tutti__coordinator_free(c);
        return status;
    }
    *coordinator_p = c;
    return TUTTI_OK;
}

void tutti__coordinator_free(tutti__coordinator *c)
{
    if (!c)
        return;
    for (tutti__node *n = first_node(c); n; n = next_node(n))
        json_decref(n->pending);
    tutti__elastic_round_free(&c->elastic);
    tutti__message_server_free(&c->server);
    free(c);
}
