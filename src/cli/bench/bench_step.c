/* bench_step.c -- the time of an optimizer step, and of its parts.   SPDX-License-Identifier: MIT
 *
 * Steps are those of `tutti train`, on synthetic images that are in memory before the clock starts: no reading, no files. Then
 * rank 0 does the same alone, while the others sleep: N times that is the best that N ranks can reach. */
#include "cli/bench/bench.h"
#include "device/device.h"
#include "data/loader.h"
#include "tensor/op_profile.h"
#include "train/plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* The times, in milliseconds: a step, and its parts; communication overlaps with backward, except the exposed part.
 * CPU is the time of all threads of the process, which a busy machine disturbs least. */
typedef enum part {
    STEP,
    DATA,
    FORWARD,
    BACKWARD,
    COMMUNICATION,
    EXPOSED,
    OPTIMIZER,
    OTHER,
    CPU,
    N_PARTS
} part;

typedef struct stand {
    const tutti__bench *bench;
    tutti_group *group; /* of all ranks */
    tutti__train_config config;
    tutti__bench_table *table;
    size_t n;                /* steps */
    double *times;           /* [N_PARTS][n] */
    tutti__profile *profile; /* of this rank's operations; NULL: none */
    tutti__bench_ops ops;
} stand;

typedef struct result {
    double median[N_PARTS], p95; /* of the mean over ranks */
    double images_per_s;
    size_t gradient_bytes, buckets, arena_bytes, optimizer_bytes; /* of a rank */
    int threads;
    tutti__device_info device; /* this rank's */
    uint64_t skipped;
    char digest[33]; /* of rank 0's parameters and buffers */
    int64_t wrong;   /* ranks with another */
} result;

/* What takes the steps. */
typedef struct work {
    tutti__session session;
    tutti__train_plan plan;
    tutti__run_cursor at; /* its step stays 0 */
    uint64_t skipped_steps;
} work;

/* ---- Steps ---------------------------------------------------------------------------------------------- */

static tutti_status open_work(work *w)
{
    const size_t batch = (size_t)w->session.config->batch_size,
                 shares = (size_t)tutti__session_shares(&w->session);
    size_t count;

    w->session.forward_agreed = true; /* failures are reported by the bench */
    TUTTI_TRY(tutti__session_open_alone(&w->session));
    count = tutti_dataset_describe(w->session.data.train).count;
    w->plan = tutti__plan_of(w->session.config, count, (int)shares, false, &w->at);
    w->session.step.batches = tutti__plan_batches(&w->plan, 0);
    if (w->session.shards > 0 && w->session.size > w->session.shards)
        return tutti__fail(TUTTI_ERR_ARG, "shards: a step has %d, fewer than there are ranks, %d",
                           w->session.shards, w->session.size);
    if (batch * (w->session.shards > 0 ? (size_t)w->session.config->grad_accumulation : 1) <=
        count / shares)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG, "batch_size is %zu, but the synthetic data set has %zu images for %zu %s%s",
        batch, count, shares, w->session.shards > 0 ? "shard" : "rank", shares == 1 ? "" : "s");
}

/* The next full batch, if necessary of the next epoch. */
static tutti_status next(work *w, tutti_batch *batch)
{
    do {
        if (!tutti_loader_next(w->session.data.train_loader, batch)) {
            TUTTI_TRY(tutti_loader_status(w->session.data.train_loader));
            batch->n = 0;
        }
    } while (batch->n != (size_t)w->session.config->batch_size);
    return TUTTI_OK;
}

