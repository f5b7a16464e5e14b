/* calls.c -- `tutti simulate`: calls of a collective in virtual time, and what is printed of them.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "checkpoint/json_text.h"
#include "comm/algorithm/tuner.h"
#include "simulate/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REAL_BYTES = 256 << 20, /* of all ranks' data: what is computed really, unless told */
    MOST_STEPS = 200000000 /* ranks times rounds or messages of a call that --algorithm all tries */
};

/* A call with all that is printed of it. */
typedef struct row {
    const tutti__simulate_calls *ask;
    tutti__sim_call call;
    tutti__shape shape;
    tutti__sim_bound bound;
    tutti__sim_result result;
    uint64_t bytes; /* of the larger buffer */
} row;

static const char *status_of(const row *r)
{
    return r->result.failed ? "peer_lost" : r->result.wrong > 0 ? "wrong" : "ok";
}

static const char *data_of(const row *r)
{
    static const char *const names[] = {"real", "sampled", "none"};

    return names[r->call.data];
}

/* ---- What is simulated --------------------------------------------------------------------------------------------------- */

/* The costs as the algorithms' own estimate takes them: of a host's link, each of its ranks has a share. */
static tutti__coll_links coll_links(const tutti__sim_links *l, const tutti__machines *m)
{
    const tutti__level_costs *host = &l->level[TUTTI__LEVEL_HOST];
    tutti__coll_links to = {.reduce_ps = (uint64_t)(1000 / l->reduce_gbps)};

    for (int i = 0; i < TUTTI__LEVELS; i++) {
        const tutti__level_costs *c = &l->level[i];
        const bool far = i == TUTTI__LEVEL_SWITCH;

        to.level[i] = (tutti__coll_link){
            .latency_ns = (uint64_t)(1000 * (c->latency_us + (far ? host->latency_us : 0))),
            .message_ns = (uint64_t)(1000 * c->message_us),
            .byte_ps = (uint64_t)(i == TUTTI__LEVEL_CORE ? 1000 / c->gbps
                                                         : 1000 * m->per_host / host->gbps)};
    }
    return to;
}

static uint64_t steps_of(const tutti__coll_algorithm *a, const tutti__coll *call)
{
    const size_t rounds = a->n_rounds(call), most = a->most_actions(call);

    return (uint64_t)call->size * (rounds > most ? rounds : most);
}

/* The one that the ranks would choose, which know these links; NULL: there is none. Errors: ARG for a text in the environment. */
static tutti_status choose(const tutti__simulate_calls *ask, row *r)
{
    tutti__tuner tuner;

    TUTTI_TRY(tutti__tuner_open(&tuner, (size_t)ask->chunk));
    tuner.has_links = true;
    tuner.links = coll_links(&ask->links, &r->call.machines);
    tuner.given = false;
    tuner.shapes[0] = r->shape;
    r->call.algorithm = tutti__tuner_choose(&tuner, &r->call.call);
    tutti__tuner_close(&tuner);
    return TUTTI_OK;
}

static void lay_out(const tutti__simulate_calls *ask, int ranks, int64_t bytes, row *r)
{
    const tutti__op_traits *t = &tutti__op_table[ask->op];
    const int per_host = ask->per_host > 0 ? ask->per_host : 8;
    const int hosts = ask->hosts > 0 ? ask->hosts : (ranks + per_host - 1) / per_host;
    const size_t element = tutti__element(TUTTI_F32),
                 pieces = t->scatters || t->gathers ? (size_t)ranks : 1;
    tutti__coll *c = &r->call.call;
    tutti__machines *m = &r->call.machines;

    *m = tutti__machines_of(&ask->links, ranks, hosts);
    *c = (tutti__coll){.op = ask->op,
                       .dtype = TUTTI_F32,
                       .redop = TUTTI_SUM,
                       .size = ranks,
                       .root = ask->root,
                       .count = (size_t)bytes / element / pieces,
                       .chunk = (size_t)ask->chunk / element};
    c->count = c->count > 0 ? c->count : 1;
    c->chunk = c->chunk > 0 ? c->chunk : 1;
    r->bytes = c->count * element * pieces;
    if (ask->op == TUTTI__OP_BARRIER) {
        c->dtype = TUTTI_U8;
        c->count = 1;
        r->bytes = 0;
    }
    r->shape = (tutti__shape){.size = ranks, .share = m->per_host};
    if (m->hosts > 1)
        r->shape.block[r->shape.farthest++] = m->per_host;
    if (m->switches > 1)
        r->shape.block[r->shape.farthest++] = m->per_host * m->per_switch;
    memcpy(c->block, r->shape.block, sizeof c->block);
}

