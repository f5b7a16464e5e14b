/* loader.c -- batches in order, prefetched by worker threads.   SPDX-License-Identifier: MIT
 *
 * Batches of an epoch are numbered; batch b is made in slot b mod n. The ring has three counters:
 *
 *     released <= position <= taken <= released + n          (all under one mutex)
 *     |           |           `- the next batch a worker takes
 *     |           `- the next batch the caller gets
 *     `- batches the caller has finished with
 *
 * An epoch may begin in its middle (a resumed run): then all three start at that batch.
 * A worker takes a number while there is a free slot, makes the batch without the lock, and marks the slot full. The caller
 * waits for its slot, so delivery is in order whichever worker is faster. At the end of an epoch the next begins at once: its
 * first batches are made while the caller evaluates or saves.
 *
 * By shard (opts.shards) there is no such order: requested batches form a queue, and any slot can hold any of them (shard_batches.c).
 *
 * A read may hang (on a file system that is gone). Each worker publishes the sample that it is reading, and a caller that has
 * waited too long reports it. */
#include "base/thread.h"
#include "data/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PREFETCH 65536
#define MAX_SHARDS   4096
#define FIRST_THREAD 2 /* worker w is thread FIRST_THREAD + w in spans; see tutti__time_span */

static size_t samples_of(const tutti_loader *loader, size_t batch)
{
    size_t size = (size_t)loader->opts.batch, left = loader->n_indices - batch * size;

    return left < size ? left : size;
}

/* ---- Workers ------------------------------------------------------------------------------------------- */

/* Assigns batch `batch` of this rank to the slot. */
static void assign(const tutti_loader *loader, tutti__slot *s, size_t batch, int worker)
{
    s->epoch = loader->epoch;
    s->index = batch;
    s->samples = loader->indices + batch * (size_t)loader->opts.batch;
    s->n = samples_of(loader, batch);
    s->worker = worker;
}

/* The slot that this worker must fill; NULL: nothing to do now. Under the mutex. */
static tutti__slot *begin_batch(tutti_loader *loader, int worker)
{
    tutti__slot *s;
    size_t batch = loader->taken;

    if (!loader->begun)
        return NULL;
    if (loader->opts.shards)
        return tutti__loader_shards_begin(loader, worker);
    if (batch >= loader->n_batches || batch >= loader->released + loader->n_slots)
        return NULL;
    loader->taken++;
    s = &loader->slots[batch % loader->n_slots];
    assign(loader, s, batch, worker);
    return s;
}

static void *work(void *user)
{
    tutti_loader *loader = user;
    int number;

    tutti__log_set_rank(loader->log_rank);
    pthread_mutex_lock(&loader->mutex);
    number = loader->n_numbered++;
    while (!loader->stop) {
        tutti__slot *s = begin_batch(loader, number);
        uint64_t begin_ns;

        if (!s) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);
        begin_ns = tutti__now_ns();
        tutti__ring_fill(loader, s, number);
        tutti__record(atomic_load(&loader->recorder), "data", "batch", (int64_t)s->index,
                      FIRST_THREAD + number, begin_ns, tutti__now_ns());
        pthread_mutex_lock(&loader->mutex);
        tutti__ring_send(loader, s);
        loader->busy--;
        if (loader->opts.shards)
            tutti__loader_shards_made(loader, s);
        else
            s->full = true;
        pthread_cond_signal(&loader->ready);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static tutti_status start_workers(tutti_loader *loader)
{
    int error = 0;

    while (!error && loader->n_threads < loader->opts.workers) {
        error = tutti__thread_start(&loader->threads[loader->n_threads], work, loader);
        if (!error)
            loader->n_threads++;
    }
    if (error)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "loader: cannot start worker %d of %d: %s; use fewer workers",
                           loader->n_threads + 1, loader->opts.workers, strerror(error));
    return TUTTI_OK;
}

/* ---- Construction and destruction ------------------------------------------------------------------------ */