/* Computes this rank's range of shards; requests batches one step ahead. *rest_p: as in tutti__session_accumulate. */
static tutti_status compute_shards(work *w, size_t index, size_t next_index, double *rest_p)
{
    const int64_t first = (int64_t)w->session.rank * w->session.shards / w->session.size,
                  end = (int64_t)(w->session.rank + 1) * w->session.shards / w->session.size;
    const size_t each = (size_t)w->session.config->grad_accumulation;
    tutti_batch batch;

    for (int64_t v = first; v < end; v++) {
        w->session.step.shard = (int)v;
        TUTTI_TRY(tutti_ddp_begin_shard(w->session.ddp, w->session.step.shard, v + 1 == end));
        if (!tutti__session_next_batch(&w->session, index, &batch))
            return tutti_loader_status(w->session.data.train_loader);
        for (size_t k = 0; k < each; k++)
            tutti_loader_ask(w->session.data.train_loader, next_index + k, w->session.step.shard,
                             0);
        TUTTI_TRY(tutti__session_accumulate(&w->session, &batch, tutti__now_ns(), rest_p));
    }
    return TUTTI_OK;
}

/* As tutti__session_gradients, with logical shards. */
static tutti_status shard_gradients(work *w)
{
    const size_t each = (size_t)w->session.config->grad_accumulation;
    const size_t whole = tutti_dataset_describe(w->session.data.train).count /
                         (size_t)(w->session.shards * w->session.config->batch_size);
    const size_t index = (size_t)w->at.batch,
                 next_index = index + 2 * each <= whole ? index + each : 0;
    double rest = 1;
    bool again = true;

    while (again) {
        TUTTI_TRY(tutti_ddp_begin_step(w->session.ddp));
        TUTTI_TRY(compute_shards(w, index, next_index, &rest));
        TUTTI_TRY(tutti_ddp_finish_step(w->session.ddp, &again));
    }
    w->at.batch = next_index;
    return tutti__session_complete(&w->session, rest);
}

static tutti_status step(work *w, double ms[N_PARTS])
{
    tutti_ddp_times parts;
    uint64_t begin_ns, gradients_ns, end_ns;
    tutti_batch batch;
    double norm, begin_cpu;

    TUTTI_TRY(tutti_barrier(w->session.group, NULL));
    begin_cpu = tutti__cpu_seconds();
    begin_ns = tutti__now_ns();
    w->session.step.data_seconds = 0;
    if (w->session.shards == 0)
        TUTTI_TRY(next(w, &batch));
    TUTTI_TRY(w->session.shards > 0 ? shard_gradients(w)
                                    : tutti__session_gradients(&w->session, &batch, begin_ns));
    gradients_ns = tutti__now_ns();
    TUTTI_TRY(tutti__session_update(&w->session, tutti__plan_lr(&w->plan, &w->at), false,
                                    &w->skipped_steps, &norm));
    TUTTI_TRY(tutti_stream_wait(tutti_ctx_stream(w->session.cx))); /* a GPU's step ends later */
    end_ns = tutti__now_ns();
    ms[CPU] = 1e3 * (tutti__cpu_seconds() - begin_cpu);
    parts = tutti_ddp_get_stats(w->session.ddp).last;
    ms[STEP] = (double)(end_ns - begin_ns) * 1e-6;
    ms[DATA] = w->session.step.data_seconds * 1e3;
    ms[FORWARD] = parts.forward_ms;
    ms[BACKWARD] = parts.backward_ms;
    ms[COMMUNICATION] = parts.comm_ms;
    ms[EXPOSED] = parts.exposed_ms;
    ms[OPTIMIZER] = (double)(end_ns - gradients_ns) * 1e-6;
    ms[OTHER] = ms[STEP] - ms[DATA] - ms[FORWARD] - ms[BACKWARD] - ms[EXPOSED] - ms[OPTIMIZER];
    return TUTTI_OK;
}

static double page_faults(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_minflt : 0;
}

static void keep_ops(stand *s, const work *w, const double mean_ms[N_PARTS], double faults)
{
    s->ops.steps = s->n;
    s->ops.step_ms = mean_ms[STEP];
    s->ops.data_ms = mean_ms[DATA];
    s->ops.exposed_ms = mean_ms[EXPOSED];
    s->ops.page_faults = faults;
    s->ops.threads = tutti_ctx_threads(w->session.cx);
}

