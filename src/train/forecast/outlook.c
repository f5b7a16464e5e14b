/* outlook.c -- the time of a step, and the layouts that fit.   SPDX-License-Identifier: MIT */
#include "train/forecast/outlook.h"

#include "data/loader.h"
#include "device/cpu/peak.h"
#include "pipeline/pipeline.h"
#include "train/config/config_read.h"
#include "train/plan/plan.h"
#include "train/session/session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A measured step must not take longer than this, by what the cores could do at best. */
#define LONGEST_S 5.0
enum { STEPS = 3, MOST_PLANNED = 1024 };

/* ---- What ranks make ------------------------------------------------------------------------------------------------ */

tutti_status tutti__layout_check(const tutti__layout_of_ranks *l, int64_t shards)
{
    const int each = l->pipeline * l->tensor;

    if (l->local_ranks > l->ranks || l->ranks % l->local_ranks != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "ranks_per_host: %d ranks are not divided into hosts of %d", l->ranks,
                           l->local_ranks);
    if (l->ranks % each != 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "ranks: pipeline %d x tensor %d = %d does not divide %d ranks; use %d or "
            "%d ranks, or a pipeline and tensor whose product divides %d",
            l->pipeline, l->tensor, each, l->ranks, l->ranks < each ? each : l->ranks / each * each,
            (l->ranks / each + 1) * each, l->ranks);
    if (l->pipeline > TUTTI__PLANNED_PIPELINE)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "plan: pipelines of more than %d ranks are not planned, and this one "
                           "has %d",
                           TUTTI__PLANNED_PIPELINE, l->pipeline);
    if (each > 1 && shards > 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: it cannot be used with shards; leave one out",
                           l->tensor > 1 ? "tensor" : "pipeline");
    if (shards > 0 && l->ranks > shards)
        return tutti__fail(TUTTI_ERR_ARG, "shards: a step has %lld, fewer than there are ranks, %d",
                           (long long)shards, l->ranks);
    if (shards > 0 && shards % l->ranks != 0)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "plan: %lld shards are not the same number for each of %d ranks, which "
                           "is not in this version; plan with %lld ranks",
                           (long long)shards, l->ranks, (long long)(shards / (shards / l->ranks)));
    return TUTTI_OK;
}

tutti__layout_of_ranks tutti__layout_of_data(const tutti__layout_of_ranks *l)
{
    const int ranks = l->ranks / (l->tensor * l->pipeline), here = l->local_ranks / l->tensor;

    return (tutti__layout_of_ranks){.ranks = ranks,
                                    .local_ranks = here < 1       ? 1
                                                   : here < ranks ? here
                                                                  : ranks};
}

tutti__layout_of_ranks tutti__layout_of_shares(const tutti__layout_of_ranks *l)
{
    tutti__layout_of_ranks part = tutti__layout_of_data(l);

    if (l->zero_ranks > 0)
        part.ranks = l->zero_ranks;
    if (part.local_ranks > part.ranks)
        part.local_ranks = part.ranks;
    return part;
}

/* Stages are the outermost dimension of the mesh. */
tutti__layout_of_ranks tutti__layout_of_neighbours(const tutti__layout_of_ranks *l)
{
    return (tutti__layout_of_ranks){.ranks = 2,
                                    .local_ranks = l->local_ranks > l->ranks / l->pipeline ? 2 : 1};
}

tutti__layout_of_ranks tutti__layout_of_tensor(const tutti__layout_of_ranks *l)
{
    return (tutti__layout_of_ranks){
        .ranks = l->tensor, .local_ranks = l->tensor < l->local_ranks ? l->tensor : l->local_ranks};
}

/* The most that any rank takes. */
static size_t most_of(const tutti__footprint *f)
{
    const size_t most = f->peak > f->peak_off ? f->peak : f->peak_off;

    return most > f->peak_regroup ? most : f->peak_regroup;
}

/* A rank of more has at most as much as one of so many, and makes the same calls; of shards it has others. */
static tutti__layout_of_ranks planned_layout(const tutti__layout_of_ranks *l, int64_t shards)
{
    tutti__layout_of_ranks fewer = *l;

    while (shards == 0 && fewer.ranks > MOST_PLANNED &&
           fewer.ranks % (2 * fewer.local_ranks * fewer.tensor * fewer.pipeline) == 0)
        fewer.ranks /= 2;
    return fewer;
}

