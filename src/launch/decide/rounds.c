/* rounds.c -- the rounds of a job: when one begins, with which nodes, and what follows its end.   SPDX-License-Identifier: MIT
 *
 * Events (rounds_events.c) change the table of nodes, and then `tick` takes the actions that the whole table requires. */
#include "launch/decide/rounds_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_LINE_MS = 3000, /* of waiting, before the first line about it */
    SETTLE_MS = 5000,     /* opts.settle_ms */
    LATE_MS = 60000       /* in which a round fails that new nodes do not fit in */
};

/* ---- Nodes ------------------------------------------------------------------------------------------- */

static int count_running(const tutti__rounds *r)
{
    int count = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        count += n->in_round && !n->over;
    return count;
}

static bool is_idle(const tutti__round_node *n)
{
    return n->joined && !n->in_round && !n->busy;
}

static int count_idle(const tutti__rounds *r)
{
    int count = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        count += is_idle(n);
    return count;
}

/* ---- Beginning a round ------------------------------------------------------------------------------- */

/* Nodes of the last round in their order, then new ones by host and process. Converted to unsigned, -1 comes last. */
static int by_order(const void *a, const void *b)
{
    const tutti__round_node *x = *(tutti__round_node *const *)a,
                            *y = *(tutti__round_node *const *)b;
    int order;

    if (x->says.wanted_rank != y->says.wanted_rank)
        return (unsigned)x->says.wanted_rank < (unsigned)y->says.wanted_rank ? -1 : 1;
    if (x->group_rank != y->group_rank)
        return (unsigned)x->group_rank < (unsigned)y->group_rank ? -1 : 1;
    order = strcmp(x->says.host, y->says.host);
    return order ? order : (x->says.pid > y->says.pid) - (x->says.pid < y->says.pid);
}

/* The idle nodes in the order of their ranks, to be freed; at most `max` of them. NULL: no memory. */
static tutti__round_node **choose_nodes(const tutti__rounds *r, int *n_p)
{
    tutti__round_node **chosen = malloc(((size_t)count_idle(r) + 1) * sizeof(*chosen));

    *n_p = 0;
    for (tutti__round_node *n = r->nodes; chosen && n; n = n->next)
        if (is_idle(n))
            chosen[(*n_p)++] = n;
    if (chosen)
        qsort(chosen, (size_t)*n_p, sizeof(*chosen), by_order);
    *n_p = *n_p < r->opts.max ? *n_p : r->opts.max;
    return chosen;
}

/* Ranks among the workers of one role. */
typedef struct role {
    const char *name;
    int before, workers; /* on nodes before the one that is told; on all */
} role;

/* The role of a node among the n_p roles; a new one if it has none of these. Mostly all nodes have the same. */
static role *find_role(role *roles, int *n_p, const tutti__round_node *n)
{
    for (int i = 0; i < *n_p; i++)
        if (strcmp(roles[i].name, n->says.role) == 0)
            return &roles[i];
    roles[*n_p] = (role){.name = n->says.role};
    return &roles[(*n_p)++];
}

static void tell_round(tutti__rounds *r, tutti__round_node *n, int n_nodes, int world_size,
                       const role *its)
{
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_BEGIN,
                                              .node = n,
                                              .number = r->number,
                                              .n_nodes = n_nodes,
                                              .world_size = world_size,
                                              .first_role_rank = its->before,
                                              .role_world_size = its->workers});
}

/* Tells all nodes of a new round, in their order. False: no memory. */
static bool tell_all(tutti__rounds *r, tutti__round_node *const *nodes, int n)
{
    role *roles = malloc((size_t)n * sizeof *roles);
    int n_roles = 0, world_size = 0;

    if (!roles)
        return false;
    for (int i = 0; i < n; i++) {
        find_role(roles, &n_roles, nodes[i])->workers += nodes[i]->says.workers;
        world_size += nodes[i]->says.workers;
    }
    for (int i = 0; i < n && r->state == TUTTI__ROUNDS_RUNNING; i++) {
        role *its = find_role(roles, &n_roles, nodes[i]);

        tell_round(r, nodes[i], n, world_size, its);
        its->before += nodes[i]->says.workers;
    }
    free(roles);
    return true;
}

