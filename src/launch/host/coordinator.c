/* coordinator.c -- serves the nodes' agents: their messages become events of the job's rounds, and actions become messages.
 * SPDX-License-Identifier: MIT */
#include "launch/host/coordinator.h"

#include "comm/bootstrap/store/store.h"
#include "launch/host/roster_message.h"
#include "launch/message/message_server.h"

#include <stdlib.h>
#include <string.h>

enum { FAREWELL_MS = 5000 /* for the others to receive the end of the job */ };

/* An authenticated connection. */
typedef struct peer {
    tutti__client client;
    tutti__node node;
    bool known; /* to the rounds */
    json_t *
        pending; /* its join message, while it is unknown whether the holder of its rank is alive; or NULL */
    double pending_ms; /* since when */
} peer;

struct tutti__coordinator {
    tutti__coordinator_opts opts;
    tutti__message_server server;
    tutti__rounds rounds;
    tutti__roster *theirs; /* of the node that joins at present */
};

static uint64_t now_ms(void)
{
    return (uint64_t)tutti__now_ms();
}

static peer *peer_of(const tutti__node *node)
{
    return (peer *)(uintptr_t)((const char *)node - offsetof(peer, node));
}

static void send_to(tutti__coordinator *c, peer *p, json_t *message)
{
    tutti__message_server_send(&c->server, &p->client, message);
}

/* ---- Actions -------------------------------------------------------------------------------------------- */

static void act(void *context, const tutti__round_action *a)
{
    tutti__coordinator *c = context;

    if (a->node)
        send_to(c, peer_of(a->node), tutti__round_message(&c->rounds, c->opts.job, a));
    else if (a->act == TUTTI__ROUND_SAY)
        tutti__console_say(c->opts.console, "%s", a->why);
    else if (a->act == TUTTI__ROUND_FENCE)
        tutti__store_fence(c->opts.job->store, a->number);
    else if (a->act == TUTTI__ROUND_FAILED && c->opts.round_over)
        c->opts.round_over(c->opts.context);
}

/* ---- Joining -------------------------------------------------------------------------------------------- */

static tutti__join read_join(tutti__coordinator *c, const peer *p, const json_t *m)
{
    const char *address = tutti__message_text(m, "address");
    tutti__join j = {
        .local = p->client.local,
        .workers = (int)tutti__message_number(m, "workers", 0),
        .port = (int)tutti__message_number(m, "port", 0),
        .wanted_rank = c->rounds.opts.native ? -1 : (int)tutti__message_number(m, "node_rank", -1),
        .listens = (int)tutti__message_number(m, "listens", 0),
        .pid = tutti__message_number(m, "pid", 0),
        .rounds = (int)tutti__message_number(m, "rounds", 0),
        .restarts = (int)tutti__message_number(m, "restarts", 0),
        .n_nodes = (int)tutti__message_number(m, "nodes", 0),
        .running = json_is_true(json_object_get(m, "running")),
        .group_rank = (int)tutti__message_number(m, "group_rank", 0),
        .first_rank = (int)tutti__message_number(m, "first_rank", 0),
        .id = (int)tutti__message_number(m, "me", 0),
        .is_of_this_job = strcmp(tutti__message_text(m, "id"), c->opts.job->id) == 0,
    };

    snprintf(j.role, sizeof j.role, "%s", tutti__message_text(m, "role"));
    snprintf(j.host, sizeof j.host, "%s", tutti__message_text(m, "host"));
    snprintf(j.address, sizeof j.address, "%s", *address ? address : c->opts.address);
    if (snprintf(j.listens_at, sizeof j.listens_at, "%s", tutti__message_text(m, "listens_at")) >=
        (int)sizeof j.listens_at)
        j.listens = 0; /* too long for the list */
    if (tutti__roster_read(c->theirs, json_object_get(m, "roster")))
        j.roster = c->theirs;
    return j;
}

/* Its rank belongs to another connected node. A machine that lost power does not close its connection: the newcomer waits until
 * the holder answers, and is then refused, or the holder is lost. */
static void wait_for_holder(tutti__coordinator *c, peer *p, const json_t *m)
{
    const tutti__node *node = tutti__rounds_holder(&c->rounds, &p->node);
    peer *holder = peer_of(node);
    char name[128], why[256];

    if (!p->pending) {
        p->pending = json_incref((json_t *)(uintptr_t)m);
        p->pending_ms = tutti__now_ms();
        send_to(c, holder, json_pack("{s:s}", "type", "ping"));
    }
    if (!holder->client.local && holder->client.connection.heard_ms <= p->pending_ms)
        return;
    snprintf(why, sizeof why,
             "--node-rank %d is taken by %s: each node needs its own, from 0 to %d",
             p->node.says.wanted_rank, tutti__node_name(node, name), c->rounds.opts.max - 1);
    tutti__rounds_refuse(&c->rounds, now_ms(), &p->node, why);
}