static tutti_status find_footprint(tutti__outlook *o, const tutti__train_config *config,
                                   const tutti__parts *parts, const tutti__outlook_ask *ask)
{
    const tutti__layout_of_ranks layout = planned_layout(&o->layout, config->shards);
    tutti__train_config c = *config;

    c.zero = o->layout.zero;
    c.zero_ranks = o->layout.zero_ranks;
    c.tensor = o->layout.tensor;
    c.pipeline = o->layout.pipeline;
    c.shard_copies = c.zero && c.shards ? c.shard_copies : 1;
    c.recompute = o->recompute;
    c.batch_size = o->batch_size;
    c.grad_accumulation = o->grad_accumulation;
    TUTTI_TRY(tutti__config_check(&c, parts)); /* what cannot go together with this layout */
    TUTTI_TRY(tutti__footprint_find(&o->f, &c, parts, &layout, ask->data, ask->timeline));
    o->f.samples *= o->layout.ranks / layout.ranks;
    return TUTTI_OK;
}

/* ---- Computation ----------------------------------------------------------------------------------------------------- */

static tutti_status next(tutti_loader *loader, tutti_batch *batch)
{
    if (tutti_loader_next(loader, batch) ||
        (tutti_loader_status(loader) == TUTTI_OK && tutti_loader_next(loader, batch)))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "data: there is not one batch of it for each rank");
}

/* The fastest of a few steps, of which each records what it computes. */
static tutti_status measure_steps(tutti__session *s, tutti__recorder *recorder,
                                  tutti__timeline *timeline, double *seconds_p)
{
    uint64_t skipped, ns[3];
    double norm;

    *seconds_p = INFINITY;
    for (int i = 0; i < STEPS; i++) {
        tutti_batch batch;
        double seconds;

        TUTTI_TRY(next(s->data.train_loader, &batch));
        ns[0] = tutti__now_ns();
        TUTTI_TRY(tutti__session_gradients(s, &batch, ns[0]));
        ns[1] = tutti__now_ns();
        TUTTI_TRY(tutti__session_update(s, 0, false, &skipped, &norm));
        ns[2] = tutti__now_ns();
        seconds = (double)(ns[2] - ns[0]) * 1e-9;
        if (i == 0 || seconds >= *seconds_p) /* the first makes kernels and pages */
            continue;
        *seconds_p = seconds;
        if (timeline)
            TUTTI_TRY(tutti__timeline_measured(timeline, recorder, ns));
    }
    return TUTTI_OK;
}

/* Of one rank, alone, with its share of the cores. */
static tutti_status measure(tutti__session *s, const tutti__layout_of_ranks *layout,
                            tutti__timeline *timeline, double *seconds_p)
{
    tutti__train_plan plan;
    tutti_status status;

    s->forward_agreed = true; /* the caller reports failures */
    TUTTI_TRY(tutti__group_plan(&s->group, 0, 1, 1));
    s->size = 1;
    s->cores = (tutti__core_share){.index = 0, .n = layout->local_ranks};
    s->config->world_size = 1;
    TUTTI_TRY(tutti__session_open_alone(s));
    plan = tutti__plan_of(s->config, tutti_dataset_describe(s->data.train).count, 1, false,
                          &(tutti__run_cursor){.epoch = 1});
    s->step.batches = tutti__plan_batches(&plan, 0);
    TUTTI_TRY(tutti__session_open_ddp(s));
    TUTTI_TRY(tutti__session_open_optimizer(s, 0));
    if (!timeline)
        return measure_steps(s, NULL, NULL, seconds_p);
    s->cx->profile = tutti__profile_new();
    s->cx->recorder = tutti__recorder_new(TUTTI__TIMELINE_SPANS);
    status = s->cx->profile && s->cx->recorder
                 ? measure_steps(s, s->cx->recorder, timeline, seconds_p)
                 : TUTTI_ERR_MEMORY;
    tutti__recorder_free(s->cx->recorder);
    tutti__profile_free(s->cx->profile);
    s->cx->recorder = NULL;
    s->cx->profile = NULL;
    return status;
}