static tutti_status choose_data(row *r)
{
    const uint64_t needs = tutti__sim_data_needs(r->call.algorithm, &r->call.call);

    r->call.data = r->ask->data > 0      ? (tutti__sim_data_kind)(r->ask->data - 1)
                   : needs <= REAL_BYTES ? TUTTI__SIM_REAL
                                         : TUTTI__SIM_SAMPLED;
    if (r->call.data == TUTTI__SIM_REAL && !tutti__fits_memory(needs))
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "--data real: the data of %d ranks are %.1f GiB, more than this machine "
                           "has; --data sampled follows some elements",
                           r->call.call.size, (double)needs / (1 << 30));
    return TUTTI_OK;
}

/* ---- What is printed ------------------------------------------------------------------------------------------------------ */

static void print_head(FILE *out)
{
    fprintf(out, "%-14s %-24s %6s %5s %12s %12s %11s %6s %18s %30s  %s\n", "op", "algorithm",
            "ranks", "hosts", "bytes", "time us", "bound us", "ratio", "messages a rank",
            "MiB of the busiest link", "data");
    fprintf(out, "%-14s %-24s %6s %5s %12s %12s %11s %6s %9s %8s %9s %10s %9s\n", "", "", "", "",
            "", "", "", "", "max", "mean", "core", "host", "switch");
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

static double ratio(const row *r)
{
    return r->bound.us > 0 ? r->result.us / r->bound.us : 0;
}

static double mean(const row *r)
{
    return (double)r->result.messages / r->call.machines.ranks;
}

static void print_row(FILE *out, const row *r)
{
    const tutti__sim_result *s = &r->result;

    fprintf(out, "%-14s %-24s %6d %5d %12llu %12.1f %11.1f %6.2f %9llu %8.1f %9.2f %10.2f %9.2f  ",
            tutti__op_name(r->ask->op), r->call.algorithm->name, r->call.machines.ranks,
            r->call.machines.hosts, (unsigned long long)r->bytes, s->us, r->bound.us, ratio(r),
            (unsigned long long)s->most_messages, mean(r), mib(s->use[TUTTI__LEVEL_CORE].busiest),
            mib(s->use[TUTTI__LEVEL_HOST].busiest), mib(s->use[TUTTI__LEVEL_SWITCH].busiest));
    if (s->failed)
        fprintf(out, "rank %d is lost: seen after %.1f us, by all after %.1f\n", s->culprit,
                s->seen_us, s->us);
    else if (s->wrong > 0)
        fprintf(out, "%llu of %llu WRONG\n", (unsigned long long)s->wrong,
                (unsigned long long)s->checked);
    else
        fprintf(out, "%s, %llu right\n", data_of(r), (unsigned long long)s->checked);
}

/* The line for programs. */
static void print_result(FILE *out, const row *r)
{
    const tutti__sim_result *s = &r->result;

    fprintf(out,
            "result: status=%s op=%s algorithm=%s ranks=%d hosts=%d switches=%d bytes=%llu "
            "time_us=%.3f bound_us=%.3f ratio=%.4f messages=%llu messages_max=%llu "
            "messages_mean=%.3f",
            status_of(r), tutti__op_name(r->ask->op), r->call.algorithm->name,
            r->call.machines.ranks, r->call.machines.hosts, r->call.machines.switches,
            (unsigned long long)r->bytes, s->us, r->bound.us, ratio(r),
            (unsigned long long)s->messages, (unsigned long long)s->most_messages, mean(r));
    for (int l = 0; l < TUTTI__LEVELS; l++)
        fprintf(out, " %s_bytes=%llu %s_busiest=%llu", tutti__level_names[l],
                (unsigned long long)s->use[l].bytes, tutti__level_names[l],
                (unsigned long long)s->use[l].busiest);
    fprintf(out, " lost=%llu culprit=%d seen_us=%.3f data=%s checked=%llu wrong=%llu seed=%llu\n",
            (unsigned long long)s->lost, s->culprit, s->seen_us, data_of(r),
            (unsigned long long)s->checked, (unsigned long long)s->wrong,
            (unsigned long long)r->ask->seed);
}

static json_t *json_levels(const row *r)
{
    json_t *levels = json_object();
    bool failed = !levels;

    for (int l = 0; l < TUTTI__LEVELS && !failed; l++) {
        const tutti__level_use *u = &r->result.use[l];

        failed = json_object_set_new(levels, tutti__level_names[l],
                                     json_pack("{sI sI sI sI}", "messages", (json_int_t)u->messages,
                                               "bytes", (json_int_t)u->bytes, "links_bytes",
                                               (json_int_t)u->carried, "busiest_link_bytes",
                                               (json_int_t)u->busiest)) != 0;
    }
    return tutti__json_complete(levels, failed);
}

static json_t *json_row(const row *r)
{
    const tutti__sim_result *s = &r->result;
    json_t *root = json_pack(
        "{ss ss ss si si si sI sI sf sf sf sf sf sI sI sf sI sI sI sI}", "status", status_of(r),
        "op", tutti__op_name(r->ask->op), "algorithm", r->call.algorithm->name, "ranks",
        r->call.machines.ranks, "hosts", r->call.machines.hosts, "switches",
        r->call.machines.switches, "bytes", (json_int_t)r->bytes, "seed", (json_int_t)r->ask->seed,
        "time_us", s->us, "bound_us", r->bound.us, "bound_latency_us", r->bound.latency_us,
        "bound_bandwidth_us", r->bound.bandwidth_us, "ratio", ratio(r), "messages",
        (json_int_t)s->messages, "messages_max", (json_int_t)s->most_messages, "messages_mean",
        mean(r), "lost", (json_int_t)s->lost, "scratch_max", (json_int_t)s->most_memory, "checked",
        (json_int_t)s->checked, "wrong", (json_int_t)s->wrong);

    return tutti__json_complete(
        root,
        !root || json_object_set_new(root, "data", json_string(data_of(r))) ||
            json_object_set_new(root, "culprit",
                                s->failed ? json_integer(s->culprit) : json_null()) ||
            json_object_set_new(root, "seen_us", s->failed ? json_real(s->seen_us) : json_null()) ||
            json_object_set_new(root, "levels", json_levels(r)));
}

/* ---- A call, and all ------------------------------------------------------------------------------------------------------- */

typedef struct table {
    const tutti__simulate_calls *ask;
    FILE *out;
    json_t *rows; /* NULL: not wanted */
    uint64_t wrong;
    int n;
} table;

static tutti_status run_row(table *t, row *r)
{
    TUTTI_TRY(choose_data(r));
    r->call.events = t->ask->verbose ? t->out : NULL;
    r->bound = tutti__sim_bound_of(&t->ask->links, &r->call.machines, &r->call.call);
    TUTTI_TRY(tutti__sim_run(&r->call, &r->result));
    if (t->n++ == 0)
        print_head(t->out);
    print_row(t->out, r);
    fflush(t->out);
    t->wrong += r->result.wrong;
    if (t->rows && json_array_append_new(t->rows, json_row(r)) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the JSON of the results");
    return TUTTI_OK;
}

static tutti_status refuse_algorithm(const tutti__simulate_calls *ask, const tutti__coll *call)
{
    const char *names[128] = {"auto", "all"};
    size_t n = 2;
    char text[1024];

    for (size_t i = 0; i < tutti__coll_n_algorithms && n < TUTTI__COUNT_OF(names); i++)
        if (tutti__coll_algorithms[i]->op == ask->op)
            names[n++] = tutti__coll_algorithms[i]->name;
    if (n == 2)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "--op %s: no algorithm of it is made of rounds, so it cannot be "
                           "simulated",
                           tutti__op_name(ask->op));
    if (tutti__coll_find(ask->op, ask->algorithm))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "--algorithm %s cannot run %s of %d ranks",
                           ask->algorithm, tutti__op_name(ask->op), call->size);
    return tutti__fail(TUTTI_ERR_ARG, "--algorithm is \"%.60s\", expected %s", ask->algorithm,
                       tutti__choice_text(ask->algorithm, names, n, text, sizeof text));
}