static void on_join(tutti__coordinator *c, peer *p, const json_t *m)
{
    tutti__join says = read_join(c, p, m);
    char why[512];

    if (p->node.joined)
        return;
    if (tutti__join_misfit(c->opts.job, m, why, sizeof why))
        says.misfit = why;
    if (!tutti__rounds_joined(&c->rounds, now_ms(), &p->node, &says))
        wait_for_holder(c, p, m);
    else if (p->node.joined && c->rounds.state != TUTTI__ROUNDS_ENDED)
        tutti__join_warn(c->opts.job, c->opts.console, m);
}

/* Retries nodes that wait because another has their rank. */
static void ask_again(tutti__coordinator *c)
{
    for (tutti__client *client = c->server.clients; client; client = client->next) {
        peer *p = (peer *)client;

        if (p->pending && !p->node.joined && !p->node.refused)
            on_join(c, p, p->pending);
    }
}

static void on_lost(void *context, tutti__client *client, const char *why)
{
    tutti__coordinator *c = context;
    peer *p = (peer *)client;

    if (p->known)
        tutti__rounds_lost(&c->rounds, now_ms(), &p->node, client->connection.ended, why);
    json_decref(p->pending);
    p->pending = NULL;
}

/* ---- Messages ------------------------------------------------------------------------------------------- */

/* A valid exit code of a failure; anything else, including 0, becomes 1. */
static int code_in(const json_t *m)
{
    int64_t sig = tutti__message_number(m, "signal", 0), code = tutti__message_number(m, "code", 1);

    if (sig > 0 && sig < NSIG)
        return 128 + (int)sig;
    return code > 0 && code < 256 ? (int)code : 1;
}

static void on_said(tutti__generations *g, tutti__worker_id id, const json_t *m)
{
    const json_t *lost = json_object_get(m, "lost");
    tutti__worker_message message = {
        .protocol = (uint32_t)tutti__message_number(m, "protocol", 0),
        .kind = (uint32_t)tutti__message_number(m, "kind", UINT32_MAX),
        .generation = (uint32_t)tutti__message_number(m, "generation", 0),
        .shards = (int32_t)tutti__message_number(m, "shards", 0),
        .step = tutti__message_number(m, "step", -1),
    };

    for (size_t i = 0; i < json_array_size(lost) && i < TUTTI__AGENT_MAX_LOST; i++)
        message.lost[message.n_lost++] = (int32_t)json_integer_value(json_array_get(lost, i));
    snprintf(message.build, sizeof message.build, "%s", tutti__message_text(m, "build"));
    snprintf(message.why, sizeof message.why, "%s", tutti__message_text(m, "why"));
    tutti__generations_said(g, now_ms(), id, &message);
}

static void on_worker(tutti__generations *g, int node, const json_t *m)
{
    const tutti__worker_id id = {node, (int)tutti__message_number(m, "place", -1),
                                 (int)tutti__message_number(m, "start", -1)};

    if (tutti__message_is(m, "said"))
        on_said(g, id, m);
    else if (tutti__message_is(m, "ended"))
        tutti__generations_ended(g, now_ms(), id, (int)tutti__message_number(m, "code", 1),
                                 (int)tutti__message_number(m, "signal", 0));
    else if (tutti__message_is(m, "stopped"))
        tutti__generations_stopped(g, now_ms(), id, json_is_true(json_object_get(m, "stopped")));
    else if (tutti__message_is(m, "resumed"))
        tutti__generations_resumed(
            g, now_ms(), id, (uint32_t)tutti__message_number(m, "generation", 0),
            (int)tutti__message_number(m, "rank", 0), tutti__message_number(m, "step", -1));
}

/* Messages of a node that has joined. */
static void on_node(tutti__coordinator *c, tutti__node *n, const json_t *m)
{
    tutti__rounds *r = &c->rounds;
    const char *why = tutti__message_text(m, "why");
    const int number = (int)tutti__message_number(m, "round", -1);
    tutti__generations *g = tutti__rounds_workers(r, now_ms(), n, number);

    if (tutti__message_is(m, "failed"))
        tutti__rounds_failed(r, now_ms(), n, number, code_in(m),
                             json_is_true(json_object_get(m, "permanent")), why);
    else if (tutti__message_is(m, "over"))
        tutti__rounds_over(r, now_ms(), n, number,
                           (int)tutti__message_number(m, "port", n->says.port));
    else if (tutti__message_is(m, "leave"))
        tutti__rounds_leaves(r, now_ms(), n, json_is_true(json_object_get(m, "final")), code_in(m),
                             why);
    else if (tutti__message_is(m, "here"))
        tutti__rounds_here(r, now_ms(), n);
    else if (tutti__message_is(m, "nodes"))
        tutti__rounds_acked(n, tutti__message_number(m, "version", 0));
    else if (g)
        on_worker(g, n->id, m);
}

