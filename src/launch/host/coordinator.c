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
    tutti__round_node node;
    bool known; /* to the rounds */
    /* its join message, while it is unknown whether the holder of its rank is alive; or NULL */
    json_t *pending;
    double pending_ms; /* since when */
} peer;

struct tutti__coordinator {
    tutti__coordinator_opts opts;
    tutti__message_server server;
    tutti__rounds rounds;
    tutti__roster *theirs; /* of the node that joins at present */
    int n_pending;         /* peers whose join is */
    /* The list of nodes as it is sent to all of them: this version of it. NULL: none yet */
    char *list;
    int64_t list_term, list_version;
};

static uint64_t now_ms(void)
{
    return (uint64_t)tutti__now_ms();
}

static peer *peer_of(const tutti__round_node *node)
{
    return (peer *)(uintptr_t)((const char *)node - offsetof(peer, node));
}

static void send_to(tutti__coordinator *c, peer *p, json_t *message)
{
    tutti__message_server_send(&c->server, &p->client, message);
}

/* ---- Actions -------------------------------------------------------------------------------------------- */

static const char *list_text(tutti__coordinator *c)
{
    const tutti__roster *r = &c->rounds.roster;

    if (!c->list || c->list_term != r->term || c->list_version != r->version) {
        free(c->list);
        c->list = tutti__roster_text(r);
        c->list_term = r->term;
        c->list_version = r->version;
    }
    return c->list;
}

static void act(void *context, const tutti__round_action *a)
{
    tutti__coordinator *c = context;

    if (a->node)
        send_to(c, peer_of(a->node),
                tutti__round_message(&c->rounds, c->opts.job, a,
                                     a->act == TUTTI__ROUND_LIST ? list_text(c) : NULL));
    else if (a->act == TUTTI__ROUND_SAY)
        tutti__console_say(c->opts.console, "%s", a->why);
    else if (a->act == TUTTI__ROUND_FENCE)
        tutti__store_fence(c->opts.job->store, a->number);
    else if (a->act == TUTTI__ROUND_FAILED && c->opts.round_over)
        c->opts.round_over(c->opts.context);
}

/* ---- Joining -------------------------------------------------------------------------------------------- */

static tutti__join read_join(tutti__coordinator *c, const peer *p, const tutti__message_join *m)
{
    tutti__join j = {
        .local = p->client.local,
        .workers = m->workers,
        .port = m->port,
        .wanted_rank = c->rounds.opts.native ? -1 : m->node_rank,
        .listens = m->listens,
        .pid = m->pid,
        .rounds = m->rounds,
        .restarts = m->restarts,
        .n_nodes = m->nodes,
        .running = m->running,
        .group_rank = m->group_rank,
        .first_rank = m->first_rank,
        .id = m->me,
        .is_of_this_job = strcmp(m->id, c->opts.job->id) == 0,
    };

    snprintf(j.role, sizeof j.role, "%s", m->role);
    snprintf(j.host, sizeof j.host, "%s", m->host);
    snprintf(j.address, sizeof j.address, "%s", *m->address ? m->address : c->opts.address);
    if (snprintf(j.listens_at, sizeof j.listens_at, "%s", m->listens_at) >=
        (int)sizeof j.listens_at)
        j.listens = 0; /* too long for the list */
    if (tutti__roster_read(c->theirs, m->roster))
        j.roster = c->theirs;
    return j;
}

/* Its rank belongs to another connected node. A machine that lost power does not close its connection: the newcomer waits until
 * the holder answers, and is then refused, or the holder is lost. */
