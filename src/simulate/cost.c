/* cost.c -- what the collectives of groups take.   SPDX-License-Identifier: MIT */
#include "simulate/cost.h"

#include "comm/algorithm/tuner.h"
#include "simulate/choose.h"
#include "simulate/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A call among ranks of one host, or of one rank on each of several. */
typedef struct stage {
    tutti__sim_links links;
    tutti__machines machines;
    tutti__coll call;
    const tutti__coll_algorithm *algorithm;
    double us, sent;
    bool scaled;
} stage;

/* One that has algorithms. */
static tutti__op_kind op_of(const char *name)
{
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++)
        if (strcmp(tutti__op_name(tutti__coll_algorithms[i]->op), name) == 0)
            return tutti__coll_algorithms[i]->op;
    return TUTTI__OP_ALL_GATHER;
}

static tutti__coll call_of(tutti__op_kind op, tutti_dtype dtype, uint64_t bytes, int ranks)
{
    const tutti__op_traits *t = &tutti__op_table[op];
    const size_t element = tutti__element(dtype), whole = (size_t)bytes / element,
                 count = t->scatters || t->gathers ? whole / (size_t)ranks : whole;

    return (tutti__coll){.op = op,
                         .dtype = op == TUTTI__OP_BARRIER ? TUTTI_U8 : dtype,
                         .redop = TUTTI_SUM,
                         .size = ranks,
                         .count = op == TUTTI__OP_BARRIER || count == 0 ? 1 : count,
                         .chunk = 1};
}

/* ---- A stage ------------------------------------------------------------------------------------------------------------- */

static void place(stage *s, int ranks, bool on_one_host)
{
    s->call.size = ranks;
    s->machines = tutti__machines_of(&s->links, ranks, on_one_host ? 1 : ranks);
    memset(s->call.block, 0, sizeof s->call.block);
    tutti__sim_set_blocks(&s->call, &s->machines);
}

/* Bytes that the rank in the middle sends. */
static double sent_by(const stage *s, tutti__coll_action *room, size_t capacity)
{
    const size_t n = s->algorithm->n_rounds(&s->call);
    tutti__coll_round out = {room, 0, capacity};
    double bytes = 0;

    for (size_t r = 0; r < n; r++) {
        tutti__coll_actions(s->algorithm, &s->call, s->call.size / 2, r, &out);
        for (size_t i = 0; i < out.n; i++)
            if (room[i].kind == TUTTI__COLL_SEND)
                bytes +=
                    (double)(room[i].count * tutti__coll_element(&s->call, room[i].from.place));
    }
    return bytes;
}

static tutti_status simulate(const stage *s, double *us_p)
{
    const tutti__sim_call call = {.links = &s->links,
                                  .machines = s->machines,
                                  .algorithm = s->algorithm,
                                  .call = s->call,
                                  .data = TUTTI__SIM_NO_DATA};
    tutti__sim_result result;

    TUTTI_TRY(tutti__sim_run(&call, &result));
    *us_p = result.us;
    return TUTTI_OK;
}

static double estimate(const stage *s)
{
    const tutti__coll_links links = tutti__sim_coll_links(&s->links, &s->machines);

    return (double)tutti__coll_estimate(s->algorithm, &s->call, &links);
}

/* Pieces stay as large as they are. */
static stage of_fewer(const stage *s, int ranks, bool on_one_host)
{
    stage fewer = *s;

    place(&fewer, ranks, on_one_host);
    return fewer;
}

/* With twice as many ranks a stage takes as much longer as the algorithm's estimate does, and as from half as many to these it took longer
 * than the estimate, which looks at some ranks, and adds up rounds. */