static void on_message(void *context, tutti__client *client, const json_t *m)
{
    tutti__coordinator *c = context;
    peer *p = (peer *)client;

    if (!p->known)
        tutti__rounds_connected(&c->rounds, now_ms(), &p->node);
    p->known = true;
    if (p->node.refused)
        return;
    if (tutti__message_is(m, "join"))
        on_join(c, p, m);
    else if (tutti__message_is(m, "moved"))
        tutti__rounds_moved(&c->rounds, tutti__message_text(m, "address"),
                            (int)tutti__message_number(m, "port", 0));
    else if (tutti__message_is(m, "apart"))
        tutti__rounds_apart(&p->node);
    else if (p->node.joined || (client->local && tutti__message_is(m, "leave")))
        on_node(c, &p->node, m);
}

/* ---- Beginning and end ------------------------------------------------------------------------------- */

void tutti__coordinator_serve(tutti__coordinator *c)
{
    bool more;

    do {
        more = tutti__message_server_serve(&c->server);
        ask_again(c);
        tutti__rounds_tick(&c->rounds, now_ms());
    } while (more);
}

static double farewell_ms(const tutti__coordinator *c)
{
    return (double)c->rounds.since + FAREWELL_MS;
}

double tutti__coordinator_deadline(const tutti__coordinator *c)
{
    uint64_t at = tutti__rounds_deadline(&c->rounds);
    double next = tutti__message_server_deadline(&c->server);

    if (c->rounds.state == TUTTI__ROUNDS_ENDED && tutti__now_ms() < farewell_ms(c))
        return farewell_ms(c) < next ? farewell_ms(c) : next;
    return at != UINT64_MAX && (double)at < next ? (double)at : next;
}

int tutti__coordinator_fd(const tutti__coordinator *c)
{
    return c->server.epoll;
}

bool tutti__coordinator_done(const tutti__coordinator *c)
{
    const bool ended = c->rounds.state == TUTTI__ROUNDS_ENDED;

    if (c->rounds.retired || (ended && tutti__now_ms() >= farewell_ms(c)))
        return true;
    if (!ended)
        return false;
    for (const tutti__client *client = c->server.clients; client; client = client->next)
        if (!client->local && !((const peer *)client)->node.refused)
            return false;
    return true;
}

tutti__rounds *tutti__coordinator_rounds(tutti__coordinator *c)
{
    return &c->rounds;
}

/* That of the workers, which have this environment too. */
static uint64_t heartbeat_ms(void)
{
    double seconds;

    return tutti__parse_double(tutti__env_text(TUTTI__ENV_HEARTBEAT_S), &seconds) && seconds > 0
               ? (uint64_t)(seconds * 1e3)
               : 0;
}

static void rounds_init(tutti__coordinator *c)
{
    const tutti__launch_opts *job = &c->opts.job->opts;
    const tutti__nodes *nodes = &job->nodes;

    tutti__rounds_init(&c->rounds, now_ms(),
                       &(tutti__rounds_opts){.min = nodes->min,
                                             .max = nodes->max,
                                             .native = nodes->native,
                                             .quiet = job->quiet,
                                             .max_restarts = job->max_restarts,
                                             .join_timeout_s = nodes->join_timeout_s,
                                             .last_call_s = nodes->last_call_s,
                                             .keep_alive_s = nodes->keep_alive_s,
                                             .settle_ms = (uint64_t)c->opts.settle_ms,
                                             .stopped_ms = heartbeat_ms(),
                                             .roster = c->opts.roster,
                                             .act = act,
                                             .context = c});
}

tutti_status tutti__coordinator_new(tutti__coordinator **coordinator_p,
                                    const tutti__coordinator_opts *opts)
{
    tutti__coordinator *c = tutti__alloc(sizeof *c);
    const tutti__nodes *nodes = &opts->job->opts.nodes;
    tutti_status status;

    *coordinator_p = NULL;
    if (!c)
        return TUTTI_ERR_MEMORY;
    c->opts = *opts;
    rounds_init(c);
    status = tutti__message_server_open(
        &c->server,
        &(tutti__message_server_opts){
            .client_bytes = sizeof(peer),
            .listener = opts->listener,
            .secret = opts->secret,
            .claim = {.kind = 'L', .job = opts->secret->job, .process = opts->secret->process},
            .ping_ms = tutti__or(nodes->keep_alive_s, 5) * 1e3,
            .misses = nodes->keep_alive_misses > 0 ? nodes->keep_alive_misses : 3,
            .on_message = on_message,
            .on_lost = on_lost,
            .context = c},
        opts->local);
    if (status == TUTTI_OK && !(c->theirs = tutti__alloc(sizeof *c->theirs)))
        status = TUTTI_ERR_MEMORY;
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
    for (tutti__client *client = c->server.clients; client; client = client->next)
        json_decref(((peer *)client)->pending);
    tutti__message_server_free(&c->server);
    tutti__rounds_free(&c->rounds);
    free(c->theirs);
    free(c);
}