static tutti_status check_opts(const tutti_dataset *dataset, const tutti_loader_opts *opts,
                               int size)
{
    const tutti_dataset_info *info = &dataset->info;
    const char *who = opts->shards ? "shards" : "ranks";
    char text[64];

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_loader_opts, opts));
    if (opts->batch < 1)
        return tutti__fail(TUTTI_ERR_ARG, "loader: the batch size is %d, expected at least 1",
                           opts->batch);
    if (opts->workers < 0 || opts->workers > TUTTI__LOADER_WORKERS)
        return tutti__fail(TUTTI_ERR_ARG, "loader: %d workers, expected 0 to %d", opts->workers,
                           TUTTI__LOADER_WORKERS);
    if (opts->prefetch < 0 || opts->prefetch > MAX_PREFETCH)
        return tutti__fail(TUTTI_ERR_ARG, "loader: prefetch is %d batches, expected 0 to %d",
                           opts->prefetch, MAX_PREFETCH);
    if (opts->shards < 0 || opts->shards > MAX_SHARDS)
        return tutti__fail(TUTTI_ERR_ARG, "loader: %d shards, expected 0 (by rank) to %d",
                           opts->shards, MAX_SHARDS);
    if (!tutti__dataset_has_images(dataset) && (opts->augment || opts->channels))
        return tutti__fail(TUTTI_ERR_ARG,
                           "loader: augment and channels are for images of bytes; the samples of "
                           "data set %s are %s, %s",
                           info->name, tutti__dataset_text(dataset, 2, text),
                           tutti_dtype_name(info->dtype));
    if (info->count == 0)
        return tutti__fail(TUTTI_ERR_ARG, "loader: the data set is empty");
    if (info->count < (size_t)size && !opts->no_padding)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "loader: data set %s%s%s has %zu sample%s for %d %s; use at most %zu %s, "
            "or no_padding, which lets %s go without samples",
            info->name, *info->split ? ", " : "", info->split, info->count, tutti__s(info->count),
            size, who, info->count, who, who);
    return TUTTI_OK;
}

static tutti_status read_warn_s(double *warn_s_p)
{
    const char *text = tutti__env_text(TUTTI__ENV_DATA_WARN_S);

    if (!tutti__parse_double(text, warn_s_p) || *warn_s_p < 0 || *warn_s_p > 1e6)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_DATA_WARN_S is \"%.60s\", expected seconds from 0 to 1000000",
                           text);
    return TUTTI_OK;
}

static tutti_status allocate(tutti_loader *loader)
{
    const tutti_loader_opts *opts = &loader->opts;
    size_t batch = (size_t)opts->batch, prefetch = (size_t)opts->prefetch;
    size_t n = loader->n_indices;

    if (batch > n)
        batch = n;
    if (prefetch == 0)
        prefetch = 2 * (size_t)opts->workers;
    loader->n_slots = opts->workers == 0 ? 1 : prefetch + 1; /* plus one that the caller holds */
    if (loader->n_slots > loader->n_batches && !opts->shards)
        loader->n_slots = loader->n_batches ? loader->n_batches : 1;
    loader->indices = tutti__alloc(opts->shards ? 1 : n * sizeof *loader->indices);
    loader->slots = tutti__alloc(loader->n_slots * sizeof *loader->slots);
    if (!loader->indices || !loader->slots)
        return TUTTI_ERR_MEMORY;
    return tutti__ring_allocate(loader, batch);
}

void tutti__ring_set_start(tutti_loader *loader, size_t start)
{
    size_t batch = (size_t)loader->opts.batch;

    loader->sampler.start = start;
    loader->n_indices = tutti_sampler_length(&loader->sampler);
    loader->n_batches = loader->n_indices / batch;
    if (!loader->opts.drop_last && loader->n_indices % batch)
        loader->n_batches++;
}

/* A row of bytes is an image of one line. */
static tutti_status prepare_transform(tutti_loader *loader, const tutti_dataset *dataset)
{
    const tutti_loader_opts *opts = &loader->opts;
    const tutti_augment_opts *own = opts->augmentation;
    tutti_dataset_info info = dataset->info;

    if (dataset->fields[0].shape.n == 1) {
        info.width = info.channels;
        info.channels = 1;
    }
    TUTTI_TRY(tutti__transform_init(&loader->transform, &info, opts->channels, opts->augment,
                                    opts->seed, own));
    if (opts->augment && dataset->image_size > 0 && own &&
        (own->crop_padding != 0 || own->padding_mode != TUTTI_PAD_CONSTANT))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: it is of crops of padded images, and with image_size random parts "
                           "of images of any size are scaled instead; leave one of them out",
                           own->crop_padding != 0 ? "crop_padding" : "padding_mode");
    if (dataset->image_size > 0)
        loader->transform.padding = 0; /* the data set crops at random itself */
    loader->bytes[0] = (size_t)loader->transform.channels * (size_t)info.height *
                       (size_t)info.width * sizeof(float);
    return TUTTI_OK;
}

