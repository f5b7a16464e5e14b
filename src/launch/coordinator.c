/* coordinator.c -- the rendezvous of a job's nodes, round by round.   SPDX-License-Identifier: MIT */
#include "launch/coordinator.h"
#include "comm/bootstrap/store/store.h"
#include "launch/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    PROVE_MS = 10000,     /* for a connection to prove that it is of the job */
    UNPROVEN = 64,        /* connections at once */
    FAREWELL_MS = 5000,   /* for the others to take the end of the job */
    FIRST_WORD_MS = 3000, /* of waiting */
    LATER_WORD_MS = 30000,
    CLOCK_S = 5 /* clocks that differ by more make logs and files hard to read */
};

/* A node, or a connection that has yet to prove that it is one. */
typedef struct node {
    struct node *next;
    tutti__channel channel;
    tutti__acceptor acceptor;
    double deadline; /* by which it must have proven itself */
    bool local, proven, joined, refused;
    bool in_round;   /* it is a node of the current round */
    bool over;       /* its workers of the round have ended */
    bool left;       /* it was told to end */
    int group_rank;  /* in the last round it was in; -1: none */
    int wanted_rank; /* --node-rank; -1: none */
    int n, port;     /* workers; a free port there, for MASTER_PORT */
    int64_t pid;
    char host[64], address[128];
    json_t
        *pending; /* its wish to join, while we find out whether the holder of its rank is alive */
    double pending_ms; /* since when */
} node;

typedef enum job_state { GATHERING, RUNNING, STOPPING, ENDED } job_state;

struct tutti__coordinator {
    tutti__coordinator_opts opts;
    int epoll;
    tutti__claim claim;
    tutti__refusals refusals;
    node *nodes;
    int unproven;
    job_state state;
    bool began;   /* there has been a round */
    bool failing; /* the round is stopped because of a failure */
    bool retired; /* this node ends, and the others may wait for its return */
    int round, restarts;
    int n_in_round, code;
    char why[1024]; /* the first failure, or what stopped the round */
    double since, last_call, told, next_word, ended;
};

#define SAY(c, format, ...)                                                                        \
    tutti__console_print((c)->opts.console, "%s: " format "\n", (c)->opts.job->opts.title,         \
                         __VA_ARGS__)

static const tutti__nodes *limits(const tutti__coordinator *c)
{
    return &c->opts.job->opts.nodes;
}

/* "hostb (process 4711)" */
static const char *name_of(const node *n, char text[128])
{
    snprintf(text, 128, "%.63s (process %lld)", n->host, (long long)n->pid);
    return text;
}

/* ---- Telling the nodes ------------------------------------------------------------------------------- */

/* Wakes us when what waits can be sent. */
static void watch(tutti__coordinator *c, node *n)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = n};

    if (n->channel.n_out > 0)
        event.events |= EPOLLOUT;
    if (n->channel.fd >= 0)
        epoll_ctl(c->epoll, EPOLL_CTL_MOD, n->channel.fd, &event);
}

static void send_to(tutti__coordinator *c, node *n, json_t *message)
{
    tutti__channel_send(&n->channel, message);
    watch(c, n);
}

static void tell_end(tutti__coordinator *c, node *n)
{
    send_to(c, n,
            json_pack("{s:s, s:i, s:o}", "type", "end", "code", c->code, "why",
                      tutti__message_string(c->why)));
}

static void end_job(tutti__coordinator *c, int code)
{
    c->state = ENDED;
    c->code = code;
    c->ended = tutti__now_ms();
    for (node *n = c->nodes; n; n = n->next)
        if (n->joined)
            tell_end(c, n);
}

/* All nodes of the round are to end their workers. */
static void stop_round(tutti__coordinator *c, bool failing)
{
    c->failing = failing;
    c->state = STOPPING;
    for (node *n = c->nodes; n; n = n->next)
        if (n->in_round && !n->over)
            send_to(c, n,
                    json_pack("{s:s, s:i, s:o, s:b}", "type", "stop", "round", c->round, "why",
                              tutti__message_string(c->why), "failing", failing));
}

