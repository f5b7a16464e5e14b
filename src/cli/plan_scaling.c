/* plan_scaling.c -- a step of more and more ranks.   SPDX-License-Identifier: MIT */
#include "cli/plan_scaling.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

/* Rounds and messages that are simulated for a row, about: a second of a core. */
enum { STEPS = 1000000, LEAST_STEPS = 20000 };

/* ---- What is asked ----------------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

tutti_status tutti__scaling_ranks(tutti__scaling *s, const char *text)
{
    for (const char *next = text;; next++) {
        const size_t length = strcspn(next, ",");
        char number[24];
        int64_t n = 0;

        snprintf(number, sizeof number, "%.*s", length < 20 ? (int)length : 20, next);
        if (!tutti__parse_int64(number, &n) || n < 1 || n > TUTTI__SCALING_RANKS ||
            s->n == TUTTI__SCALING_ROWS)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--ranks is \"%.60s\", expected a whole number from 1 to %d, or up "
                               "to %d of them, such as 8,64,1024",
                               text, TUTTI__SCALING_RANKS, TUTTI__SCALING_ROWS);
        s->ranks[s->n++] = (int)n;
        next += length;
        if (!*next)
            break;
    }
    s->listed = s->n > 1;
    qsort(s->ranks, (size_t)s->n, sizeof *s->ranks, by_number);
    return TUTTI_OK;
}

void tutti__scaling_spares(tutti__scaling *s, tutti__layout_of_ranks *most, int64_t shards)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        const int ranks = s->ranks[i] > shards ? (int)shards : s->ranks[i];

        if (n == 0 || s->ranks[n - 1] != ranks)
            s->ranks[n++] = ranks;
    }
    s->n = n;
    most->ranks = s->ranks[n - 1];
    if (most->local_ranks > most->ranks)
        most->local_ranks = most->ranks;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* A link as a simulation has it: of an empty call's time, as much as a message costs at both ends, and the rest on the way. */
static void set_level(tutti__level_costs *to, const tutti__link_speed *from, double copies)
{
    if (from->gbps <= 0)
        return;
    to->gbps = from->gbps * copies;
    to->message_us = least(to->message_us, from->us / 4);
    to->latency_us = from->us - 2 * to->message_us;
}

/* An all_reduce within a host copies each byte twice and adds it once, which a call's speed has in it. */
static void from_wire(tutti__sim_links *l, const tutti__wire *wire)
{
    set_level(&l->level[TUTTI__LEVEL_CORE], &wire->within, 1.5);
    if (wire->within.gbps > 0)
        l->reduce_gbps = 1.5 * wire->within.gbps;
    set_level(&l->level[TUTTI__LEVEL_HOST], &wire->between, 1);
    l->hosts_per_switch = TUTTI__SCALING_RANKS; /* all at one */
}

static void to_wire(const tutti__sim_links *l, tutti__wire *wire, const char *path)
{
    const tutti__level_costs *core = &l->level[TUTTI__LEVEL_CORE],
                             *host = &l->level[TUTTI__LEVEL_HOST];

    wire->within = (tutti__link_speed){core->gbps, core->latency_us + 2 * core->message_us, path};
    wire->between = (tutti__link_speed){host->gbps, host->latency_us + 2 * host->message_us, path};
}

/* ---- The cost of calls ----------------------------------------------------------------------------------------------------- */

/* A message to a neighbour in a pipeline. */
static double message_s(const tutti__sim_links *l, double bytes, bool on_a_host)
{
    const tutti__level_costs *c = &l->level[on_a_host ? TUTTI__LEVEL_CORE : TUTTI__LEVEL_HOST];

    return (c->latency_us + 2 * c->message_us) * 1e-6 + bytes / (c->gbps * 1e9);
}