static tutti_status take_steps(stand *s, work *w, result *r)
{
    const tutti_buf all = {s->times, N_PARTS * s->n, TUTTI_F64, NULL};
    double ms[N_PARTS], sums[N_PARTS] = {0}, faults;

    for (int64_t i = 0; i < s->bench->warmup; i++)
        TUTTI_TRY(step(w, ms));
    faults = page_faults();
    if (w->session.cx->profile)
        tutti__profile_reset(w->session.cx->profile);
    for (size_t i = 0; i < s->n; i++) {
        TUTTI_TRY(step(w, ms));
        for (int p = 0; p < N_PARTS; p++) {
            s->times[(size_t)p * s->n + i] = ms[p] / w->session.size;
            sums[p] += ms[p] / (double)s->n;
        }
    }
    if (w->session.cx->profile)
        keep_ops(s, w, sums, (page_faults() - faults) / (double)s->n);
    TUTTI_TRY(tutti_all_reduce(w->session.group, all, TUTTI_SUM, NULL));
    for (int p = N_PARTS - 1; p >= 0; p--) /* the step's 95th percentile is the last */
        tutti__bench_sort(s->times + (size_t)p * s->n, s->n, &r->median[p], &r->p95);
    r->images_per_s = (double)w->session.config->batch_size * tutti__session_shares(&w->session) /
                      (r->median[STEP] * 1e-3);
    return TUTTI_OK;
}

/* Counts ranks whose replicas differ. With zero 3 there are none, and rank 0 gathers the weights. */
static tutti_status compare_replicas(work *w, result *r)
{
    const bool shares = tutti_zero_get_stats(w->session.zero).stage == 3;
    char own[33];

    if (shares)
        TUTTI_TRY(tutti_zero_consolidate(w->session.zero, w->session.optim, 0));
    if (w->session.shards == 0)
        TUTTI_TRY(tutti_ddp_broadcast_buffers(w->session.ddp));
    tutti_module_digest(w->session.module, own);
    memcpy(r->digest, own, sizeof own);
    TUTTI_TRY(tutti_broadcast(w->session.group, TUTTI_BUF(r->digest, sizeof r->digest, TUTTI_U8), 0,
                              NULL));
    r->wrong = !shares && strcmp(own, r->digest) != 0;
    return tutti_all_reduce(w->session.group, TUTTI_BUF(&r->wrong, 1, TUTTI_I64), TUTTI_SUM, NULL);
}

/* Starts a profile on CPUs, and measures the cores' peak, on all ranks at once, as they will compute. */
static tutti_status watch(stand *s, tutti_ctx *cx)
{
    if (!tutti__on_host(tutti_ctx_stream(cx)))
        return TUTTI_OK;
    TUTTI_TRY(tutti__cpu_peak_measure(&s->ops.peak));
    cx->profile = s->profile = tutti__profile_new();
    s->ops.profile = s->profile;
    return s->profile ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status train(stand *s, work *w, result *r)
{
    tutti_ddp_stats stats;

    TUTTI_TRY(tutti__group_agree(w->session.group, open_work(w)));
    if (w->session.group == s->group)
        TUTTI_TRY(tutti__group_agree(w->session.group, watch(s, w->session.cx)));
    TUTTI_TRY(tutti__session_open_ddp(&w->session));
    TUTTI_TRY(tutti__group_agree(
        w->session.group,
        tutti__session_open_optimizer(&w->session, w->plan.schedule.warmup_steps)));
    TUTTI_TRY(take_steps(s, w, r));
    TUTTI_TRY(compare_replicas(w, r));
    stats = tutti_ddp_get_stats(w->session.ddp);
    r->gradient_bytes = stats.parameter_bytes;
    r->buckets = stats.n_buckets;
    r->arena_bytes = tutti_ctx_memory_stats(w->session.cx).arena_bytes;
    r->optimizer_bytes = tutti_optim_state_bytes(w->session.optim);
    r->threads = tutti_ctx_threads(w->session.cx);
    TUTTI_TRY(tutti__device_describe(tutti_ctx_device(w->session.cx), &r->device));
    r->skipped = w->skipped_steps;
    return TUTTI_OK;
}

/* Trains for a while in `group`, which it borrows, on these cores. */
static tutti_status measure(stand *s, tutti_group *group, tutti__core_share cores, result *r)
{
    work w = {.session = {.config = &s->config,
                          .parts = &s->bench->parts,
                          .group = group,
                          .shards = (int)s->config.shards,
                          .rank = tutti_group_rank(group),
                          .size = tutti_group_size(group),
                          .local_rank = tutti_group_local_rank(group),
                          .cores = cores,
                          .step.number = 1},
              .at.epoch = 1};
    tutti_status status = train(s, &w, r);

    w.session.group = NULL;
    tutti__session_close(&w.session);
    return status;
}

/* The same on rank 0 alone; the others wait. */
static tutti_status measure_alone(stand *s, int threads, result *r)
{
    tutti_group *alone;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_group_split(s->group, (int[]){0}, 1, "alone", &alone));
    if (alone) {
        s->config.threads = threads; /* the process is already bound to its share */
        status = measure(s, alone, (tutti__core_share){.index = 0, .n = 1}, r);
        tutti_group_free(alone);
    }
    return tutti__group_agree(s->group, status);
}

