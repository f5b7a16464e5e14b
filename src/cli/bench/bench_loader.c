/* bench_loader.c -- the throughput of a data set's loader.   SPDX-License-Identifier: MIT
 *
 * Takes batches as fast as possible, and does nothing with them: measures reading, decoding and augmentation,
 * as in training. The first batch is compared with that of the same loader without workers. */
#include "cli/bench/bench.h"
#include "data/dataset.h"
#include "data/loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct stand {
    const tutti__bench *bench;
    tutti_group *group;
    tutti_dataset *dataset;
    tutti_loader *loader;
    double *times; /* microseconds of each batch */
    size_t n, capacity;
    tutti__bench_table *table;
} stand;

/* This rank's figures for a row. */
typedef struct tally {
    double images, bytes, seconds, wait_s, first_ms;
    size_t batch_bytes; /* of a full batch */
    int64_t wrong;
} tally;

static bool augments(const stand *s)
{
    return s->bench->data.augment && tutti__dataset_has_images(s->dataset);
}

static tutti_status open_loader(stand *s, int workers, tutti_loader **loader_p)
{
    const tutti__bench_data *d = &s->bench->data;

    return tutti_loader_new(loader_p, s->dataset, s->group,
                            &(tutti_loader_opts){.batch = d->batch,
                                                 .workers = workers,
                                                 .prefetch = d->prefetch,
                                                 .shuffle = true,
                                                 .augment = augments(s)});
}

static size_t bytes_of(const tutti_batch *batch)
{
    return (size_t)tutti_shape_count(batch->x.shape) * tutti_dtype_size(batch->x.dtype);
}

/* Samples of the first batch that differ from those of a loader whose caller does the work. */
static tutti_status check(stand *s, const tutti_batch *batch, int64_t *wrong_p)
{
    tutti_loader *alone;
    tutti_batch own;
    size_t each = bytes_of(batch) / batch->n;

    TUTTI_TRY(open_loader(s, 0, &alone));
    if (tutti_loader_next(alone, &own))
        for (size_t i = 0; i < batch->n; i++)
            *wrong_p += i >= own.n ||
                        memcmp((const char *)batch->x.p + i * each,
                               (const char *)own.x.p + i * each, each) != 0 ||
                        ((const int64_t *)batch->y.p)[i] != ((const int64_t *)own.y.p)[i];
    else
        *wrong_p += (int64_t)batch->n;
    tutti_loader_free(alone);
    return TUTTI_OK;
}

static tutti_status keep_time(stand *s, double us)
{
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4096;
        double *grown = realloc(s->times, capacity * sizeof *grown);

        if (!grown)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the times of %zu batches", s->n);
        s->times = grown;
        s->capacity = capacity;
    }
    s->times[s->n++] = us;
    return TUTTI_OK;
}

/* The next batch, of the next epoch too. */
static tutti_status next(stand *s, tutti_batch *batch)
{
    if (tutti_loader_next(s->loader, batch))
        return TUTTI_OK;
    TUTTI_TRY(tutti_loader_status(s->loader));
    if (tutti_loader_next(s->loader, batch))
        return TUTTI_OK;
    TUTTI_TRY(tutti_loader_status(s->loader));
    return tutti__fail(TUTTI_ERR_STATE, "the loader gives no batch of %s", s->bench->data.name);
}

static tutti_status take_batches(stand *s, tally *t)
{
    const uint64_t limit_ns = (uint64_t)(s->bench->data.seconds * 1e9);
    uint64_t begin_ns = tutti__now_ns(), before_ns, wait_ns;
    tutti_batch batch;

    TUTTI_TRY(next(s, &batch));
    t->first_ms = (double)(tutti__now_ns() - begin_ns) * 1e-6;
    t->batch_bytes = bytes_of(&batch);
    TUTTI_TRY(check(s, &batch, &t->wrong));
    /* Batches made during the check are not counted. */
    for (size_t i = 0; i < 2 * (size_t)(s->bench->data.prefetch + 8); i++)
        TUTTI_TRY(next(s, &batch));
    wait_ns = tutti__loader_wait_ns(s->loader);
    begin_ns = before_ns = tutti__now_ns();
    do {
        uint64_t now_ns;

        TUTTI_TRY(next(s, &batch));
        now_ns = tutti__now_ns();
        TUTTI_TRY(keep_time(s, (double)(now_ns - before_ns) * 1e-3));
        t->images += (double)batch.n;
        t->bytes += (double)bytes_of(&batch);
        before_ns = now_ns;
    } while (before_ns - begin_ns < limit_ns);
    t->seconds = (double)(before_ns - begin_ns) * 1e-9;
    t->wait_s = (double)(tutti__loader_wait_ns(s->loader) - wait_ns) * 1e-9;
    return TUTTI_OK;
}