static tutti_status prepare(tutti_loader *loader, const tutti_dataset *dataset, int rank, int size)
{
    const tutti_loader_opts *opts = &loader->opts;

    loader->sampler = (tutti_sampler_opts){
        .count = dataset->info.count,
        .rank = rank,
        .world_size = size,
        .shuffle = opts->shuffle,
        .seed = opts->seed,
        .drop_last = opts->drop_last,
        .no_padding = opts->no_padding,
    };
    tutti__ring_set_start(loader, 0);
    if (opts->drop_last && !opts->no_padding && loader->n_batches == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "loader: drop_last leaves nothing of the %zu samples of a %s with a "
                           "batch size of %zu; use a smaller batch size",
                           loader->n_indices, opts->shards ? "shard" : "rank", (size_t)opts->batch);
    for (int i = 0; i < dataset->info.n_fields; i++) {
        const tutti_array array = tutti__dataset_array(dataset, i, 1, 0);

        loader->bytes[i] = (size_t)tutti_shape_count(array.shape) * tutti_dtype_size(array.dtype);
    }
    if (dataset->info.dtype == TUTTI_U8)
        TUTTI_TRY(prepare_transform(loader, dataset));
    TUTTI_TRY(tutti__augmentation_init(&loader->augmentation, opts->augmentation, dataset,
                                       opts->channels, opts->seed));
    loader->opts.augmentation = NULL; /* not kept */
    if (loader->augmentation.y_classes)
        loader->bytes[1] = loader->augmentation.y_classes * sizeof(float);
    TUTTI_TRY(allocate(loader));
    return start_workers(loader);
}

tutti_status tutti_loader_new(tutti_loader **loader_p, const tutti_dataset *dataset,
                              const tutti_group *group, const tutti_loader_opts *opts)
{
    int rank = group ? tutti_group_rank(group) : 0, size = group ? tutti_group_size(group) : 1;
    tutti_loader *loader;
    tutti_status status;
    pthread_condattr_t monotonic;
    double warn_s;

    *loader_p = NULL;
    if (!dataset || !opts)
        return tutti__fail(TUTTI_ERR_ARG, "loader: the data set or the options are NULL");
    if (opts->shards) {
        rank = 0;
        size = opts->shards;
    }
    TUTTI_TRY(check_opts(dataset, opts, size));
    TUTTI_TRY(read_warn_s(&warn_s));
    loader = tutti__alloc(sizeof *loader);
    if (!loader)
        return TUTTI_ERR_MEMORY;
    loader->dataset = dataset;
    loader->opts = *opts;
    loader->log_rank = tutti__log_rank();
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&loader->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    loader->warn_ns = (uint64_t)(warn_s * 1e9);
    status = prepare(loader, dataset, rank, size);
    if (status == TUTTI_OK && opts->cx)
        status = tutti__loader_copy_ahead(loader, opts->cx);
    if (status == TUTTI_OK)
        *loader_p = loader;
    else
        tutti_loader_free(loader);
    return status;
}

/* Two slots even without workers, so that the next batch need not wait for the device to finish a step. */
static tutti_status make_two(tutti_loader *loader)
{
    tutti__slot *slots;

    if (loader->n_slots > 1 || (loader->n_batches < 2 && !loader->opts.shards))
        return TUTTI_OK;
    slots = tutti__alloc(2 * sizeof *slots);
    if (!slots)
        return TUTTI_ERR_MEMORY;
    free(loader->slots);
    loader->slots = slots;
    loader->n_slots = 2;
    return TUTTI_OK;
}

tutti_status tutti__loader_copy_ahead(tutti_loader *loader, tutti_ctx *cx)
{
    const size_t whole = (size_t)loader->opts.batch;
    const size_t batch = whole < loader->n_indices ? whole : loader->n_indices;
    const int n = loader->dataset->info.n_fields;
    size_t bytes[TUTTI_MAX_FIELDS];

    for (int i = 0; i < n; i++)
        bytes[i] = batch * loader->bytes[i];
    if (cx->device_ops->is_host || loader->begun || loader->ahead.cx)
        return TUTTI_OK;
    for (size_t i = 0; i < loader->n_slots; i++)
        tutti__ring_free_arrays(loader, &loader->slots[i]);
    TUTTI_TRY(tutti__ahead_open(&loader->ahead, cx));
    TUTTI_TRY(make_two(loader));
    for (size_t i = 0; i < loader->n_slots; i++) {
        tutti__slot *s = &loader->slots[i];

        if (tutti__ahead_slot_open(&loader->ahead, &s->ahead, bytes, n) != TUTTI_OK)
            return tutti__fail(TUTTI_ERR_MEMORY,
                               "loader: no memory for %zu batches of %zu samples of %zu bytes on "
                               "the device, and pinned for it: %s; use a smaller batch size or "
                               "prefetch",
                               loader->n_slots, batch, loader->bytes[0], tutti_last_error());
        for (int k = 0; k < n; k++)
            s->arrays[k] = s->ahead.host[k];
    }
    return TUTTI_OK;
}