static void refuse(tutti__coordinator *c, node *n, const char *format, ...) TUTTI_PRINTF(3, 4);
static void refuse(tutti__coordinator *c, node *n, const char *format, ...)
{
    char why[512], name[128];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (!n->local)
        SAY(c, "node %s is refused: %s", name_of(n, name), why);
    n->refused = true;
    n->joined = false;
    send_to(c, n, json_pack("{s:s, s:o}", "type", "refuse", "why", tutti__message_string(why)));
    if (n->local)
        end_job(c, 2);
}

/* ---- Beginning a round ------------------------------------------------------------------------------- */

/* Before: nodes of the last round in their order, then new ones by host and process. */
static int by_order(const void *a, const void *b)
{
    const node *x = *(node *const *)a, *y = *(node *const *)b;
    int order;

    if (x->wanted_rank != y->wanted_rank)
        return (unsigned)x->wanted_rank < (unsigned)y->wanted_rank ? -1 : 1;
    if (x->group_rank != y->group_rank) /* -1, none, comes last */
        return (unsigned)x->group_rank < (unsigned)y->group_rank ? -1 : 1;
    order = strcmp(x->host, y->host);
    if (order == 0)
        order = (x->pid > y->pid) - (x->pid < y->pid);
    return order;
}

static int count_idle(const tutti__coordinator *c)
{
    int count = 0;

    for (const node *n = c->nodes; n; n = n->next)
        count += n->joined && !n->in_round;
    return count;
}

/* The idle nodes in the order of their ranks, at most `max` of them; how many. */
static int choose_nodes(const tutti__coordinator *c, node **chosen, int max)
{
    node **all = malloc(((size_t)count_idle(c) + 1) * sizeof(*all));
    int count = 0;

    for (node *n = c->nodes; all && n; n = n->next)
        if (n->joined && !n->in_round)
            all[count++] = n;
    if (count > 0)
        qsort(all, (size_t)count, sizeof(*all), by_order);
    count = count < max ? count : max;
    if (count > 0)
        memcpy(chosen, all, (size_t)count * sizeof(*all));
    free(all);
    return count;
}

static void tell_round(tutti__coordinator *c, node *const *nodes, int n_nodes)
{
    const tutti__job *job = c->opts.job;
    int world_size = 0, first_rank = 0;

    for (int i = 0; i < n_nodes; i++)
        world_size += nodes[i]->n;
    for (int i = 0; i < n_nodes; i++) {
        node *n = nodes[i];

        n->group_rank = i;
        n->in_round = true;
        n->over = false;
        send_to(c, n,
                json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:i, s:o, s:o}", "type",
                          "round", "round", c->round, "restarts", c->restarts, "max_restarts",
                          job->opts.max_restarts, "group_rank", i, "nodes", n_nodes, "first_rank",
                          first_rank, "world_size", world_size, "master_addr",
                          tutti__message_string(nodes[0]->address), "master_port", nodes[0]->port,
                          "store", tutti__message_string(job->store_address), "id",
                          tutti__message_string(job->id)));
        first_rank += n->n;
    }
    c->n_in_round = n_nodes;
}

static void begin_round(tutti__coordinator *c)
{
    int max = limits(c)->max, n_nodes;
    node **nodes = malloc((size_t)max * sizeof(*nodes));

    if (!nodes) {
        snprintf(c->why, sizeof c->why, "no memory for %d nodes", max);
        end_job(c, 4);
        return;
    }
    n_nodes = choose_nodes(c, nodes, max);
    c->round += c->began;
    c->began = true;
    c->state = RUNNING;
    c->failing = false;
    c->why[0] = '\0';
    c->code = 0;
    tutti__store_fence(c->opts.job->store, c->round);
    tell_round(c, nodes, n_nodes);
    free(nodes);
}

/* Static: all numbers; else enough nodes, and the last call over, or the same nodes as before, as far as they are
 * left. */
static bool is_complete(tutti__coordinator *c)
{
    int idle = count_idle(c);

    if (idle < limits(c)->min) {
        c->last_call = 0;
        return false;
    }
    if (idle >= limits(c)->max || c->began)
        return true;
    if (c->last_call == 0)
        c->last_call = tutti__now_ms() + tutti__or(limits(c)->last_call_s, 30) * 1e3;
    return tutti__now_ms() >= c->last_call;
}