/* Of calls that are about as large as each other. */
static double seconds_of(void *of, const tutti__planned_call *call,
                         const tutti__layout_of_ranks *layout)
{
    tutti__scaling *s = of;
    const double each = (double)call->bytes / (double)call->n;
    const tutti__sim_cost wanted = {.op = call->name,
                                    .dtype = TUTTI_F32,
                                    .bytes = (uint64_t)each,
                                    .group = {layout->ranks, layout->local_ranks, 1}};
    const tutti__sim_cost *cost;
    tutti_status status;

    if (strcmp(call->name, "recv") == 0)
        return 0;
    if (strcmp(call->name, "send") == 0)
        return (double)call->n * message_s(&s->links, each, layout->local_ranks == layout->ranks);
    status = tutti__sim_cost_of(&s->costs, &wanted, &cost);
    if (status == TUTTI_OK)
        return (double)call->n * cost->us * 1e-6;
    s->status = s->status == TUTTI_OK ? status : s->status;
    return 0;
}

tutti_status tutti__scaling_links(tutti__scaling *s, tutti__wire *wire, const char *path)
{
    tutti__sim_links_default(&s->links);
    if (path)
        TUTTI_TRY(tutti__sim_links_read(&s->links, path));
    if (path)
        to_wire(&s->links, wire, path);
    else
        from_wire(&s->links, wire);
    s->costs = (tutti__sim_costs){.links = &s->links, .most_steps = LEAST_STEPS};
    wire->seconds = seconds_of;
    wire->of = s;
    return TUTTI_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------------------- */

/* With fewer ranks, those of the same hosts. */
static tutti__layout_of_ranks layout_with(const tutti__layout_of_ranks *most, int ranks)
{
    tutti__layout_of_ranks l = *most;

    l.ranks = ranks;
    l.local_ranks = ranks < most->local_ranks ? ranks : most->local_ranks;
    return l;
}

/* Doubling, as far as ranks make such a layout. */
static void fill(tutti__scaling *s, const tutti__layout_of_ranks *most, int64_t shards)
{
    const int end = s->ranks[0];

    s->n = 0;
    for (int n = most->tensor * most->pipeline; n < end && s->n < TUTTI__SCALING_ROWS - 1; n *= 2) {
        const tutti__layout_of_ranks l = layout_with(most, n);

        if (tutti__layout_check(&l, shards) == TUTTI_OK)
            s->ranks[s->n++] = n;
    }
    (void)tutti__fail_again(TUTTI_OK, "");
    s->ranks[s->n++] = end;
}

static size_t distinct(const tutti__planned_log *log)
{
    size_t n = 0;

    for (size_t i = 0; i < log->n; i++) {
        size_t k = 0;

        while (k < i && (strcmp(log->p[k].name, log->p[i].name) != 0 ||
                         log->p[k].bytes != log->p[i].bytes || log->p[k].group != log->p[i].group))
            k++;
        n += k == i;
    }
    return n;
}

typedef struct source {
    const tutti__outlook *first;
    const tutti__train_config *config;
    const tutti__parts *parts;
    const tutti__outlook_ask *ask;
} source;

/* The calls of a rank that has more shards than with most ranks. */
static tutti_status of_shards(const source *from, const tutti__layout_of_ranks *layout,
                              tutti__timeline *timeline)
{
    tutti__outlook_ask ask = *from->ask;
    tutti__outlook o = *from->first;

    o.layout = ask.layout = *layout;
    ask.timeline = timeline;
    return tutti__outlook_find(&o, from->config, from->parts, &ask, 1e-12);
}

static tutti_status find_row(tutti__scaling *s, const source *from, int i)
{
    const tutti__outlook *first = from->first;
    const tutti__timeline *t = s->timeline;
    const tutti__sim_compute compute = {.timeline = t,
                                        .flops = t->flops,
                                        .gradients_s = first->compute_s * (1 - t->update),
                                        .update_s = first->compute_s * t->update};
    tutti__outlook o = *first;
    tutti__timeline own = {.update = 0};
    tutti__sim_step_ask ask = {.layout = s->layouts[i],
                               .calls = t,
                               .compute = &compute,
                               .shards = from->config->shards,
                               .spread = s->spread};
    tutti_status status;

    o.layout = s->layouts[i];
    status = tutti__outlook_bubble(&o, from->config, &from->ask->wire);
    ask.bubble_s = o.bubble_s;
    s->samples[i] = (double)first->f.samples;
    if (ask.shards == 0)
        s->samples[i] *= (double)s->layouts[i].ranks / first->layout.ranks;
    if (status == TUTTI_OK && ask.shards > 0 && s->layouts[i].ranks != first->layout.ranks) {
        status = of_shards(from, &s->layouts[i], &own);
        ask.calls = &own;
    }
    if (status == TUTTI_OK)
        status = tutti__sim_step_find(&s->rows[i], &ask, &s->costs);
    tutti__timeline_free(&own);
    return status;
}

tutti_status tutti__scaling_find(tutti__scaling *s, tutti__outlook *first,
                                 const tutti__train_config *config, const tutti__parts *parts,
                                 const tutti__outlook_ask *ask)
{
    const source from = {first, config, parts, ask};
    const size_t each = STEPS / (distinct(&s->timeline->log) + 1);

    if (!s->listed)
        fill(s, &first->layout, config->shards);
    s->costs.most_steps = each > LEAST_STEPS ? each : LEAST_STEPS;
    s->layouts = tutti__alloc((size_t)s->n * sizeof *s->layouts);
    s->rows = tutti__alloc((size_t)s->n * sizeof *s->rows);
    s->samples = tutti__alloc((size_t)s->n * sizeof *s->samples);
    if (!s->layouts || !s->rows || !s->samples)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < s->n; i++) {
        s->layouts[i] = layout_with(&first->layout, s->ranks[i]);
        TUTTI_TRY(tutti__layout_check(&s->layouts[i], config->shards));
        TUTTI_TRY(find_row(s, &from, i));
    }
    first->wire_s = s->rows[s->n - 1].wire_s;
    first->exposed_s = s->rows[s->n - 1].exposed_s;
    first->step_s = s->rows[s->n - 1].step_s;
    return s->status;
}