/* ---- Output -------------------------------------------------------------------------------------- */

static void print_table(const stand *s, const result *r, double efficiency)
{
    static const double MIB = 1 << 20;
    const tutti__train_config *c = &s->config;
    const int ranks = tutti_group_size(s->group);
    FILE *out = s->table->out;
    char shards[48] = "";

    if (c->shards > 0)
        snprintf(shards, sizeof shards, " over %lld shard%s", (long long)c->shards,
                 tutti__s((uint64_t)c->shards));
    fprintf(out,
            "# step, %s, synthetic 3x32x32, %d rank%s (%s)%s, %lld image%s a %s and %d thread%s a "
            "rank, "
            "%s, "
            "amp %s, %s,\n# %.1f MiB of gradients in %zu bucket%s, hook %s, zero %lld, %zu step%s, "
            "Tutti "
            "%s\n",
            c->model, ranks, tutti__s((uint64_t)ranks), tutti_group_transport_name(s->group),
            shards, (long long)c->batch_size, tutti__s((uint64_t)c->batch_size),
            c->shards > 0 ? "shard" : "rank", r->threads, tutti__s((uint64_t)r->threads),
            c->optimizer, c->amp, r->device.name, (double)r->gradient_bytes / MIB, r->buckets,
            tutti__s(r->buckets), c->comm_hook, (long long)c->zero, s->n, tutti__s(s->n),
            TUTTI_VERSION);
    fprintf(out, "#%9s %9s %9s %10s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s %7s\n", "step", "p95",
            "images/s", "efficiency", "data", "forward", "backward", "comm", "exposed", "optimizer",
            "other", "cpu", "arena", "state", "#wrong");
    fprintf(out, "#%9s %9s %9s %10s %9s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "(ms)", "(ms)", "",
            "", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(MiB)", "(MiB)");
    fprintf(out, "%10.2f %9.2f %9.1f %10.3f", r->median[STEP], r->p95, r->images_per_s, efficiency);
    for (int p = DATA; p <= CPU; p++)
        fprintf(out, " %9.2f", r->median[p]);
    fprintf(out, " %9.1f %9.1f %7lld\n", (double)r->arena_bytes / MIB,
            (double)r->optimizer_bytes / MIB, (long long)r->wrong);
    fflush(out);
}

static void print_json(stand *s, const result *r, double alone, double efficiency)
{
    const tutti__train_config *c = &s->config;
    const double ranks = tutti_group_size(s->group);
    const double algbw = (double)r->gradient_bytes / (r->median[STEP] * 1e6);
    const tutti__bench_figures figures = {.bytes = r->gradient_bytes,
                                          .dtype = "f32",
                                          .redop = "avg",
                                          .memory = "group",
                                          .root = -1,
                                          .iterations = (int64_t)s->n,
                                          .wrong = r->wrong,
                                          .median_us = r->median[STEP] * 1e3,
                                          .p95_us = r->p95 * 1e3,
                                          .algbw = algbw,
                                          .busbw = algbw * 2 * (ranks - 1) / ranks};
    char *more = NULL;
    size_t bytes;
    FILE *json = open_memstream(&more, &bytes);

    if (!json)
        return;
    fprintf(json,
            ", \"model\": \"%s\", \"device\": \"%s\", \"batch_size\": %lld, \"amp\": \"%s\", "
            "\"optimizer\": \"%s\", "
            "\"bucket_mb\": %.6f, \"comm_hook\": \"%s\", \"zero\": %lld, \"sync_bn\": %s, "
            "\"shards\": %lld, "
            "\"threads\": %d, \"images_per_s\": %.3f, \"images_per_s_alone\": %.3f, "
            "\"efficiency\": %.6f, \"data_ms\": %.3f, \"forward_ms\": %.3f, \"backward_ms\": %.3f, "
            "\"communication_ms\": %.3f, \"exposed_ms\": %.3f, \"optimizer_ms\": %.3f, "
            "\"cpu_ms\": %.3f, "
            "\"buckets\": %zu, \"arena_bytes\": %zu, \"optimizer_bytes\": %zu, "
            "\"skipped_steps\": %llu, \"parameter_digest\": \"%s\"",
            c->model, r->device.name, (long long)c->batch_size, c->amp, c->optimizer, c->bucket_mb,
            c->comm_hook, (long long)c->zero, c->sync_bn ? "true" : "false", (long long)c->shards,
            r->threads, r->images_per_s, alone, efficiency, r->median[DATA], r->median[FORWARD],
            r->median[BACKWARD], r->median[COMMUNICATION], r->median[EXPOSED], r->median[OPTIMIZER],
            r->median[CPU], r->buckets, r->arena_bytes, r->optimizer_bytes,
            (unsigned long long)r->skipped, r->digest);
    if (s->profile)
        tutti__bench_ops_json(json, &s->ops);
    if (fclose(json) == 0)
        tutti__bench_json_row(s->table, &figures, more);
    free(more);
}

static tutti_status run(stand *s, int64_t *wrong_p)
{
    const int ranks = tutti_group_size(s->group);
    tutti__core_share cores;
    result r = {0}, alone = {0};
    double efficiency;

    s->times = tutti__alloc(N_PARTS * s->n * sizeof *s->times);
    TUTTI_TRY(tutti__group_agree(s->group, s->times ? TUTTI_OK : TUTTI_ERR_MEMORY));
    TUTTI_TRY(tutti__core_share_find(s->group, &cores));
    TUTTI_TRY(measure(s, s->group, cores, &r));
    *wrong_p = r.wrong;
    alone = r;
    if (ranks > 1)
        TUTTI_TRY(measure_alone(s, r.threads, &alone));
    if (tutti_group_rank(s->group) != 0)
        return TUTTI_OK;
    efficiency = r.images_per_s / (ranks * alone.images_per_s);
    print_table(s, &r, efficiency);
    if (s->profile)
        tutti__bench_ops_print(s->table->out, &s->ops, s->bench->layers);
    print_json(s, &r, alone.images_per_s, efficiency);
    return TUTTI_OK;
}

tutti_status tutti__bench_step(tutti__bench_table *table, int64_t *wrong_p)
{
    const tutti__bench *bench = table->bench;
    stand s = {.bench = bench,
               .table = table,
               .group = table->group,
               .config = bench->config,
               .n = bench->iterations > 0 ? (size_t)bench->iterations : 20};
    const tutti_status status = run(&s, wrong_p);

    tutti__profile_free(s.profile);
    free(s.times);
    return status;
}