static tutti_status take_steps(const tutti__outlook *o, const tutti__train_config *config,
                               const tutti__parts *parts, tutti__timeline *timeline,
                               double *seconds_p)
{
    tutti__train_config c = *config;
    tutti__session *s = tutti__alloc(sizeof *s);
    tutti_status status;

    if (!s)
        return TUTTI_ERR_MEMORY;
    c.eval_every = c.eval_steps = c.zero = c.zero_ranks = 0;
    c.pipeline = c.shard_copies = 1; /* of a pipeline all stages, one after the other */
    c.grad_accumulation = o->grad_accumulation;
    if (c.shards > 0) /* as many batches one after another as this rank has shards */
        c.grad_accumulation *= (c.shards + o->layout.ranks - 1) / o->layout.ranks;
    c.shards = c.tokens_per_step = 0;
    s->config = &c;
    s->parts = parts;
    status = measure(s, &o->layout, timeline, seconds_p);
    tutti__session_close(s);
    free(s);
    return status;
}

/* What this process could take without others losing memory; 0: not known. */
static size_t available(void)
{
    int64_t limit, used, free_bytes = tutti__meminfo("MemAvailable");

    if (tutti__cgroup_memory(&limit, &used) && (free_bytes < 0 || limit - used < free_bytes))
        free_bytes = limit - used;
    return free_bytes > 0 ? (size_t)free_bytes : 0;
}

/* What a rank would take at most that computes all stages. */
static size_t all_stages(const tutti__footprint *f)
{
    size_t bytes = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(f->stage_peak); i++)
        bytes += f->stage_peak[i];
    return bytes;
}

static tutti_status find_compute(tutti__outlook *o, const tutti__train_config *config,
                                 const tutti__parts *parts, const tutti__outlook_ask *ask,
                                 double seconds_per_flop)
{
    double at_best, gflops;
    const char *isa;

    o->compute_from = "by its FLOPs, from the layout that was asked for";
    o->compute_s = seconds_per_flop * o->f.flops;
    if (seconds_per_flop > 0)
        return TUTTI_OK;
    o->compute_from = "given";
    o->compute_s = ask->step_ms * 1e-3;
    if (ask->step_ms > 0)
        return TUTTI_OK;
    gflops = tutti__cpu_peak_gflops(&isa);
    at_best = gflops > 0 ? o->f.flops / (gflops * 1e9 * o->f.threads) : 0;
    o->compute_from = "at least: the products' FLOPs at the cores' measured peak";
    o->compute_s = at_best;
    if (at_best * STEPS * o->layout.pipeline > LONGEST_S || all_stages(&o->f) > available() ||
        o->layout.tensor > 1)
        return TUTTI_OK;
    o->compute_from = "measured: steps of one rank, alone on its share of the cores";
    TUTTI_TRY(take_steps(o, config, parts, ask->timeline, &o->compute_s));
    o->compute_s /= o->layout.pipeline;
    return TUTTI_OK;
}

/* Of a message between neighbours. Between hosts all ranks of a host send. */
static double message_s(const tutti__outlook *o, const tutti__wire *wire)
{
    const tutti__layout_of_ranks pair = tutti__layout_of_neighbours(&o->layout);

    for (size_t i = 0; i < TUTTI__PLANNED_CALLS; i++) {
        tutti__planned_call call = o->f.pipeline_calls.of[i];

        if (!call.name || call.n == 0 || strcmp(call.name, "send") != 0)
            continue;
        call.bytes =
            call.bytes / call.n * (uint64_t)(pair.local_ranks > 1 ? 1 : o->layout.local_ranks);
        call.n = 1;
        return tutti__wire_seconds(wire, &call, &pair);
    }
    return 0;
}

tutti_status tutti__outlook_bubble(tutti__outlook *o, const tutti__train_config *config,
                                   const tutti__wire *wire)
{
    const int ranks = o->layout.pipeline, m = (int)o->grad_accumulation;
    double forward[TUTTI_MAX_STAGES];
    const tutti_pipeline_times times = {
        .forward = forward, .input = forward, .weight = forward, .message = message_s(o, wire)};
    tutti_pipeline_table *table;
    tutti_pipeline_facts facts;
    tutti_status status;

    o->bubble_s = 0;
    if (ranks == 1)
        return TUTTI_OK;
    TUTTI_TRY(tutti_pipeline_table_new(&table, tutti__pipeline_kind_of(config), ranks,
                                       (int)config->pipeline_chunks, m));
    for (int s = 0; s < ranks * table->chunks && s < TUTTI_MAX_STAGES; s++) {
        const double part =
            o->f.flops > 0 ? o->f.stage_flops[s % ranks] / (ranks * o->f.flops) : 1.0 / ranks;

        forward[s] = o->compute_s * ranks * part / (3.0 * m * table->chunks);
    }
    status = tutti_pipeline_table_check(table, &times, &facts);
    tutti_pipeline_table_free(table);
    if (status == TUTTI_OK)
        o->bubble_s = facts.bubble * facts.seconds;
    return status;
}