static tutti_status enlarge(stage *s, const stage *fewer, double us, bool on_one_host)
{
    const stage half = of_fewer(s, fewer->call.size / 2, on_one_host);
    const double here = estimate(s), there = estimate(fewer), before = estimate(&half),
                 doublings = log2((double)s->call.size / fewer->call.size);
    double half_us, missed = 1;

    s->us = us;
    if (here <= 0 || there <= 0 || before <= 0)
        return TUTTI_OK;
    if (tutti__coll_fits(half.algorithm, &half.call)) {
        TUTTI_TRY(simulate(&half, &half_us));
        missed = half_us > 0 ? us / half_us * before / there : 1;
    }
    s->us = us * here / there * pow(missed, doublings);
    return TUTTI_OK;
}

/* Its algorithm is chosen. */
static tutti_status run(stage *s, uint64_t most_steps, bool on_one_host)
{
    const size_t capacity = s->algorithm->most_actions(&s->call) + 1;
    tutti__coll_action *room = tutti__alloc(capacity * sizeof *room);
    stage fewer = *s;
    double us;

    if (!room)
        return TUTTI_ERR_MEMORY;
    s->sent = sent_by(s, room, capacity);
    free(room);
    while (tutti__sim_steps(fewer.algorithm, &fewer.call) > most_steps && fewer.call.size > 7) {
        const stage half = of_fewer(s, fewer.call.size / 2, on_one_host);

        if (!tutti__coll_fits(half.algorithm, &half.call))
            break;
        fewer = half;
    }
    s->scaled = fewer.call.size != s->call.size;
    TUTTI_TRY(simulate(&fewer, &us));
    if (s->scaled)
        return enlarge(s, &fewer, us, on_one_host);
    s->us = us;
    return TUTTI_OK;
}

/* Through the memory of a host. */
static tutti_status within(const tutti__sim_costs *c, const tutti__sim_cost *of, tutti__op_kind op,
                           stage *s)
{
    *s = (stage){.links = *c->links, .call = call_of(op, of->dtype, of->bytes, of->group.local)};
    if (of->group.local == 1)
        return TUTTI_OK;
    s->links.memory_gbps /= of->group.beside;
    place(s, of->group.local, true);
    s->algorithm = tutti__coll_find(op, "direct");
    s->call.chunk = TUTTI__TUNER_CHUNK_BYTES / tutti__coll_element(&s->call, TUTTI__COLL_WORK);
    return run(s, c->most_steps, true);
}

/* Of a shard, between the hosts; what has no tuner there goes directly (hierarchical_reduce_scatter.c, hierarchical_all_gather.c). */
static tutti_status between(const tutti__sim_costs *c, const tutti__sim_cost *of, stage *s)
{
    const int hosts = of->group.ranks / of->group.local, users = of->group.local * of->group.beside;
    const tutti__op_kind op = op_of(of->op);
    const bool chooses = of->group.local == 1 || op == TUTTI__OP_ALL_REDUCE ||
                         op == TUTTI__OP_BROADCAST || op == TUTTI__OP_BARRIER;

    *s = (stage){.links = *c->links,
                 .call = call_of(op, of->dtype, of->bytes / (uint64_t)of->group.local, hosts)};
    if (hosts == 1)
        return TUTTI_OK;
    s->links.level[TUTTI__LEVEL_HOST].gbps /= users;
    s->links.level[TUTTI__LEVEL_SWITCH].gbps /= users;
    place(s, hosts, false);
    TUTTI_TRY(tutti__sim_choose(&s->algorithm, &s->call, &s->links, &s->machines,
                                TUTTI__TUNER_CHUNK_BYTES));
    if (!chooses)
        s->algorithm = tutti__coll_find(op, "direct");
    return run(s, c->most_steps, false);
}

/* ---- A call -------------------------------------------------------------------------------------------------------------- */

