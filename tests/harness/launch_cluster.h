/* launch_cluster.h -- a job on several nodes in one process, at virtual time: the launcher's machines (src/launch/decide) with
 * models of the agents around them, their workers, and the network.   SPDX-License-Identifier: MIT
 *
 * Of tests/unit/launch_histories.c, which says what happens to it and what must hold. An agent (launch_agents.h) does what src/launch/agent does
 * with the machines' actions, as far as nodes and workers are concerned. Messages of a connection arrive in order, after 1 to 3 ms;
 * those to a node that is cut off wait, as in TCP, until it is back or one side has closed the connection. A worker is in at most
 * one group. Members that are all there and reach each other commit a step every STEP_MS; else those that see a peer gone leave. */
#ifndef TUTTI_TESTS_LAUNCH_CLUSTER_H
#define TUTTI_TESTS_LAUNCH_CLUSTER_H

#include "launch/decide/succession.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES = 5,
    LOCAL = 2, /* workers of a node */
    STEP_MS = 20,
    SILENCE_MS = 300, /* after which a worker considers an unreachable peer dead */
    KEEP_ALIVE_MS = 300,
    LOST_MS = 900, /* after which a connection's ends consider the other lost */
    DIAL_MS = 1000,
    JOIN_TIMEOUT_MS = 6000,
    ENDPOINT = 1, /* the port of the rendezvous, on node 0 */
    GROUPS = 256,
    CONNECTIONS = 64
};

typedef enum kind {
    /* to the coordinator */
    JOIN,
    FAILED,
    OVER,
    LEAVE,
    APART,
    HERE,
    ACKED,
    SAID,
    EXITED,
    RESUMED,
    /* to a node */
    ACTION,
    /* either */
    CLOSED
} kind;

typedef struct message {
    struct message *next;
    uint64_t at; /* when it arrives, if it can */
    kind kind;
    int number, code; /* number: of the round */
    int64_t version;
    bool flag; /* LEAVE: final; FAILED: permanent; CLOSED: by the other end or its kernel */
    tutti__worker_id id;
    tutti__worker_message said;
    uint32_t generation;
    int rank;
    tutti__join join;
    tutti__round_action action;
    tutti__action worker;
    int n_restarts, group_rank, first_rank, node_id, job;
    bool elastic, excluded, paused;
    int64_t term;
    int port;
    tutti__roster *list; /* owned: only its entries in use are there */
} message;

typedef struct pipe {
    message *first, **end;
} pipe;

/* From an agent to a process that may coordinate. Free when both ends are closed. */
typedef struct connection {
    bool agent_open, host_open;
    int agent, host; /* nodes */
    int agent_process, host_process;
    pipe up, down;
    uint64_t silent_since;      /* 0: the network carries it */
    uint64_t agent_ms, host_ms; /* silence after which either end closes it */
    tutti__round_node node;
    bool known; /* to the coordinator's rounds */
} connection;

typedef struct worker {
    bool runs;
    int start;
    bool waits;          /* said READY */
    uint32_t generation; /* the last it was told; 0: none */
    int rank;
    int64_t step;
    bool in; /* that generation */
    bool regroup, leave;
    bool awaits; /* the verdict about its end */
    bool finished;
    int code, sig;
    uint64_t ready_at; /* STARTING: when it says READY */
} worker;

typedef enum phase { IDLE, RUNNING, STOPPING } phase;

typedef struct agent {
    bool alive;  /* its process */
    int process; /* unique; 0: never started */
    int port;    /* where it listens; 0: not yet */
    int id, job;
    connection *main, *dial; /* NULL: none */
    bool hosts;
    uint32_t last_generation; /* of its coordinators */
    tutti__rounds rounds;
    tutti__succession succession;
    uint64_t dial_until;
    uint64_t next_try, since; /* of looking for the rendezvous */
    int n_rounds, restarts;   /* known to it */
    int number, n_nodes, group_rank, first_rank, world_size;
    phase phase;
    uint64_t idle_at; /* STOPPING: when its workers have ended */
    bool elastic, finished, failed;
    bool ended, stopped;           /* stopped: told to end, by a signal */
    int code;                      /* of its end */
    uint64_t since_work, whole_at; /* of a plain round */
    uint64_t tick_at;
    bool killed, gone, excluded;
    bool waited; /* when its side ended, for others that might have continued without it */
    uint64_t
        in_reach; /* how long it has reached, without a break, a process that knows that the job has ended with 0 */
    bool could_ask; /* that was long enough once */
    worker w[LOCAL];
} agent;