/* Who has come, and how many are missing. */
static void tell_waiting(tutti__coordinator *c)
{
    double now = tutti__now_ms();
    char text[512];
    int used, idle = count_idle(c);

    if (now < c->next_word)
        return;
    c->next_word = now + (c->told > 0 ? LATER_WORD_MS : FIRST_WORD_MS);
    c->told++;
    if (c->told == 1) /* the first word is not said at once */
        return;
    used = snprintf(text, sizeof text, "waiting for nodes since %.0f s: %d of %d%s came (",
                    (now - c->since) * 1e-3, idle, limits(c)->min,
                    limits(c)->max > limits(c)->min ? " or more" : "");
    for (const node *n = c->nodes; n && used < (int)sizeof text - 80; n = n->next)
        if (n->joined && !n->in_round)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%.63s",
                             text[used - 1] == '(' ? "" : ", ", n->host);
    snprintf(text + used, sizeof text - (size_t)used, ")");
    for (node *n = c->nodes; n; n = n->next)
        if (n->joined)
            send_to(c, n,
                    json_pack("{s:s, s:o}", "type", "wait", "why", tutti__message_string(text)));
}

static void gather(tutti__coordinator *c)
{
    double limit_s = tutti__or(limits(c)->join_timeout_s, 600);

    if (is_complete(c)) {
        begin_round(c);
    } else if (tutti__now_ms() >= c->since + limit_s * 1e3) {
        snprintf(c->why, sizeof c->why,
                 "waited %g s for %d nodes, but only %d came; are the others started, with this "
                 "endpoint, and can they reach it? (--rdzv-conf join_timeout=%g)",
                 limit_s, limits(c)->min, count_idle(c), limit_s);
        end_job(c, 3);
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

    for (const node *n = c->nodes; n; n = n->next)
        count += n->in_round && !n->over;
    return count;
}

/* The first word of a failure counts, but "I lost a peer" (3) gives way to a cause. */
static void note_failure(tutti__coordinator *c, int code, const char *why)
{
    if (c->failing && (c->code != 3 || code == 3))
        return;
    c->code = code;
    snprintf(c->why, sizeof c->why, "%s", why);
    if (c->state == RUNNING)
        stop_round(c, true);
    c->failing = true;
}

/* All workers of the round have ended. */
static void conclude(tutti__coordinator *c)
{
    for (node *n = c->nodes; n; n = n->next)
        n->in_round = n->over = false;
    if (c->state == RUNNING) {
        end_job(c, 0);
        return;
    }
    if (c->failing && c->opts.round_over)
        c->opts.round_over(c->opts.context);
    if (c->failing && c->restarts >= c->opts.job->opts.max_restarts) {
        end_job(c, c->code);
        return;
    }
    c->restarts += c->failing;
    enter_gathering(c);
}

static void consider(tutti__coordinator *c)
{
    if ((c->state == RUNNING || c->state == STOPPING) && count_running(c) == 0)
        conclude(c);
    if (c->state == RUNNING && c->n_in_round < limits(c)->max && count_idle(c) > 0) {
        snprintf(c->why, sizeof c->why, "%d more node%s came", count_idle(c),
                 count_idle(c) == 1 ? "" : "s");
        stop_round(c, false);
    }
    if (c->state == GATHERING)
        gather(c);
}

/* ---- What nodes say ---------------------------------------------------------------------------------- */

static node *holder_of(const tutti__coordinator *c, const node *other)
{
    for (node *n = c->nodes; n; n = n->next)
        if (n != other && n->joined && n->wanted_rank >= 0 && n->wanted_rank == other->wanted_rank)
            return n;
    return NULL;
}

/* Refuses a node that cannot take part. */
static bool fits(tutti__coordinator *c, node *n, const json_t *m)
{
    const tutti__nodes *l = limits(c);
    int min = (int)tutti__message_number(m, "min", 0),
        max = (int)tutti__message_number(m, "max", 0);
    const char *version = tutti__message_text(m, "version");

    if (tutti__message_number(m, "protocol", 0) != TUTTI__RENDEZVOUS_PROTOCOL ||
        strcmp(version, TUTTI_VERSION) != 0)
        refuse(c, n, "it runs tutti %.20s, the rendezvous host %s: install the same on all nodes",
               version, TUTTI_VERSION);
    else if (min != l->min || max != l->max)
        refuse(c, n,
               "it was started with --nnodes %d:%d, the rendezvous host with %d:%d: all nodes need "
               "the same",
               min, max, l->min, l->max);
    else if (json_is_true(json_object_get(m, "native")) != l->native)
        refuse(c, n, "it was started with --rdzv-backend %s, the rendezvous host with %s",
               l->native ? "static" : "native", l->native ? "native" : "static");
    else if (n->n < 1 || n->n > 1 << 16 || n->port < 1 || n->port > 65535)
        refuse(c, n, "its message makes no sense (%d workers, port %d)", n->n, n->port);
    else if (!l->native && (n->wanted_rank < 0 || n->wanted_rank >= l->max))
        refuse(c, n, "its --node-rank is %d, expected 0 to %d", n->wanted_rank, l->max - 1);
    else
        return true;
    return false;
}

/* Is its rank another node's? A machine that has lost its power does not say good-bye: the newcomer waits until the holder
 * is heard, and is refused then, or is lost. */
static bool must_wait(tutti__coordinator *c, node *n, const json_t *m)
{
    node *holder = holder_of(c, n);
    char name[128];

    if (!holder)
        return false;
    if (!n->pending) {
        n->pending = json_incref((json_t *)(uintptr_t)m);
        n->pending_ms = tutti__now_ms();
        send_to(c, holder, json_pack("{s:s}", "type", "ping"));
    }
    if (holder->local || holder->channel.heard_ms > n->pending_ms)
        refuse(c, n, "--node-rank %d is taken by %s: each node needs its own, from 0 to %d",
               n->wanted_rank, name_of(holder, name), limits(c)->max - 1);
    return true;
}

/* What may differ, but should not. */
static void warn_of_differences(tutti__coordinator *c, const node *n, const json_t *m)
{
    int64_t ahead = tutti__message_number(m, "clock", 0) - (int64_t)time(NULL);
    int restarts = (int)tutti__message_number(m, "max_restarts", 0);

    if (ahead > CLOCK_S || ahead < -CLOCK_S)
        SAY(c,
            "the clock of node %s is %lld s %s of this one's: times in logs will not fit (is NTP "
            "running?)",
            n->host, (long long)llabs(ahead), ahead > 0 ? "ahead" : "behind");
    if (restarts != c->opts.job->opts.max_restarts)
        SAY(c, "node %s was started with --max-restarts %d; %d, of the rendezvous host, counts",
            n->host, restarts, c->opts.job->opts.max_restarts);
}

static void on_join(tutti__coordinator *c, node *n, const json_t *m)
{
    const char *address = tutti__message_text(m, "address");
    int rounds = (int)tutti__message_number(m, "rounds", 0),
        restarts = (int)tutti__message_number(m, "restarts", 0);

    snprintf(n->host, sizeof n->host, "%s", tutti__message_text(m, "host"));
    snprintf(n->address, sizeof n->address, "%s", *address ? address : c->opts.address);
    n->pid = tutti__message_number(m, "pid", 0);
    n->n = (int)tutti__message_number(m, "workers", 0);
    n->port = (int)tutti__message_number(m, "port", 0);
    n->wanted_rank = limits(c)->native ? -1 : (int)tutti__message_number(m, "node_rank", -1);
    if (c->state == ENDED) {
        n->joined = true;
        tell_end(c, n);
        return;
    }
    if (n->joined || !fits(c, n, m) || must_wait(c, n, m))
        return;
    n->joined = true;
    warn_of_differences(c, n, m);
    if (c->began)
        return;
    /* A rendezvous host that has died and come back learns from the others how far they were. */
    c->round = rounds > c->round ? rounds : c->round;
    c->restarts = restarts > c->restarts ? restarts : c->restarts;
}

/* Nodes that wait because another has their rank. */
static void ask_again(tutti__coordinator *c)
{
    for (node *n = c->nodes; n; n = n->next)
        if (n->pending && n->channel.fd >= 0 && !n->joined && !n->refused)
            on_join(c, n, n->pending);
}

static void lose(tutti__coordinator *c, node *n, const char *why)
{
    char text[512], name[128];
    bool was_running = n->in_round && !n->over;

    n->joined = n->in_round = false;
    json_decref(n->pending);
    n->pending = NULL;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, n->channel.fd, NULL);
    tutti__channel_close(&n->channel);
    if (!was_running || (c->state != RUNNING && c->state != STOPPING))
        return;
    if (n->left) {
        if (c->state == RUNNING) {
            snprintf(c->why, sizeof c->why, "node %s left", name_of(n, name));
            stop_round(c, false);
        }
        return;
    }
    snprintf(text, sizeof text, "node %s was lost: %s", name_of(n, name), why);
    note_failure(c, 3, text);
}