/* Tells one that comes to a round. */
static void tell_late(tutti__rounds *r, tutti__round_node *n)
{
    role its = {.name = n->says.role};
    int world_size = 0;

    for (const tutti__round_node *o = r->nodes; o; o = o->next) {
        bool same_role = o->in_round && strcmp(o->says.role, its.name) == 0;

        if (o->in_round && o->first_rank + o->says.workers > world_size)
            world_size = o->first_rank + o->says.workers;
        its.workers += same_role ? o->says.workers : 0;
        its.before += same_role && o->first_rank < n->first_rank ? o->says.workers : 0;
    }
    tell_round(r, n, tutti__round_count(r), world_size, &its);
}

/* What nodes of the round have: node numbers, or ranks. */
typedef struct range {
    int begin, end;
} range;

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The lowest node number, or rank, from which `n` are free; -1: no memory. */
static int first_free(const tutti__rounds *r, int n, bool ranks)
{
    range *taken = malloc(((size_t)tutti__round_count(r) + 1) * sizeof *taken);
    int first = 0, count = 0;

    if (!taken)
        return -1;
    for (const tutti__round_node *o = r->nodes; o; o = o->next) {
        const int begin = ranks ? o->first_rank : o->group_rank;

        if (o->in_round)
            taken[count++] = (range){begin, begin + (ranks ? o->says.workers : 1)};
    }
    qsort(taken, (size_t)count, sizeof *taken, by_begin);
    for (int i = 0; i < count && taken[i].begin < first + n; i++)
        first = taken[i].end > first ? taken[i].end : first;
    free(taken);
    return first;
}

/* Admits nodes that come during an elastic round: their workers join at the end of a step. */
static void admit(tutti__rounds *r)
{
    const tutti__generations *g = &r->generations;
    char name[128];

    for (tutti__round_node *n = r->nodes; n; n = n->next) {
        if (!is_idle(n) || r->paused || tutti__round_count(r) >= r->opts.max || g->finished ||
            tutti__generations_living(g, -1) == 0)
            continue;
        n->group_rank = n->says.wanted_rank >= 0 ? n->says.wanted_rank : first_free(r, 1, false);
        n->first_rank = first_free(r, n->says.workers, true);
        if (n->group_rank < 0 || n->first_rank < 0)
            return; /* retried with the next event */
        n->id = 0;
        tutti__round_enter(r, n);
        tutti__round_say(r, "node %s joins with %d worker%s", tutti__node_name(n, name),
                         n->says.workers, n->says.workers == 1 ? "" : "s");
        tell_late(r, n);
    }
}

/* One that none of the nodes knows, also if another coordinator was lost before this one. */
static int next_number(const tutti__rounds *r, tutti__round_node *const *nodes, int n)
{
    int number = r->number + r->began;

    for (int i = 0; i < n; i++)
        number = nodes[i]->says.rounds > number ? nodes[i]->says.rounds : number;
    return number;
}

static void begin_round(tutti__rounds *r)
{
    int n_nodes;
    tutti__round_node **nodes = choose_nodes(r, &n_nodes);

    if (!nodes) {
        snprintf(r->why, sizeof r->why, "no memory for %d nodes", count_idle(r));
        tutti__round_end_job(r, 4);
        return;
    }
    tutti__round_renew(r, next_number(r, nodes, n_nodes));
    r->state = TUTTI__ROUNDS_RUNNING;
    r->failing = r->paused = false;
    r->recount = true;
    r->roster.n = r->confirmed.n = 0; /* with new node ids */
    r->why[0] = '\0';
    r->code = 0;
    tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_FENCE, .number = r->number});
    snprintf(r->master_addr, sizeof r->master_addr, "%s", nodes[0]->says.address);
    r->master_port = nodes[0]->says.port;
    for (int i = 0, rank = 0; i < n_nodes && r->state == TUTTI__ROUNDS_RUNNING;
         rank += nodes[i++]->says.workers) {
        nodes[i]->late = r->began && nodes[i]->group_rank < 0 && !nodes[i]->says.local;
        nodes[i]->group_rank = i;
        nodes[i]->id = 0;
        nodes[i]->first_rank = rank;
        tutti__round_enter(r, nodes[i]);
    }
    r->began = true;
    if (!tell_all(r, nodes, n_nodes)) {
        snprintf(r->why, sizeof r->why, "no memory for %d nodes", n_nodes);
        tutti__round_end_job(r, 4);
    }
    free(nodes);
}

/* ---- Gathering nodes ------------------------------------------------------------------------------------- */

static void enter_gathering(tutti__rounds *r)
{
    r->state = TUTTI__ROUNDS_GATHERING;
    r->since = r->now;
    r->last_call = r->next_line = 0;
    r->lines = 0;
}