typedef struct group {
    uint32_t generation;
    int host_process, round;
    int size, told;
    struct {
        int node, process, local_rank, start;
    } member[NODES * LOCAL];
    bool formed, fresh;
    uint64_t next, formed_at, committed_at;
} group;

typedef enum faults { ONLY_DEATHS, ONLY_CUTS, ALL } faults;

typedef struct cluster {
    uint64_t now, random;
    agent a[NODES];
    connection pool[CONNECTIONS]; /* n_pool of them have been used */
    int n_pool;
    bool cut[NODES][NODES];
    uint64_t cut_at[NODES][NODES];
    bool off[NODES]; /* the machine: no packet leaves it */
    group groups[GROUPS];
    int n_groups;
    int last_process, last_job;
    /* of the job */
    int min, max, max_restarts, steps;
    bool elastic;
    faults kind;
    bool calm;          /* no more faults */
    bool ended;         /* a coordinator has ended the job */
    const char *broken; /* an invariant that does not hold */
    char what[256];
    bool rare; /* what was broken is known to be, rarely */
    uint64_t n_events;
    message *spare;
    bool trace; /* print what happens */
} cluster;

/* ---- Chance, and what went wrong --------------------------------------------------------------------------------- */

static uint64_t chance(cluster *c, uint64_t n) /* splitmix64 */
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static void broken(cluster *c, const char *what, int node)
{
    if (!c->broken)
        snprintf(c->what, sizeof c->what, "at %llu ms, node %d: %s", (unsigned long long)c->now,
                 node, what);
    c->broken = c->what;
}

/* The same of a rule that does not hold in all histories (tests/unit/launch_histories.c). */
static void broken_rarely(cluster *c, const char *what, int node)
{
    c->rare |= !c->broken;
    broken(c, what, node);
}