void tutti__scaling_free(tutti__scaling *s)
{
    tutti__sim_costs_free(&s->costs);
    free(s->layouts);
    free(s->rows);
    free(s->samples);
    s->layouts = NULL;
    s->rows = NULL;
    s->samples = NULL;
}

/* ---- Results --------------------------------------------------------------------------------------------------------------- */

/* A row's calls that are alike, found from the first of them. */
typedef struct alike {
    const tutti__planned_entry *call;
    const tutti__sim_cost *cost; /* NULL: they were counted with an earlier one, or cost nothing */
    int n;
} alike;

static alike alike_at(tutti__scaling *s, int row, size_t i)
{
    const tutti__planned_log *log = &s->timeline->log;
    const tutti__planned_entry *call = &log->p[i];
    alike a = {.call = call};
    const tutti__sim_cost *cost;

    for (size_t k = 0; k < log->n; k++) {
        const tutti__planned_entry *other = &log->p[k];

        if (strcmp(other->name, call->name) != 0 || other->bytes != call->bytes ||
            other->group != call->group || other->dtype != call->dtype)
            continue;
        if (k < i)
            return a;
        a.n++;
    }
    if (tutti__sim_step_cost(&s->layouts[row], call, &s->costs, &cost) == TUTTI_OK &&
        cost->group.ranks > 1)
        a.cost = cost;
    return a;
}

static const char *const among[TUTTI__CALLS_OF] = {"data", "sharers", "tensor", "pipeline", "all"};