/* Static: all numbers are present; else there are enough nodes, and the last call is over, or they are the remaining nodes of
 * the last round. */
static bool is_complete(tutti__rounds *r)
{
    int idle = count_idle(r);

    if (idle < r->opts.min) {
        r->last_call = 0;
        return false;
    }
    if (idle >= r->opts.max || r->began || (r->survivors > 0 && idle >= r->survivors) ||
        r->opts.last_call_s < 0)
        return true;
    if (r->last_call == 0)
        r->last_call = r->now + tutti__round_ms(r->opts.last_call_s, 30);
    return r->now >= r->last_call;
}

/* Says which nodes have joined, and how many are missing. */
static void tell_waiting(tutti__rounds *r)
{
    char text[512];
    int used;

    if (r->now < r->next_line)
        return;
    r->next_line = r->now + (r->lines > 0 ? (uint64_t)TUTTI__ROUNDS_REPEAT_MS : FIRST_LINE_MS);
    if (r->lines++ == 0) /* nothing at the first time */
        return;
    used = snprintf(text, sizeof text, "waiting for nodes (%.0f s so far): %d of %d%s came (",
                    (double)(r->now - r->since) * 1e-3, count_idle(r), r->opts.min,
                    r->opts.max > r->opts.min ? " or more" : "");
    for (const tutti__round_node *n = r->nodes; n && used < (int)sizeof text - 80; n = n->next)
        if (is_idle(n))
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%.63s",
                             text[used - 1] == '(' ? "" : ", ", n->says.host);
    snprintf(text + used, sizeof text - (size_t)used, ")");
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->joined)
            tutti__round_do(
                r, &(tutti__round_action){.act = TUTTI__ROUND_WAIT, .node = n, .why = text});
}

static void gather(tutti__rounds *r)
{
    double limit_s = tutti__or(r->opts.join_timeout_s, 600);

    if (is_complete(r)) {
        begin_round(r);
    } else if (r->now >= tutti__round_limit(r)) {
        snprintf(r->why, sizeof r->why,
                 "waited %g s for %d nodes, but only %d came; are the others started, with this "
                 "endpoint, and can they reach it? (--rdzv-conf join_timeout=%g)",
                 limit_s, r->opts.min, count_idle(r), limit_s);
        tutti__round_end_job(r, 3);
    } else {
        tell_waiting(r);
    }
}

/* ---- Ending a round ---------------------------------------------------------------------------------- */

/* A summary of an elastic round, in one line. */
static void tell_summary(const tutti__rounds *r)
{
    const tutti__generations *g = &r->generations;

    if (r->opts.quiet || !g->elastic || g->last == 0 ||
        (g->step <= 0 && g->deaths == 0 && g->joined == 0))
        return; /* it failed, or there was nothing to do */
    tutti__round_say(
        r,
        "%lld steps in %.1f s; %d death%s, %d replacement%s, %d worker%s joined and %d left; %u "
        "generation%s; %.2f s lost to deaths%s",
        (long long)(g->step < 0 ? 0 : g->step), (double)(r->now - r->since) * 1e-3, g->deaths,
        g->deaths == 1 ? "" : "s", g->replaced, g->replaced == 1 ? "" : "s", g->joined,
        g->joined == 1 ? "" : "s", g->left, g->last, g->last == 1 ? "" : "s",
        (double)g->lost_ms * 1e-3, r->inherited ? " (since this node coordinates)" : "");
}

/* The round failed soon after nodes had come to those of the round before, and would again: it is they who do not fit.
 * They are refused, and the others go on. */
static void refuse_late(tutti__rounds *r)
{
    int late = 0;
    char why[sizeof r->why];

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        late += n->in_round && n->late;
    if (!r->failing || !r->permanent || late == 0 || late == tutti__round_count(r) ||
        r->now >= r->since + LATE_MS)
        return;
    snprintf(why, sizeof why, "%s", r->why);
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->in_round && n->late)
            tutti__rounds_refuse(r, r->now, n, why);
    r->failing = r->permanent = false;
}

/* Of many nodes not all have said that their workers failed. */
static void tell_failures(const tutti__rounds *r)
{
    int failed = 0;

    for (const tutti__round_node *n = r->nodes; n; n = n->next)
        failed += n->in_round && n->failed;
    if (r->failing && failed > 1)
        tutti__round_say(r, "workers of %d of %d nodes failed", failed, tutti__round_count(r));
}