static void trace(const cluster *c, int node, const char *format, ...) TUTTI_PRINTF(3, 4);
static void trace(const cluster *c, int node, const char *format, ...)
{
    va_list args;

    if (!c->trace)
        return;
    printf("%6llu node %d: ", (unsigned long long)c->now, node);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

static bool reach(const cluster *c, int i, int k)
{
    return i == k || (!c->off[i] && !c->off[k] && !c->cut[i][k]);
}

static void set_cut(cluster *c, int i, int k, bool cut)
{
    if (i == k || c->cut[i][k] == cut)
        return;
    c->cut[i][k] = c->cut[k][i] = cut;
    c->cut_at[i][k] = c->cut_at[k][i] = c->now;
}

/* ---- Messages ------------------------------------------------------------------------------------------------------ */

static message *new_message(cluster *c, kind what)
{
    message *m = c->spare;

    if (m)
        c->spare = m->next;
    else
        m = malloc(sizeof *m);
    memset(m, 0, sizeof *m);
    m->kind = what;
    c->n_events++;
    return m;
}

static void drop(cluster *c, message *m)
{
    free(m->list);
    m->next = c->spare;
    c->spare = m;
}

static void drop_all(cluster *c, pipe *p)
{
    while (p->first) {
        message *m = p->first;

        p->first = m->next;
        drop(c, m);
    }
    p->end = &p->first;
}

static void put(cluster *c, const connection *x, pipe *p, message *m)
{
    m->at = c->now + (x->host == x->agent ? 0 : 1 + chance(c, 3));
    *p->end = m;
    p->end = &m->next;
}

static tutti__roster *copy_list(const tutti__roster *r)
{
    tutti__roster *copy =
        malloc(offsetof(tutti__roster, list) + (size_t)(r->n + 1) * sizeof *r->list);

    tutti__roster_copy(copy, r);
    return copy;
}

static int node_of(const cluster *c, const agent *a)
{
    return (int)(a - c->a);
}

/* To the coordinator, if there is one. */
static void send_up(cluster *c, agent *a, message *m)
{
    if (a->main)
        put(c, a->main, &a->main->up, m);
    else
        drop(c, m);
}

/* ---- Connections --------------------------------------------------------------------------------------------------- */

static connection *connect_to(cluster *c, const agent *a, int host)
{
    connection *x = c->pool;

    while (x < c->pool + c->n_pool && (x->agent_open || x->host_open))
        x++;
    if (x == c->pool + CONNECTIONS) {
        broken(c, "the model has too few connections", host);
        return NULL;
    }
    if (x == c->pool + c->n_pool)
        c->n_pool++;
    drop_all(c, &x->up);
    drop_all(c, &x->down);
    memset(x, 0, sizeof *x);
    x->up.end = &x->up.first;
    x->down.end = &x->down.first;
    x->agent_open = x->host_open = true;
    x->agent = node_of(c, a);
    x->host = host;
    x->agent_process = a->process;
    x->host_process = c->a[host].process;
    x->agent_ms = LOST_MS + chance(c, KEEP_ALIVE_MS);
    x->host_ms = LOST_MS + chance(c, KEEP_ALIVE_MS);
    return x;
}

static void close_host_end(cluster *c, connection *x, bool ended, const char *why)
{
    agent *h = &c->a[x->host];

    if (!x->host_open)
        return;
    x->host_open = false;
    if (x->known && h->hosts && h->process == x->host_process)
        tutti__rounds_lost(&h->rounds, c->now, &x->node, ended, why);
    x->known = false;
    put(c, x, &x->down, new_message(c, CLOSED));
}

/* Of a process that was asked: it must not take this for our death. */
static void close_agent_end(cluster *c, connection *x);
static void hang_up(cluster *c, connection *x)
{
    if (x && x->agent_open)
        put(c, x, &x->up, new_message(c, APART));
    close_agent_end(c, x);
}

static void close_agent_end(cluster *c, connection *x)
{
    if (!x || !x->agent_open)
        return;
    x->agent_open = false;
    put(c, x, &x->up, new_message(c, CLOSED));
}

/* ---- Workers ------------------------------------------------------------------------------------------------------- */

static void tell(cluster *c, agent *a, int i, message *m)
{
    m->number = a->number;
    m->id = (tutti__worker_id){0, i, a->w[i].start};
    send_up(c, a, m);
}

static void say(cluster *c, agent *a, int i, tutti__worker_message_kind what, int lost)
{
    message *m = new_message(c, SAID);
    const worker *w = &a->w[i];

    m->said = (tutti__worker_message){.protocol = TUTTI__AGENT_PROTOCOL,
                                      .kind = what,
                                      .generation = w->generation,
                                      .shards = NODES * LOCAL,
                                      .step = w->step,
                                      .n_lost = lost >= 0,
                                      .lost = {lost >= 0 ? lost : 0},
                                      .build = "one"};
    tell(c, a, i, m);
}

static void say_ready(cluster *c, agent *a, int i, int lost)
{
    worker *w = &a->w[i];

    w->in = w->regroup = false;
    if (w->leave) {
        say(c, a, i, TUTTI__WORKER_LEAVES, -1);
        w->runs = false;
        w->awaits = true;
        w->code = w->sig = 0;
        tell(c, a, i, new_message(c, EXITED));
        return;
    }
    w->waits = true;
    a->elastic = true;
    say(c, a, i, TUTTI__WORKER_READY, lost);
}

static void end_worker(cluster *c, agent *a, int i, int code, int sig)
{
    worker *w = &a->w[i];
    message *m;

    if (!w->runs)
        return;
    w->runs = w->in = w->waits = false;
    w->code = code;
    w->sig = sig;
    if (!a->elastic || a->phase != RUNNING)
        return;
    w->awaits = true;
    m = new_message(c, EXITED);
    m->code = code;
    m->rank = sig;
    tell(c, a, i, m);
}

static void start_worker(cluster *c, agent *a, int i, int start)
{
    a->w[i] =
        (worker){.runs = true, .start = start, .step = -1, .ready_at = c->now + 5 + chance(c, 40)};
}

static bool all_over(const agent *a)
{
    for (int i = 0; i < LOCAL; i++)
        if (a->w[i].runs || a->w[i].awaits)
            return false;
    return true;
}

/* Ends all workers of this node, which takes a moment. */
static void stop_workers(cluster *c, agent *a)
{
    if (a->phase != RUNNING)
        return;
    a->phase = STOPPING;
    a->idle_at = c->now + 5 + chance(c, 50);
}

static void fail_round(cluster *c, agent *a, int code)
{
    message *m;

    if (a->failed)
        return;
    a->failed = true;
    m = new_message(c, FAILED);
    m->number = a->number;
    m->code = code;
    send_up(c, a, m);
    stop_workers(c, a);
}

#endif