static void wait_for_holder(tutti__coordinator *c, peer *p, const json_t *m)
{
    const tutti__round_node *node = tutti__rounds_holder(&c->rounds, &p->node);
    peer *holder = peer_of(node);
    char name[128], why[256];

    if (!p->pending) {
        p->pending = json_incref((json_t *)(uintptr_t)m);
        p->pending_ms = tutti__now_ms();
        c->n_pending++;
        send_to(c, holder, tutti__message_pack(TUTTI__MESSAGE_PING));
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
    const tutti__message_join join = tutti__message_read_join(m);
    tutti__join says = read_join(c, p, &join);
    char why[512];

    if (p->node.joined)
        return;
    if (tutti__join_misfit(c->opts.job, &join, why, sizeof why))
        says.misfit = why;
    if (!tutti__rounds_joined(&c->rounds, now_ms(), &p->node, &says))
        wait_for_holder(c, p, m);
    else if (p->node.joined && c->rounds.state != TUTTI__ROUNDS_ENDED)
        tutti__join_warn(c->opts.job, c->opts.console, &join);
}

/* Retries nodes that wait because another has their rank. */
static void ask_again(tutti__coordinator *c)
{
    for (tutti__client *client = c->n_pending > 0 ? c->server.clients : NULL; client;
         client = client->next) {
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
    c->n_pending -= p->pending != NULL;
    json_decref(p->pending);
    p->pending = NULL;
}

/* ---- Messages ------------------------------------------------------------------------------------------- */

static void on_said(tutti__generations *g, tutti__worker_id id, const tutti__message_said *m)
{
    tutti__worker_message message = {
        .protocol = (uint32_t)m->protocol,
        .kind = (uint32_t)m->kind,
        .generation = (uint32_t)m->generation,
        .shards = (int32_t)m->shards,
        .step = m->step,
    };

    for (size_t i = 0; i < json_array_size(m->lost) && i < TUTTI__AGENT_MAX_LOST; i++)
        message.lost[message.n_lost++] = (int32_t)json_integer_value(json_array_get(m->lost, i));
    snprintf(message.build, sizeof message.build, "%s", m->build);
    snprintf(message.why, sizeof message.why, "%s", m->why);
    snprintf(message.settings, sizeof message.settings, "%s", m->settings);
    tutti__generations_said(g, now_ms(), id, &message);
}

static void on_worker(tutti__generations *g, int node, const json_t *m)
{
    const tutti__message_worker about = tutti__message_read_worker(m);
    const tutti__worker_id id = {node, about.worker, about.start};
    tutti__message_said said;
    tutti__message_ended ended;
    tutti__message_resumed resumed;

    switch (tutti__message_type_of(m)) {
    case TUTTI__MESSAGE_SAID:
        said = tutti__message_read_said(m);
        on_said(g, id, &said);
        return;
    case TUTTI__MESSAGE_ENDED:
        ended = tutti__message_read_ended(m);
        tutti__generations_ended(g, now_ms(), id, ended.code, ended.signal);
        return;
    case TUTTI__MESSAGE_STOPPED:
        tutti__generations_stopped(g, now_ms(), id, tutti__message_read_stopped(m).stopped);
        return;
    case TUTTI__MESSAGE_RESUMED:
        resumed = tutti__message_read_resumed(m);
        tutti__generations_resumed(g, now_ms(), id, (uint32_t)resumed.generation, resumed.rank,
                                   resumed.step);
        return;
    default:
        return;
    }
}

/* Messages of a node that has joined. */
static void on_node(tutti__coordinator *c, tutti__round_node *n, const json_t *m)
{
    tutti__rounds *r = &c->rounds;
    tutti__generations *g =
        tutti__rounds_workers(r, now_ms(), n, tutti__message_read_worker(m).round);
    tutti__message_failed failed;
    tutti__message_over over;
    tutti__message_leave leave;
    tutti__message_line line;

    switch (tutti__message_type_of(m)) {
    case TUTTI__MESSAGE_FAILED:
        failed = tutti__message_read_failed(m);
        tutti__rounds_failed(r, now_ms(), n, failed.round, failed.code, failed.permanent,
                             failed.why);
        return;
    case TUTTI__MESSAGE_OVER:
        over = tutti__message_read_over(m);
        tutti__rounds_over(r, now_ms(), n, over.round, over.port > 0 ? over.port : n->says.port);
        return;
    case TUTTI__MESSAGE_LEAVE:
        leave = tutti__message_read_leave(m);
        tutti__rounds_leaves(r, now_ms(), n, leave.final,
                             leave.signal > 0 ? 128 + leave.signal : leave.code, leave.why);
        return;
    case TUTTI__MESSAGE_LINE:
        line = tutti__message_read_line(m);
        tutti__console_line(c->opts.console, line.rank, line.prefix, line.text);
        return;
    case TUTTI__MESSAGE_HERE:
        tutti__rounds_here(r, now_ms(), n);
        return;
    case TUTTI__MESSAGE_NODES:
        tutti__rounds_acked(n, tutti__message_read_nodes(m).version);
        return;
    default:
        if (g)
            on_worker(g, n->id, m);
    }
}

static void on_message(void *context, tutti__client *client, const json_t *m)
{
    const tutti__message_type type = tutti__message_type_of(m);
    tutti__coordinator *c = context;
    peer *p = (peer *)client;
    tutti__message_moved moved;

    if (!p->known)
        tutti__rounds_connected(&c->rounds, now_ms(), &p->node);
    p->known = true;
    if (p->node.refused)
        return;
    if (type == TUTTI__MESSAGE_JOIN) {
        on_join(c, p, m);
    } else if (type == TUTTI__MESSAGE_MOVED) {
        moved = tutti__message_read_moved(m);
        tutti__rounds_moved(&c->rounds, moved.address, moved.port);
    } else if (type == TUTTI__MESSAGE_APART) {
        tutti__rounds_apart(&p->node);
    } else if (p->node.joined || (client->local && type == TUTTI__MESSAGE_LEAVE)) {
        on_node(c, &p->node, m);
    }
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

    tutti__rounds_init(
        &c->rounds, now_ms(),
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
                              .after = c->opts.last_generation ? *c->opts.last_generation : 0,
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
    if (c->opts.last_generation && c->rounds.generations.last > *c->opts.last_generation)
        *c->opts.last_generation = c->rounds.generations.last;
    tutti__rounds_free(&c->rounds);
    free(c->theirs);
    free(c->list);
    free(c);
}