void tutti_loader_free(tutti_loader *loader)
{
    if (!loader)
        return;
    atomic_store(&loader->cancel, true);
    pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; i < loader->n_threads; i++)
        pthread_join(loader->threads[i], NULL);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->ready);
    pthread_mutex_destroy(&loader->mutex);
    for (size_t i = 0; loader->slots && i < loader->n_slots; i++) {
        tutti__ring_free_arrays(loader, &loader->slots[i]);
        free(loader->slots[i].message);
    }
    tutti__ahead_close(&loader->ahead);
    tutti__loader_shards_close(loader);
    free(loader->slots);
    free(loader->indices);
    free(loader->scratch);
    free(loader->message);
    free(loader);
}

/* ---- The caller's side -------------------------------------------------------------------------------- */

size_t tutti_loader_batches(const tutti_loader *loader)
{
    return loader ? loader->n_batches : 0;
}

/* Takes the caller's batch back. */
static tutti_status ring_take_back(tutti_loader *loader)
{
    tutti__slot *s = loader->held;

    loader->held = NULL;
    return s && loader->ahead.cx ? tutti__ahead_take_back(&loader->ahead, &s->ahead) : TUTTI_OK;
}

/* Cancels the workers' batches and starts another epoch: its samples from `start` on, from batch `first` on. */
static void begin_epoch(tutti_loader *loader, uint64_t epoch, size_t start, size_t first)
{
    pthread_mutex_lock(&loader->mutex);
    loader->begun = false;
    atomic_store(&loader->cancel, true);
    while (loader->busy > 0)
        pthread_cond_wait(&loader->ready, &loader->mutex);
    atomic_store(&loader->cancel, false);
    loader->epoch = epoch;
    tutti__ring_set_start(loader, start);
    if (first > loader->n_batches)
        first = loader->n_batches;
    loader->released = loader->position = loader->taken = first;
    for (size_t i = 0; i < loader->n_slots; i++) {
        loader->slots[i].full = false;
        loader->slots[i].worker = -1;
    }
    free(loader->message);
    loader->message = NULL;
    loader->status = ring_take_back(loader);
    if (loader->status == TUTTI_OK)
        loader->status = tutti_sampler_indices(&loader->sampler, epoch, loader->indices);
    if (loader->status != TUTTI_OK)
        loader->message = strdup(tutti_last_error());
    loader->begun = loader->status == TUTTI_OK;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
}

void tutti__loader_seek(tutti_loader *loader, uint64_t epoch, size_t start, size_t batch)
{
    bool alike = !loader->opts.shuffle && !loader->opts.augment && !loader->augmentation.varies;
    bool is_there;

    if (loader->opts.shards) {
        tutti__loader_shards_seek(loader, epoch, start);
        return;
    }
    is_there = loader->begun && loader->position == batch && loader->status == TUTTI_OK &&
               (alike || epoch == loader->epoch) && start == loader->sampler.start;
    if (!is_there) /* else its batches are already being made */
        begin_epoch(loader, epoch, start, batch);
}

void tutti_loader_set_epoch(tutti_loader *loader, uint64_t epoch)
{
    if (!loader)
        return;
    if (!loader->resumed || epoch != loader->epoch)
        tutti__loader_seek(loader, epoch, 0, 0);
    loader->resumed = false;
}

tutti__loader_place tutti__loader_at(const tutti_loader *loader)
{
    const tutti_sampler_opts *s = &loader->sampler;
    const size_t done =
        s->start + loader->position * (size_t)loader->opts.batch * (size_t)s->world_size;

    return (tutti__loader_place){.epoch = loader->epoch,
                                 .start = s->start,
                                 .batch = loader->position,
                                 .samples = done < s->count ? done : s->count,
                                 .count = s->count,
                                 .batch_size = (size_t)loader->opts.batch,
                                 .ranks = loader->opts.shards ? 0 : s->world_size,
                                 .seed = s->seed,
                                 .shuffle = s->shuffle};
}

void tutti__loader_resume(tutti_loader *loader, uint64_t epoch, size_t start, size_t batch)
{
    tutti__loader_seek(loader, epoch, start, batch);
    loader->resumed = true;
}

void tutti__loader_set_recorder(tutti_loader *loader, tutti__recorder *recorder)
{
    atomic_store(&loader->recorder, recorder);
}