/* All workers of the round have ended. */
static void conclude(tutti__rounds *r)
{
    tell_summary(r);
    tell_failures(r);
    refuse_late(r);
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        n->in_round = n->over = false;
    if (r->state == TUTTI__ROUNDS_RUNNING) {
        tutti__round_end_job(r, 0);
        return;
    }
    if (r->failing)
        tutti__round_do(r, &(tutti__round_action){.act = TUTTI__ROUND_FAILED});
    if (r->paused && !r->failing)
        snprintf(r->why, sizeof r->why,
                 "its workers ended while it waited for nodes that may have continued");
    /* Without enough nodes of the round before, another must not begin beside them. */
    if (r->paused || (r->failing && (r->permanent || r->restarts >= r->opts.max_restarts))) {
        tutti__round_end_job(r, r->failing ? r->code : 3);
        return;
    }
    r->restarts += r->failing;
    enter_gathering(r);
}

/* Whether nodes have come for which all workers must restart: there is room for them, and the round is not about to complete. */
static bool has_newcomers(const tutti__rounds *r)
{
    return !tutti__rounds_is_elastic(r) && tutti__round_count(r) < r->opts.max &&
           count_idle(r) > 0 && count_running(r) == tutti__round_count(r);
}

static uint64_t settled_at(const tutti__rounds *r)
{
    return r->since + (r->opts.settle_ms > 0 ? r->opts.settle_ms : SETTLE_MS);
}

static void announce_elastic(tutti__rounds *r)
{
    if (r->announced)
        return;
    r->announced = true;
    for (tutti__round_node *n = r->nodes; n; n = n->next)
        if (n->in_round && !n->over)
            tutti__round_do(r, &(tutti__round_action){
                                   .act = TUTTI__ROUND_ELASTIC, .node = n, .number = r->number});
}

void tutti__rounds_tick(tutti__rounds *r, uint64_t now_ms)
{
    r->now = now_ms;
    if (r->state == TUTTI__ROUNDS_RUNNING && tutti__rounds_is_elastic(r))
        announce_elastic(r);
    if ((r->state == TUTTI__ROUNDS_RUNNING || r->state == TUTTI__ROUNDS_STOPPING) &&
        count_running(r) == 0)
        conclude(r);
    if (r->state == TUTTI__ROUNDS_RUNNING && tutti__rounds_is_elastic(r)) {
        tutti__round_consider_pause(r);
        tutti__generations_tick(&r->generations, now_ms);
        tutti__round_exclude(r);
        admit(r);
        tutti__round_spread_list(r);
        tutti__round_consider_giving_up(r);
    } else if (r->state == TUTTI__ROUNDS_RUNNING && has_newcomers(r) && now_ms >= settled_at(r)) {
        snprintf(r->why, sizeof r->why, "%d more node%s came", count_idle(r),
                 count_idle(r) == 1 ? "" : "s");
        tutti__round_stop(r, false);
    }
    if (r->state == TUTTI__ROUNDS_GATHERING)
        gather(r);
}

uint64_t tutti__rounds_deadline(const tutti__rounds *r)
{
    uint64_t next = UINT64_MAX;

    if (r->state == TUTTI__ROUNDS_RUNNING) {
        next = tutti__generations_deadline(&r->generations);
        if (r->paused && r->until > r->now && r->until < next)
            next = r->until;
        if (has_newcomers(r) && settled_at(r) < next)
            next = settled_at(r);
    }
    if (tutti__rounds_is_paused(r) || r->state == TUTTI__ROUNDS_GATHERING) {
        next = r->next_line < next ? r->next_line : next;
        next = tutti__round_limit(r) < next ? tutti__round_limit(r) : next;
    }
    if (r->state == TUTTI__ROUNDS_GATHERING && r->last_call > 0 && r->last_call < next)
        next = r->last_call;
    return next;
}

/* ---- Beginning and end ------------------------------------------------------------------------------- */

void tutti__rounds_init(tutti__rounds *r, uint64_t now_ms, const tutti__rounds_opts *opts)
{
    memset(r, 0, sizeof *r);
    r->opts = *opts;
    r->now = now_ms;
    tutti__round_renew(r, 0);
    enter_gathering(r);
    r->roster.term = 1;
    if (opts->roster)
        tutti__round_succeed(r);
}

void tutti__rounds_free(tutti__rounds *r)
{
    tutti__generations_free(&r->generations);
}