/* ---- A step ------------------------------------------------------------------------------------------------------------ */

/* Reductions run during backward, two thirds of the computation, but for the last bucket's; what is gathered waits. */
static void find_time(tutti__outlook *o, const tutti__wire *wire)
{
    const tutti__layout_of_ranks data = tutti__layout_of_data(&o->layout),
                                 shares = tutti__layout_of_shares(&o->layout),
                                 tensor = tutti__layout_of_tensor(&o->layout),
                                 pair = tutti__layout_of_neighbours(&o->layout);
    const double backward = o->compute_s * 2 / 3;
    double reduced = 0, other = 0, messages = 0, last;

    for (size_t i = 0; i < TUTTI__COUNT_OF(o->f.calls.of); i++) {
        const tutti__planned_call *call = &o->f.calls.of[i];
        const double seconds = call->name ? tutti__wire_seconds(wire, call, &data) : 0;
        const bool reduces = call->name && (strcmp(call->name, "all_reduce") == 0 ||
                                            strcmp(call->name, "reduce_scatter") == 0 ||
                                            strcmp(call->name, "all_to_all_v") == 0);

        *(reduces ? &reduced : &other) += seconds;
        call = &o->f.shard_calls.of[i];
        other += call->name ? tutti__wire_seconds(wire, call, &shares) : 0;
        call = &o->f.tensor_calls.of[i];
        other += call->name ? tutti__wire_seconds(wire, call, &tensor) : 0;
        call = &o->f.pipeline_calls.of[i]; /* which are made while others are computed */
        messages += call->name ? tutti__wire_seconds(wire, call, &pair) : 0;
    }
    last = o->f.n_buckets > 0 ? reduced / (double)o->f.n_buckets : 0;
    o->wire_s = reduced + other + messages;
    o->exposed_s = other + (reduced - last > backward ? reduced - backward : last);
    o->step_s = o->compute_s + o->bubble_s + o->exposed_s;
}

tutti_status tutti__outlook_find(tutti__outlook *o, const tutti__train_config *config,
                                 const tutti__parts *parts, const tutti__outlook_ask *ask,
                                 double seconds_per_flop)
{
    TUTTI_TRY(find_footprint(o, config, parts, ask));
    TUTTI_TRY(find_compute(o, config, parts, ask, seconds_per_flop));
    TUTTI_TRY(tutti__outlook_bubble(o, config, &ask->wire));
    find_time(o, &ask->wire);
    return TUTTI_OK;
}

/* ---- Layouts that fit ---------------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const tutti__outlook *x = a, *y = b;

    if (x->step_s != y->step_s)
        return x->step_s < y->step_s ? -1 : 1;
    return (x->layout.zero > y->layout.zero) - (x->layout.zero < y->layout.zero);
}

/* This candidate's outlook; *can_p: whether the model and its other keys allow it. */
static tutti_status try(tutti__outlook *o, const tutti__train_config *config,
                        const tutti__parts *parts, const tutti__outlook_ask *ask, double per_flop,
                        bool *can_p)
{
    const tutti_status status = tutti__outlook_find(o, config, parts, ask, per_flop);

    *can_p = status == TUTTI_OK;
    return status == TUTTI_ERR_ARG || status == TUTTI_ERR_UNSUPPORTED ? TUTTI_OK : status;
}

/* A pipeline with fewer micro-batches than those that a run would take by default. */
static bool waits_long(const tutti__outlook *o)
{
    return o->layout.pipeline > 1 && o->grad_accumulation < 2 * o->layout.pipeline;
}

/* With batches of a step that are as often halved as it takes to fit: more of them only take longer. */
static tutti_status add_fitting(tutti__outlook fitting[TUTTI__OUTLOOKS], size_t *n_p,
                                const tutti__train_config *config, const tutti__parts *parts,
                                const tutti__outlook_ask *ask, const tutti__outlook *like)
{
    const double per_flop = like->f.flops > 0 ? like->compute_s / like->f.flops : 0;
    bool can = true;

    for (int64_t n = 1; can && n <= 8 && like->batch_size % n == 0 && *n_p < TUTTI__OUTLOOKS;
         n *= 2) {
        tutti__outlook *o = &fitting[*n_p];

        *o = *like;
        o->batch_size = like->batch_size / n;
        o->grad_accumulation = like->grad_accumulation * n;
        if (waits_long(o) && n < 8 && like->batch_size % (2 * n) == 0)
            continue;
        TUTTI_TRY(try(o, config, parts, ask, per_flop, &can));
        if (!can || most_of(&o->f) > ask->limit)
            continue;
        ++*n_p;
        break;
    }
    return TUTTI_OK;
}