/* Under the mutex, which it releases while it logs, because that may be slow. */
static void warn_of_wait(tutti_loader *loader, const tutti__slot *s, uint64_t waited_ns)
{
    const int worker = s->worker;
    char where[4400], what[64];

    if (loader->opts.shards)
        snprintf(what, sizeof what, "batch %zu of shard %d", s->index, s->shard);
    else
        snprintf(what, sizeof what, "batch %zu", loader->position);
    if (worker >= 0)
        tutti__dataset_locate(loader->dataset, atomic_load(&loader->at[worker]), where,
                              sizeof where);
    pthread_mutex_unlock(&loader->mutex);
    if (worker >= 0)
        tutti_log(TUTTI_LOG_WARN, "data",
                  "waiting for %s for %.1f s: worker %d of %d is reading %s", what,
                  (double)waited_ns * 1e-9, worker, loader->n_threads, where);
    else
        tutti_log(TUTTI_LOG_WARN, "data",
                  "waiting for %s for %.1f s: none of the %d workers has begun it", what,
                  (double)waited_ns * 1e-9, loader->n_threads);
    pthread_mutex_lock(&loader->mutex);
}

void tutti__ring_wait(tutti_loader *loader, const tutti__slot *s)
{
    const uint64_t begin_ns = tutti__now_ns(), at_ns = begin_ns + loader->warn_ns;
    const struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    bool may_warn = loader->warn_ns > 0;

    while (!s->full)
        if (!may_warn) {
            pthread_cond_wait(&loader->ready, &loader->mutex);
        } else if (pthread_cond_timedwait(&loader->ready, &loader->mutex, &at) == ETIMEDOUT &&
                   !s->full) {
            warn_of_wait(loader, s, tutti__now_ns() - begin_ns);
            may_warn = false;
        }
    loader->wait_ns += tutti__now_ns() - begin_ns;
}

static tutti__slot *wait_for_batch(tutti_loader *loader)
{
    tutti__slot *s = &loader->slots[loader->position % loader->n_slots];
    bool released = false;

    if (loader->n_threads == 0) {
        uint64_t begin_ns = tutti__now_ns();

        assign(loader, s, loader->position, 0);
        tutti__ring_fill(loader, s, 0);
        tutti__ring_send(loader, s);
        loader->wait_ns += tutti__now_ns() - begin_ns;
        loader->position++;
        return s;
    }
    pthread_mutex_lock(&loader->mutex);
    if (loader->position > loader->released) {
        tutti__slot *old = &loader->slots[loader->released % loader->n_slots];

        old->full = false;
        old->worker = -1;
        loader->released++;
        released = true;
    }
    if (!s->full) {
        pthread_cond_signal(&loader->work);
        tutti__ring_wait(loader, s);
    }
    loader->position++;
    pthread_mutex_unlock(&loader->mutex);
    if (released) /* after the unlock, so that the worker does not wait for the mutex */
        pthread_cond_signal(&loader->work);
    return s;
}

uint64_t tutti__loader_wait_ns(const tutti_loader *loader)
{
    return loader->wait_ns;
}

bool tutti__ring_end(tutti_loader *loader, tutti_status status, const char *message)
{
    free(loader->message);
    loader->message = strdup(message ? message : "");
    loader->status = tutti__fail_again(status, loader->message ? loader->message : "");
    return false;
}

bool tutti_loader_next(tutti_loader *loader, tutti_batch *batch_p)
{
    tutti_status status;
    size_t index;

    if (TUTTI__NOT_NULL(loader) != TUTTI_OK)
        return false;
    if (loader->opts.shards)
        return tutti__ring_end(
            loader, TUTTI_ERR_STATE,
            "loader: batches by shard have no fixed order; get them with tutti_loader_take");
    loader->resumed = false;
    index = loader->position;
    if (!loader->begun && loader->status == TUTTI_OK)
        begin_epoch(loader, 0, 0, 0);
    if (loader->status != TUTTI_OK) {
        tutti__fail_again(loader->status, loader->message ? loader->message : "");
        return false;
    }
    if (index == loader->n_batches) {
        begin_epoch(loader, loader->epoch + 1, 0, 0);
        return false;
    }
    status = ring_take_back(loader);
    if (status != TUTTI_OK)
        return tutti__ring_end(loader, status, tutti_last_error());
    loader->held = wait_for_batch(loader);
    return tutti__ring_deliver(loader, loader->held, batch_p);
}

tutti_status tutti_loader_status(const tutti_loader *loader)
{
    TUTTI_TRY(TUTTI__NOT_NULL(loader));
    if (loader->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti__fail_again(loader->status, loader->message ? loader->message : "");
}