/* All algorithms that fit, or the one that was asked for. */
static tutti_status run_algorithms(table *t, row *r)
{
    const tutti__simulate_calls *ask = t->ask;
    const tutti__coll_algorithm *one = NULL;

    if (strcmp(ask->algorithm, "all") != 0) {
        r->call.algorithm = tutti__coll_find(ask->op, ask->algorithm);
        if (strcmp(ask->algorithm, "auto") == 0)
            TUTTI_TRY(choose(ask, r));
        if (!r->call.algorithm || !tutti__coll_fits(r->call.algorithm, &r->call.call))
            return refuse_algorithm(ask, &r->call.call);
        return run_row(t, r);
    }
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++) {
        const tutti__coll_algorithm *a = tutti__coll_algorithms[i];

        if (!tutti__coll_fits(a, &r->call.call))
            continue;
        if (steps_of(a, &r->call.call) > MOST_STEPS) {
            fprintf(t->out, "%-14s %-24s %6d: left out, it has %.0f million rounds or messages\n",
                    tutti__op_name(ask->op), a->name, r->call.call.size,
                    (double)steps_of(a, &r->call.call) * 1e-6);
            continue;
        }
        r->call.algorithm = a;
        TUTTI_TRY(run_row(t, r));
        one = a;
    }
    return one ? TUTTI_OK : refuse_algorithm(ask, &r->call.call);
}