/* What a host's ranks do before and after the stage between the hosts, which all of them take part in. */
static tutti_status both_sides(const tutti__sim_costs *c, const tutti__sim_cost *of, double *us_p)
{
    static const struct {
        tutti__op_kind of, before, after; /* TUTTI__N_OPS: nothing */
    } rows[] = {
        {TUTTI__OP_ALL_REDUCE, TUTTI__OP_REDUCE_SCATTER, TUTTI__OP_ALL_GATHER},
        {TUTTI__OP_REDUCE_SCATTER, TUTTI__OP_REDUCE_SCATTER, TUTTI__N_OPS},
        {TUTTI__OP_ALL_GATHER, TUTTI__N_OPS, TUTTI__OP_ALL_GATHER},
        {TUTTI__OP_BROADCAST, TUTTI__N_OPS, TUTTI__OP_ALL_GATHER},
        {TUTTI__OP_BARRIER, TUTTI__OP_BARRIER, TUTTI__OP_BARRIER},
    };
    stage s;

    *us_p = 0;
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        const tutti__op_kind ops[] = {rows[i].before, rows[i].after};

        for (int k = 0; k < 2 && rows[i].of == op_of(of->op); k++) {
            if (ops[k] == TUTTI__N_OPS)
                continue;
            TUTTI_TRY(within(c, of, ops[k], &s));
            *us_p += s.us;
        }
    }
    return TUTTI_OK;
}

/* Of many hosts the stages follow each other; of few, which exchange directly, a chunk's sums and copies are made while others are on
 * their way (hierarchical_all_reduce.c). */
static double together(double within_us, const stage *b)
{
    const double chunks =
        ceil((double)(b->call.count * tutti__element(b->call.dtype)) / TUTTI__TUNER_CHUNK_BYTES);

    if (b->call.op != TUTTI__OP_ALL_REDUCE || !tutti__coll_is_direct(b->algorithm))
        return within_us + b->us;
    return fmax(within_us, b->us) + fmin(within_us, b->us) / fmax(chunks, 1);
}

static tutti_status find(const tutti__sim_costs *c, tutti__sim_cost *cost)
{
    const tutti__sim_group *g = &cost->group;
    double within_us;
    stage s;

    cost->algorithm = "none";
    cost->us = cost->sent = 0;
    cost->scaled = false;
    if (g->ranks == 1)
        return TUTTI_OK;
    if (g->local == g->ranks) {
        TUTTI_TRY(within(c, cost, op_of(cost->op), &s));
        cost->algorithm = "shared memory";
        cost->us = s.us;
    } else {
        TUTTI_TRY(between(c, cost, &s));
        TUTTI_TRY(both_sides(c, cost, &within_us));
        cost->algorithm = s.algorithm->name;
        cost->us = g->local > 1 ? together(within_us, &s) : s.us;
    }
    cost->sent = s.sent;
    cost->scaled = s.scaled;
    return TUTTI_OK;
}

static bool same(const tutti__sim_cost *a, const tutti__sim_cost *b)
{
    return strcmp(a->op, b->op) == 0 && a->dtype == b->dtype && a->bytes == b->bytes &&
           a->group.ranks == b->group.ranks && a->group.local == b->group.local &&
           a->group.beside == b->group.beside;
}

tutti_status tutti__sim_cost_of(tutti__sim_costs *c, const tutti__sim_cost *call,
                                const tutti__sim_cost **cost_p)
{
    tutti__sim_cost wanted = *call, *made;
    tutti_status status;

    for (size_t i = 0; i < c->n; i++)
        if (same(c->p[i], &wanted)) {
            *cost_p = c->p[i];
            return TUTTI_OK;
        }
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 64;
        tutti__sim_cost **p = realloc(c->p, room * sizeof(tutti__sim_cost *));

        if (!p)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the costs of %zu calls", room);
        c->p = p;
        c->room = room;
    }
    made = tutti__alloc(sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    *made = wanted;
    status = find(c, made);
    if (status != TUTTI_OK) {
        free(made);
        return status;
    }
    *cost_p = c->p[c->n++] = made;
    return TUTTI_OK;
}

void tutti__sim_costs_free(tutti__sim_costs *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->p[i]);
    free(c->p);
    *c = (tutti__sim_costs){.links = c->links, .most_steps = c->most_steps};
}
