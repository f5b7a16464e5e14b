/* step.c -- the time of an optimizer step, and of its parts.   SPDX-License-Identifier: MIT
 *
 * Steps are those of `tutti train`, on synthetic images that are in memory before the clock starts: no reading, no files. Then
 * rank 0 does the same alone, while the others sleep: N times that is the best that N ranks can reach. */
#include "cli/bench/bench.h"
#include "device/device.h"
#include "train/run/run.h"

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
    tutti__bench_table table;
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

/* ---- Steps ---------------------------------------------------------------------------------------------- */

static tutti_status open_run(tutti__run *run)
{
    const size_t batch = (size_t)run->config->batch_size, shares = (size_t)tutti__run_shares(run);
    size_t count;

    run->forward_agreed = true; /* failures are reported by the bench */
    TUTTI_TRY(tutti__run_open_alone(run));
    count = tutti_dataset_describe(run->train_data).count;
    run->batches = tutti__plan_batches(run, 0);
    if (run->shards > 0 && run->size > run->shards)
        return tutti__fail(TUTTI_ERR_ARG, "shards: a step has %d, fewer than there are ranks, %d",
                           run->shards, run->size);
    if (batch * (run->shards > 0 ? (size_t)run->config->grad_accumulation : 1) <= count / shares)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG, "batch_size is %zu, but the synthetic data set has %zu images for %zu %s%s",
        batch, count, shares, run->shards > 0 ? "shard" : "rank", shares == 1 ? "" : "s");
}

/* The next full batch, if necessary of the next epoch. */
static tutti_status next(tutti__run *run, tutti_batch *batch)
{
    do {
        if (!tutti_loader_next(run->train_loader, batch)) {
            TUTTI_TRY(tutti_loader_status(run->train_loader));
            batch->n = 0;
        }
    } while (batch->n != (size_t)run->config->batch_size);
    return TUTTI_OK;
}

/* Computes this rank's range of shards; requests batches one step ahead. *rest_p: as in tutti__run_accumulate. */
static tutti_status compute_shards(tutti__run *run, size_t index, size_t next_index, double *rest_p)
{
    const int64_t first = (int64_t)run->rank * run->shards / run->size,
                  end = (int64_t)(run->rank + 1) * run->shards / run->size;
    const size_t each = (size_t)run->config->grad_accumulation;
    tutti_batch batch;

    for (int64_t v = first; v < end; v++) {
        run->shard = (int)v;
        TUTTI_TRY(tutti_ddp_begin_shard(run->ddp, run->shard, v + 1 == end));
        if (!tutti__run_next_batch(run, index, &batch))
            return tutti_loader_status(run->train_loader);
        for (size_t k = 0; k < each; k++)
            tutti_loader_ask(run->train_loader, next_index + k, run->shard, 0);
        TUTTI_TRY(tutti__run_accumulate(run, &batch, tutti__now_ns(), rest_p));
    }
    return TUTTI_OK;
}

/* As tutti__run_gradients, with logical shards. */
static tutti_status shard_gradients(tutti__run *run)
{
    const size_t each = (size_t)run->config->grad_accumulation;
    const size_t whole = tutti_dataset_describe(run->train_data).count /
                         (size_t)(run->shards * run->config->batch_size);
    const size_t index = (size_t)run->at.batch,
                 next_index = index + 2 * each <= whole ? index + each : 0;
    double rest = 1;
    bool again = true;

    while (again) {
        TUTTI_TRY(tutti_ddp_begin_step(run->ddp));
        TUTTI_TRY(compute_shards(run, index, next_index, &rest));
        TUTTI_TRY(tutti_ddp_finish_step(run->ddp, &again));
    }
    run->at.batch = next_index;
    return tutti__run_scale(run, rest);
}