/* A node that was told to end goes; without it the job goes on if that is allowed. */
static void on_leave(tutti__coordinator *c, node *n, const json_t *m)
{
    int sig = (int)tutti__message_number(m, "signal", 0), others = -1;
    bool may_return = c->restarts < c->opts.job->opts.max_restarts;
    char name[128];

    n->left = true;
    for (const node *o = c->nodes; o; o = o->next)
        others += o->joined;
    snprintf(c->why, sizeof c->why, "node %s ends: %s", name_of(n, name),
             tutti__message_text(m, "why"));
    if (c->state == ENDED)
        return;
    if (n->local && others > 0 && may_return && !json_is_true(json_object_get(m, "final"))) {
        c->retired = true;
        return;
    }
    if (n->local || json_is_true(json_object_get(m, "final")) ||
        (others < limits(c)->min && !may_return)) {
        end_job(c, sig > 0 ? 128 + sig : (int)tutti__message_number(m, "code", 1));
    } else if (c->state == RUNNING && n->in_round) {
        c->restarts += others < limits(c)->min;
        stop_round(c, false);
    }
}

static void on_message(tutti__coordinator *c, node *n, const json_t *m)
{
    bool current = tutti__message_number(m, "round", -1) == c->round && n->in_round;

    if (n->refused)
        return;
    if (tutti__message_is(m, "join"))
        on_join(c, n, m);
    else if (!n->joined && !(n->local && tutti__message_is(m, "leave")))
        return;
    else if (tutti__message_is(m, "failed") && current)
        note_failure(c, (int)tutti__message_number(m, "code", 1), tutti__message_text(m, "why"));
    else if (tutti__message_is(m, "over") && current) {
        n->over = true;
        n->joined = !n->left;
        n->port = (int)tutti__message_number(m, "port", n->port);
    } else if (tutti__message_is(m, "leave"))
        on_leave(c, n, m);
}