static void print_calls(FILE *out, tutti__scaling *s)
{
    const int last = s->n - 1;

    fprintf(out, "\ncalls of a step, %d ranks         calls   MiB each     ms each   algorithm\n",
            s->layouts[last].ranks);
    for (size_t i = 0; i < s->timeline->log.n; i++) {
        const alike a = alike_at(s, last, i);
        char name[48];

        if (!a.cost)
            continue;
        snprintf(name, sizeof name, a.call->group == TUTTI__CALLS_OF_DATA ? "%s" : "%s (%s)",
                 a.call->name, among[a.call->group]);
        fprintf(out, "  %-29s %7d %10.3f %11.3f   %s%s\n", name, a.n, (double)a.call->bytes / MIB,
                a.cost->us * 1e-3, a.cost->algorithm, a.cost->scaled ? " *" : "");
    }
}

void tutti__scaling_print(FILE *out, tutti__scaling *s, const tutti__train_config *config)
{
    bool scaled = false;

    if (config->shards > 0)
        fprintf(out, "\nscaling, of the same %lld shards a step\n", (long long)config->shards);
    else
        fprintf(out, "\nscaling, of as many samples on each\n");
    fprintf(out,
            "  ranks  hosts    step ms  computation  %swaiting  of wire ms  efficiency   "
            "samples/s   MiB sent   longest call\n",
            s->spread > 0 ? "stragglers  " : "");
    for (int i = 0; i < s->n; i++) {
        const tutti__sim_step *r = &s->rows[i];
        const tutti__layout_of_ranks *l = &s->layouts[i];

        fprintf(out, "  %5d  %5d %10.2f %12.2f", l->ranks, l->ranks / l->local_ranks,
                1e3 * r->step_s, 1e3 * r->compute_s);
        if (s->spread > 0)
            fprintf(out, " %11.2f", 1e3 * r->behind_s);
        fprintf(out, " %8.2f %11.2f %9.1f %% %11.1f %10.2f   %s%s\n", 1e3 * r->exposed_s,
                1e3 * r->wire_s, 100 * r->efficiency, r->step_s > 0 ? s->samples[i] / r->step_s : 0,
                r->sent / MIB, r->largest ? r->largest->algorithm : "none", r->scaled ? " *" : "");
        scaled |= r->scaled;
    }
    print_calls(out, s);
    if (scaled)
        fprintf(out, "* simulated among fewer ranks, and enlarged by the algorithm's estimate\n");
}

static json_t *calls_json(tutti__scaling *s, int row)
{
    json_t *calls = json_array();

    for (size_t i = 0; i < s->timeline->log.n; i++) {
        const alike a = alike_at(s, row, i);

        if (a.cost)
            json_array_append_new(calls, json_pack("{s:s,s:s,s:i,s:I,s:f,s:s,s:b}", "op",
                                                   a.call->name, "among", among[a.call->group],
                                                   "calls", a.n, "bytes", (json_int_t)a.call->bytes,
                                                   "us", a.cost->us, "algorithm", a.cost->algorithm,
                                                   "scaled", a.cost->scaled));
    }
    return calls;
}

json_t *tutti__scaling_json(tutti__scaling *s)
{
    json_t *rows = json_array();

    for (int i = 0; i < s->n; i++) {
        const tutti__sim_step *r = &s->rows[i];
        const tutti__layout_of_ranks *l = &s->layouts[i];

        json_array_append_new(
            rows,
            json_pack("{s:i,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:b,s:o}", "ranks", l->ranks,
                      "hosts", l->ranks / l->local_ranks, "step_ms", 1e3 * r->step_s, "compute_ms",
                      1e3 * r->compute_s, "stragglers_ms", 1e3 * r->behind_s, "exposed_ms",
                      1e3 * r->exposed_s, "wire_ms", 1e3 * r->wire_s, "efficiency", r->efficiency,
                      "samples_per_s", r->step_s > 0 ? s->samples[i] / r->step_s : 0, "sent_bytes",
                      r->sent, "scaled", r->scaled, "calls", calls_json(s, i)));
    }
    return rows;
}