static tutti_status step(tutti__run *run, double ms[N_PARTS])
{
    tutti_ddp_times parts;
    uint64_t begin_ns, gradients_ns, end_ns;
    tutti_batch batch;
    double norm, begin_cpu;

    TUTTI_TRY(tutti_barrier(run->group, NULL));
    begin_cpu = tutti__cpu_seconds();
    begin_ns = tutti__now_ns();
    run->data_seconds = 0;
    if (run->shards == 0)
        TUTTI_TRY(next(run, &batch));
    TUTTI_TRY(run->shards > 0 ? shard_gradients(run) : tutti__run_gradients(run, &batch, begin_ns));
    gradients_ns = tutti__now_ns();
    TUTTI_TRY(tutti__run_update(run, false, &norm));
    TUTTI_TRY(tutti_stream_wait(tutti_ctx_stream(run->cx))); /* a GPU's step ends later */
    end_ns = tutti__now_ns();
    ms[CPU] = 1e3 * (tutti__cpu_seconds() - begin_cpu);
    parts = tutti_ddp_get_stats(run->ddp).last;
    ms[STEP] = (double)(end_ns - begin_ns) * 1e-6;
    ms[DATA] = run->data_seconds * 1e3;
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

static void keep_ops(stand *s, const tutti__run *run, const double mean_ms[N_PARTS], double faults)
{
    s->ops.steps = s->n;
    s->ops.step_ms = mean_ms[STEP];
    s->ops.data_ms = mean_ms[DATA];
    s->ops.exposed_ms = mean_ms[EXPOSED];
    s->ops.page_faults = faults;
    s->ops.threads = tutti_ctx_threads(run->cx);
}

static tutti_status take_steps(stand *s, tutti__run *run, result *r)
{
    const tutti_buf all = {s->times, N_PARTS * s->n, TUTTI_F64, NULL};
    double ms[N_PARTS], sums[N_PARTS] = {0}, faults;

    for (int64_t i = 0; i < s->bench->warmup; i++)
        TUTTI_TRY(step(run, ms));
    faults = page_faults();
    if (run->cx->profile)
        tutti__profile_reset(run->cx->profile);
    for (size_t i = 0; i < s->n; i++) {
        TUTTI_TRY(step(run, ms));
        for (int p = 0; p < N_PARTS; p++) {
            s->times[(size_t)p * s->n + i] = ms[p] / run->size;
            sums[p] += ms[p] / (double)s->n;
        }
    }
    if (run->cx->profile)
        keep_ops(s, run, sums, (page_faults() - faults) / (double)s->n);
    TUTTI_TRY(tutti_all_reduce(run->group, all, TUTTI_SUM, NULL));
    for (int p = N_PARTS - 1; p >= 0; p--) /* the step's 95th percentile is the last */
        tutti__bench_sort(s->times + (size_t)p * s->n, s->n, &r->median[p], &r->p95);
    r->images_per_s =
        (double)run->config->batch_size * tutti__run_shares(run) / (r->median[STEP] * 1e-3);
    return TUTTI_OK;
}

/* Counts ranks whose replicas differ. */
static tutti_status compare_replicas(tutti__run *run, result *r)
{
    char own[33];

    if (run->shards == 0)
        TUTTI_TRY(tutti_ddp_broadcast_buffers(run->ddp));
    tutti_module_digest(run->module, own);
    memcpy(r->digest, own, sizeof own);
    TUTTI_TRY(
        tutti_broadcast(run->group, TUTTI_BUF(r->digest, sizeof r->digest, TUTTI_U8), 0, NULL));
    r->wrong = strcmp(own, r->digest) != 0;
    return tutti_all_reduce(run->group, TUTTI_BUF(&r->wrong, 1, TUTTI_I64), TUTTI_SUM, NULL);
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

static tutti_status train(stand *s, tutti__run *run, result *r)
{
    tutti_ddp_stats stats;

    TUTTI_TRY(tutti__group_agree(run->group, open_run(run)));
    if (run->group == s->group)
        TUTTI_TRY(tutti__group_agree(run->group, watch(s, run->cx)));
    TUTTI_TRY(tutti__run_open_ddp(run));
    TUTTI_TRY(tutti__group_agree(run->group, tutti__run_open_optimizer(run)));
    TUTTI_TRY(take_steps(s, run, r));
    TUTTI_TRY(compare_replicas(run, r));
    stats = tutti_ddp_get_stats(run->ddp);
    r->gradient_bytes = stats.parameter_bytes;
    r->buckets = stats.n_buckets;
    r->arena_bytes = tutti_ctx_memory_stats(run->cx).arena_bytes;
    r->optimizer_bytes = tutti_optim_state_bytes(run->optim);
    r->threads = tutti_ctx_threads(run->cx);
    TUTTI_TRY(tutti__device_describe(tutti_ctx_device(run->cx), &r->device));
    r->skipped = run->at.skipped_steps;
    return TUTTI_OK;
}

/* Trains for a while in `group`, which it borrows, on these cores. */
static tutti_status measure(stand *s, tutti_group *group, tutti__core_share cores, result *r)
{
    tutti__run run = {.config = &s->config,
                      .parts = &s->bench->parts,
                      .group = group,
                      .shards = (int)s->config.shards,
                      .rank = tutti_group_rank(group),
                      .size = tutti_group_size(group),
                      .local_rank = tutti_group_local_rank(group),
                      .cores = cores,
                      .folder = {.metrics = -1, .lock.fd = -1},
                      .at.epoch = 1};
    tutti_status status = train(s, &run, r);

    run.group = NULL;
    tutti__run_close(&run);
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
    FILE *out = s->table.out;
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
        tutti__bench_json_row(&s->table, &figures, more);
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
    TUTTI_TRY(tutti__group_agree(s->group, tutti__bench_table_open(&s->table, s->bench, s->group)));
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
        tutti__bench_ops_print(s->table.out, &s->ops, s->bench->layers);
    print_json(s, &r, alone.images_per_s, efficiency);
    return TUTTI_OK;
}

tutti_status tutti__bench_step(const tutti__bench *bench, int64_t *wrong_p)
{
    stand s = {.bench = bench,
               .config = bench->config,
               .n = bench->iterations > 0 ? (size_t)bench->iterations : 20};
    tutti_status status =
        tutti_group_init(&s.group, &(tutti_group_opts){.backend = bench->backend});

    *wrong_p = 0;
    if (status != TUTTI_OK)
        return status;
    status = run(&s, wrong_p);
    status = tutti__bench_table_close(&s.table, status);
    tutti__profile_free(s.profile);
    free(s.times);
    tutti_group_free(s.group);
    return status;
}