static void print_row(stand *s, int workers, const tally *t, double images_per_s, double mb_per_s)
{
    const tutti__bench_data *d = &s->bench->data;
    double median, p95, waited = t->wait_s / t->seconds;
    tutti__bench_figures figures;
    char *more = NULL;
    size_t bytes;
    FILE *json = open_memstream(&more, &bytes);

    tutti__bench_sort(s->times, s->n, &median, &p95);
    figures = (tutti__bench_figures){.bytes = t->batch_bytes,
                                     .dtype = "f32",
                                     .redop = "none",
                                     .memory = "plain",
                                     .root = -1,
                                     .iterations = (int64_t)s->n,
                                     .wrong = t->wrong,
                                     .median_us = median,
                                     .p95_us = p95,
                                     .algbw = mb_per_s * 1e-3,
                                     .busbw = mb_per_s * 1e-3};
    fprintf(s->table->out, "%8d %9d %12.1f %10.1f %12.1f %12.1f %8.1f %10.1f %7lld\n", workers,
            d->batch, images_per_s, mb_per_s, median, p95, 100 * waited, t->first_ms,
            (long long)t->wrong);
    fflush(s->table->out);
    if (!json)
        return;
    fputs(", \"data\": ", json);
    tutti__json_string(json, tutti_dataset_describe(s->dataset).name);
    fputs(", \"split\": ", json);
    tutti__json_string(json, d->split);
    fprintf(json,
            ", \"image_size\": %d, \"batch_size\": %d, \"workers\": %d, \"augment\": %s, "
            "\"images_per_s\": %.3f, \"mb_per_s\": %.3f, \"wait_fraction\": %.6f, "
            "\"first_batch_ms\": %.3f, \"seconds\": %.6f",
            d->image_size, d->batch, workers, augments(s) ? "true" : "false", images_per_s,
            mb_per_s, waited, t->first_ms, t->seconds);
    if (fclose(json) == 0)
        tutti__bench_json_row(s->table, &figures, more);
    free(more);
}

/* Rates are summed over ranks; times are rank 0's. */
static tutti_status measure(stand *s, int workers, int64_t *wrong_p)
{
    tally t = {0};
    double rates[2];
    tutti_status status;

    s->n = 0;
    TUTTI_TRY(open_loader(s, workers, &s->loader));
    status = tutti_barrier(s->group, NULL);
    if (status == TUTTI_OK)
        status = take_batches(s, &t);
    tutti_loader_free(s->loader);
    s->loader = NULL;
    TUTTI_TRY(tutti__group_agree(s->group, status)); /* one rank's broken file ends all */
    rates[0] = t.images / t.seconds;
    rates[1] = t.bytes / t.seconds * 1e-6;
    TUTTI_TRY(tutti_all_reduce(s->group, TUTTI_BUF(rates, 2, TUTTI_F64), TUTTI_SUM, NULL));
    TUTTI_TRY(tutti_all_reduce(s->group, TUTTI_BUF(&t.wrong, 1, TUTTI_I64), TUTTI_SUM, NULL));
    *wrong_p += t.wrong;
    if (tutti_group_rank(s->group) == 0)
        print_row(s, workers, &t, rates[0], rates[1]);
    return TUTTI_OK;
}

static void print_head(const stand *s)
{
    const tutti_dataset_info info = tutti_dataset_describe(s->dataset);
    int ranks = tutti_group_size(s->group);
    char text[64];

    if (tutti_group_rank(s->group) != 0)
        return;
    fprintf(s->table->out, "# loader, %s, %s: %zu %s, %d rank%s, augment %s, Tutti %s\n", info.name,
            info.split, info.count, tutti__dataset_text(s->dataset, info.count, text), ranks,
            tutti__s((uint64_t)ranks), augments(s) ? "on" : "off", TUTTI_VERSION);
    fprintf(s->table->out, "#%7s %9s %12s %10s %12s %12s %8s %10s %7s\n", "workers", "batch",
            "images/s", "MB/s", "batch (us)", "p95 (us)", "wait (%)", "first (ms)", "#wrong");
    fflush(s->table->out);
}

static tutti_status open_data(stand *s)
{
    const tutti__bench_data *d = &s->bench->data;
    tutti_dataset_opts opts = {.image_size = d->image_size};
    tutti_status status;
    char *spec, *named;

    if (asprintf(&spec, "%s:%s%s%s", d->name, d->dir, *d->dir ? "/" : "", d->split) < 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to open a data set");
    status = tutti__parts_find_spec(spec, &named, &opts.format);
    if (status == TUTTI_OK)
        status = tutti_dataset_open_with(&s->dataset, named, &opts);
    free(named);
    free(spec);
    return status;
}

static tutti_status run(stand *s, int64_t *wrong_p)
{
    const tutti__bench_data *d = &s->bench->data;

    TUTTI_TRY(tutti__group_agree(s->group, open_data(s)));
    print_head(s);
    for (size_t i = 0; i < d->n_workers; i++)
        TUTTI_TRY(measure(s, d->workers[i], wrong_p));
    return TUTTI_OK;
}

tutti_status tutti__bench_loader(tutti__bench_table *table, int64_t *wrong_p)
{
    stand s = {.bench = table->bench, .table = table, .group = table->group};
    const tutti_status status = run(&s, wrong_p);

    free(s.times);
    tutti_dataset_free(s.dataset);
    return status;
}