/* ---- Connections ------------------------------------------------------------------------------------- */

static node *add_node(tutti__coordinator *c, int fd)
{
    node *n = calloc(1, sizeof *n);

    if (!n || epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd,
                        &(struct epoll_event){.events = EPOLLIN, .data.ptr = n}) != 0) {
        free(n);
        close(fd);
        return NULL;
    }
    tutti__channel_open(&n->channel, fd);
    n->group_rank = n->wanted_rank = -1;
    n->deadline = tutti__now_ms() + PROVE_MS;
    n->next = c->nodes;
    c->nodes = n;
    return n;
}

static void accept_all(tutti__coordinator *c)
{
    int fd;

    while ((fd = tutti__accept(c->opts.listener)) >= 0) {
        if (c->unproven >= UNPROVEN)
            close(fd); /* it tries again */
        else if (add_node(c, fd))
            c->unproven++;
    }
}

/* False: it is not of this job. */
static bool prove(tutti__coordinator *c, node *n)
{
    int state = tutti__acceptor_step(&n->acceptor, n->channel.fd, c->opts.secret, &c->claim);

    if (state == 0)
        return true;
    if (state > 0 && tutti__acceptor_decide(&n->acceptor, n->channel.fd, TUTTI__WELCOME)) {
        n->proven = true;
        c->unproven--;
        return true;
    }
    tutti__log_refusal(&c->refusals, n->channel.fd, &n->acceptor, "the rendezvous", NULL);
    return false;
}

static void serve_node(tutti__coordinator *c, node *n)
{
    json_t *message;

    if (n->channel.fd < 0)
        return;
    if (!n->proven) {
        if (!prove(c, n)) {
            c->unproven--;
            lose(c, n, "");
        }
        return;
    }
    tutti__channel_flush(&n->channel);
    tutti__channel_read(&n->channel);
    while ((message = tutti__channel_take(&n->channel)) != NULL) {
        on_message(c, n, message);
        json_decref(message);
    }
    if (n->channel.fault)
        lose(c, n, n->channel.fault);
    else
        watch(c, n);
}