/* All stages of ZeRO, with recomputation and without, of one division of the model: as many samples a step; of an odd number, more. */
static tutti_status add_division(tutti__outlook fitting[TUTTI__OUTLOOKS], size_t *n_p,
                                 const tutti__train_config *config, const tutti__parts *parts,
                                 const tutti__outlook_ask *ask, const tutti__outlook *like)
{
    const tutti__layout_of_ranks *l = &like->layout, *was = &ask->layout;
    const int each = l->pipeline * l->tensor, before = was->pipeline * was->tensor;
    const int stages = l->ranks == each ? 1 : l->pipeline > 1 ? 3 : 4;

    for (int zero = 0; zero < stages; zero++)
        for (int again = 0; again < 2; again++) {
            tutti__outlook o = *like;

            o.layout.zero = zero;
            o.recompute = again;
            o.grad_accumulation = (like->grad_accumulation * each + before - 1) / before;
            TUTTI_TRY(add_fitting(fitting, n_p, config, parts, ask, &o));
        }
    return TUTTI_OK;
}

tutti_status tutti__outlook_fitting(tutti__outlook fitting[TUTTI__OUTLOOKS], size_t *n_p,
                                    const tutti__train_config *config, const tutti__parts *parts,
                                    const tutti__outlook_ask *ask, const tutti__outlook *asked)
{
    const tutti__layout_of_ranks *l = &asked->layout;
    const int deepest = config->shards > 0                   ? 1
                        : l->ranks < TUTTI__PLANNED_PIPELINE ? l->ranks
                                                             : TUTTI__PLANNED_PIPELINE;
    const int widest = config->shards > 0 ? 1 : l->local_ranks;

    *n_p = 0;
    for (int pipeline = 0; pipeline <= deepest; pipeline = pipeline ? 2 * pipeline : 1)
        for (int tensor = 1; tensor <= widest; tensor *= 2) {
            tutti__outlook like = *asked;

            if (pipeline == l->pipeline || /* which comes first, as 0 */
                (pipeline == 1 && config->micro_batches > 0))
                continue;
            like.layout.pipeline = pipeline ? pipeline : l->pipeline;
            like.layout.tensor = tensor;
            if (l->ranks % (like.layout.pipeline * tensor) == 0)
                TUTTI_TRY(add_division(fitting, n_p, config, parts, ask, &like));
        }
    qsort(fitting, *n_p, sizeof *fitting, by_time);
    return TUTTI_OK;
}
void tutti__outlook_flags(const tutti__outlook *o, const tutti__outlook *asked, char *text,
                          size_t size)
{
    size_t n = 0;

    text[0] = '\0';
    if (o->layout.zero != asked->layout.zero)
        n += (size_t)snprintf(text, size, " --zero %d", o->layout.zero);
    if (o->layout.zero_ranks != asked->layout.zero_ranks && n < size)
        n += (size_t)snprintf(text + n, size - n, " --zero-ranks %d", o->layout.zero_ranks);
    if (o->layout.pipeline != asked->layout.pipeline && n < size)
        n += (size_t)snprintf(text + n, size - n, " --pipeline %d", o->layout.pipeline);
    if (o->layout.tensor != asked->layout.tensor && n < size)
        n += (size_t)snprintf(text + n, size - n, " --tensor %d", o->layout.tensor);
    if (o->recompute != asked->recompute && n < size)
        n += (size_t)snprintf(text + n, size - n, " --recompute %s",
                              o->recompute ? "true" : "false");
    if (o->batch_size != asked->batch_size && n < size)
        n += (size_t)snprintf(text + n, size - n, " --batch-size %lld", (long long)o->batch_size);
    /* which a pipeline would choose by itself */
    if ((o->grad_accumulation != asked->grad_accumulation ||
         o->layout.pipeline != asked->layout.pipeline) &&
        n < size)
        snprintf(text + n, size - n, " --grad-accumulation %lld", (long long)o->grad_accumulation);
}