static tutti_status run_sizes(table *t, int ranks, row *r)
{
    const tutti__simulate_calls *ask = t->ask;
    tutti__simulate_faults faults;

    if (ask->hosts > ranks)
        return tutti__fail(TUTTI_ERR_ARG, "--hosts is %d, but there are only %d ranks", ask->hosts,
                           ranks);
    if (ask->root >= ranks)
        return tutti__fail(TUTTI_ERR_ARG, "--root is %d, but there are only ranks 0 to %d",
                           ask->root, ranks - 1);
    for (size_t i = 0; i < ask->sizes.n; i++) {
        lay_out(ask, ranks, ask->sizes.bytes[i], r);
        if (ask->hosts > 0 && r->call.machines.hosts != ask->hosts)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--hosts is %d: %d ranks, equally many on each host but for the "
                               "last, are on %d",
                               ask->hosts, ranks, r->call.machines.hosts);
        TUTTI_TRY(tutti__simulate_faults_read(&faults, ask, &r->call.machines));
        r->call.links = &ask->links;
        r->call.deaths = faults.deaths;
        r->call.n_deaths = faults.n_deaths;
        r->call.slow = faults.slow;
        r->call.n_slow = faults.n_slow;
        r->call.disturbance = (tutti__disturbance){.seed = ask->seed,
                                                   .jitter_us = ask->jitter_us,
                                                   .loss = ask->loss,
                                                   .cuts = faults.cuts,
                                                   .n_cuts = faults.n_cuts};
        TUTTI_TRY(run_algorithms(t, r));
    }
    return TUTTI_OK;
}

tutti_status tutti__simulate_calls_run(const tutti__simulate_calls *ask, uint64_t *wrong_p)
{
    table t = {
        .ask = ask, .out = tutti__simulate_out(ask->json), .rows = ask->json ? json_array() : NULL};
    row last = {.ask = ask};
    tutti_status status = TUTTI_OK;

    if (ask->json && !t.rows)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the JSON of the results");
    for (int i = 0; i < ask->n_ranks && status == TUTTI_OK; i++)
        status = run_sizes(&t, ask->ranks[i], &last);
    if (status == TUTTI_OK && ask->json)
        status = tutti__simulate_write(ask->json, t.rows);
    else
        json_decref(t.rows);
    if (status == TUTTI_OK)
        print_result(t.out, &last);
    *wrong_p = t.wrong;
    return status;
}