static void forget_lost(tutti__coordinator *c)
{
    for (node **at = &c->nodes; *at;) {
        node *n = *at;

        if (n->channel.fd >= 0) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        free(n);
    }
}

/* Says that we are here, and looks whether they are. */
static void keep_alive(tutti__coordinator *c)
{
    double interval = tutti__or(limits(c)->keep_alive_s, 5) * 1e3, now = tutti__now_ms();
    int misses = limits(c)->keep_alive_misses > 0 ? limits(c)->keep_alive_misses : 3;
    char why[96];

    snprintf(why, sizeof why, "it has not been heard for %g s", interval * misses * 1e-3);
    for (node *n = c->nodes; n; n = n->next) {
        if (n->channel.fd < 0 || n->local)
            continue;
        if (!n->proven && now >= n->deadline) {
            c->unproven--;
            lose(c, n, "");
        } else if (n->proven && now - n->channel.heard_ms > interval * misses) {
            lose(c, n, why);
        } else if (n->proven && now >= n->deadline) {
            send_to(c, n, json_pack("{s:s}", "type", "ping"));
            n->deadline = now + interval;
        }
    }
}

void tutti__coordinator_serve(tutti__coordinator *c)
{
    struct epoll_event events[64];
    int n;

    do {
        n = epoll_wait(c->epoll, events, 64, 0);
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr)
                serve_node(c, events[i].data.ptr);
            else
                accept_all(c);
        keep_alive(c);
        ask_again(c);
        forget_lost(c);
        consider(c);
    } while (n == 64);
}

double tutti__coordinator_deadline(const tutti__coordinator *c)
{
    double next = c->state == GATHERING ? c->next_word : 1e300;
    double limit = c->since + tutti__or(limits(c)->join_timeout_s, 600) * 1e3;

    if (c->state == GATHERING && limit < next)
        next = limit;
    if (c->state == GATHERING && c->last_call > 0 && c->last_call < next)
        next = c->last_call;
    if (c->state == ENDED)
        next = c->ended + FAREWELL_MS;
    for (const node *n = c->nodes; n; n = n->next)
        if (!n->local && n->deadline < next)
            next = n->deadline;
    return next;
}

int tutti__coordinator_fd(const tutti__coordinator *c)
{
    return c->epoll;
}

/* ---- Beginning and end ------------------------------------------------------------------------------- */

bool tutti__coordinator_done(const tutti__coordinator *c)
{
    if (c->retired || (c->state == ENDED && tutti__now_ms() >= c->ended + FAREWELL_MS))
        return true;
    if (c->state != ENDED)
        return false;
    for (const node *n = c->nodes; n; n = n->next)
        if (!n->local && n->proven && !n->refused)
            return false;
    return true;
}

tutti_status tutti__coordinator_new(tutti__coordinator **coordinator_p,
                                    const tutti__coordinator_opts *opts)
{
    tutti__coordinator *c = tutti__alloc(sizeof *c);
    node *local;

    *coordinator_p = NULL;
    if (!c)
        return TUTTI_ERR_MEMORY;
    *c = (tutti__coordinator){.opts = *opts, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    c->claim =
        (tutti__claim){.kind = 'L', .job = opts->secret->job, .process = opts->secret->process};
    enter_gathering(c);
    local = c->epoll >= 0 ? add_node(c, opts->local) : NULL;
    if (local)
        local->local = local->proven = true;
    if (!local || (opts->listener >= 0 &&
                   epoll_ctl(c->epoll, EPOLL_CTL_ADD, opts->listener,
                             &(struct epoll_event){.events = EPOLLIN, .data.ptr = NULL}) != 0)) {
        tutti_status status = tutti__fail_errno(errno, "no descriptor for the rendezvous");

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
    for (node *n = c->nodes, *next; n; n = next) {
        next = n->next;
        tutti__channel_close(&n->channel);
        free(n);
    }
    if (c->opts.listener >= 0)
        close(c->opts.listener);
    if (c->epoll >= 0)
        close(c->epoll);
    free(c);
}
