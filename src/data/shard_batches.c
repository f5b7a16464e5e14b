/* shard_batches.c -- a loader's batches by shard, prefetched in the order of requests.   SPDX-License-Identifier: MIT
 *
 * Requests form a queue. Workers make those at its front, each in the slot idle for longest, and leave the last idle slot to
 * the caller, who makes a batch itself if no worker has begun it. So no request can block a batch that is needed now.
 *
 *     asked:  | begun by workers: full, or being made | not begun |
 *
 * Batches are taken in the order of requests, except those that another rank took over: taking a batch drops the requests
 * before it. A worker that is making a dropped batch stops at the next sample. At most two epochs have their permutation in
 * memory: this one, and the next one once a batch of it is requested. */
#include "data/ring.h"

#include <stdlib.h>
#include <string.h>

/* The number of samples in a batch of this epoch; 0: no such batch. */
static size_t samples_of(const tutti_loader *loader, const tutti__epoch *epoch, size_t index,
                         int shard, tutti_sampler_opts *sampler_p)
{
    const size_t batch = (size_t)loader->opts.batch;
    size_t length, left;

    *sampler_p = loader->sampler;
    sampler_p->rank = shard;
    sampler_p->start = epoch->start;
    length = tutti_sampler_length(sampler_p);
    if (index > length / batch)
        return 0;
    left = length - index * batch;
    if (left < batch)
        return loader->opts.drop_last ? 0 : left;
    return batch;
}

/* ---- Slots, under the mutex ---------------------------------------------------------------------------- */

static void put_idle(tutti_loader *loader, tutti__slot *s)
{
    tutti__loader_shards *shards = &loader->shards;

    s->full = false;
    atomic_store(&s->dropped, false);
    shards->idle[(shards->first_idle + shards->n_idle++) % loader->n_slots] = s;
    pthread_cond_signal(&loader->work);
}

/* The one idle for longest: the device has most likely finished with it. */
static tutti__slot *get_idle(tutti_loader *loader)
{
    tutti__loader_shards *shards = &loader->shards;
    tutti__slot *s = shards->idle[shards->first_idle];

    shards->first_idle = (shards->first_idle + 1) % loader->n_slots;
    shards->n_idle--;
    return s;
}

static void assign(tutti_loader *loader, tutti__slot *s, const tutti__epoch *epoch, size_t index,
                   int shard, int worker)
{
    const size_t batch = (size_t)loader->opts.batch;
    size_t *samples = loader->shards.samples + (size_t)(s - loader->slots) * loader->shards.stride;
    tutti_sampler_opts sampler;

    s->epoch = epoch->number;
    s->index = index;
    s->shard = shard;
    s->n = samples_of(loader, epoch, index, shard, &sampler);
    s->samples = samples;
    s->worker = worker;
    for (size_t i = 0; i < s->n; i++)
        samples[i] = tutti__sampler_entry(&sampler, epoch->order, index * batch + i);
}

/* ---- Workers, under the mutex --------------------------------------------------------------------------- */

tutti__slot *tutti__loader_shards_begin(tutti_loader *loader, int worker)
{
    tutti__loader_shards *shards = &loader->shards;
    const tutti__epoch *epoch;
    tutti__asked *asked;

    if (shards->n_begun == shards->n_asked || shards->n_idle + (loader->held != NULL) < 2 ||
        shards->n_idle == 0)
        return NULL;
    asked = &shards->asked[shards->n_begun++];
    epoch = asked->epoch == shards->now.number ? &shards->now : &shards->next;
    asked->slot = get_idle(loader);
    assign(loader, asked->slot, epoch, asked->index, asked->shard, worker);
    return asked->slot;
}

void tutti__loader_shards_made(tutti_loader *loader, tutti__slot *s)
{
    if (atomic_load(&s->dropped))
        put_idle(loader, s);
    else
        s->full = true;
}

/* ---- The queue, under the mutex ------------------------------------------------------------------------- */

static void drop(tutti_loader *loader, const tutti__asked *asked)
{
    if (!asked->slot)
        return;
    if (asked->slot->full)
        put_idle(loader, asked->slot);
    else
        atomic_store(&asked->slot->dropped, true);
}

/* The index in the queue; n_asked: none. */
static size_t find(const tutti__loader_shards *shards, uint64_t epoch, size_t index, int shard)
{
    size_t i = 0;

    while (i < shards->n_asked &&
           (shards->asked[i].epoch != epoch || shards->asked[i].index != index ||
            shards->asked[i].shard != shard))
        i++;
    return i;
}

/* Removes the first n from the queue; does not touch their slots. */
static void shift(tutti__loader_shards *shards, size_t n)
{
    shards->n_asked -= n;
    shards->n_begun -= n < shards->n_begun ? n : shards->n_begun;
    if (shards->n_asked > 0)
        memmove(shards->asked, shards->asked + n, shards->n_asked * sizeof *shards->asked);
}

static void drop_first(tutti_loader *loader, size_t n)
{
    for (size_t i = 0; i < n; i++)
        drop(loader, &loader->shards.asked[i]);
    shift(&loader->shards, n);
}

static bool is_of(const tutti__epoch *epoch, uint64_t number)
{
    return epoch->is_known && epoch->number == number;
}

/* Drops requests of other epochs than these two, and of this one below `index`. */
static void sift(tutti_loader *loader, size_t index)
{
    tutti__loader_shards *shards = &loader->shards;
    size_t n = 0, n_begun = 0;

    for (size_t i = 0; i < shards->n_asked; i++) {
        const tutti__asked *asked = &shards->asked[i];
        const bool is_now = is_of(&shards->now, asked->epoch);

        if (is_now ? asked->index < index : !is_of(&shards->next, asked->epoch)) {
            drop(loader, asked);
            continue;
        }
        n_begun += i < shards->n_begun;
        shards->asked[n++] = *asked;
    }
    shards->n_asked = n;
    shards->n_begun = n_begun;
}

/* ---- Epochs --------------------------------------------------------------------------------------------- */

static void forget_epoch(tutti__epoch *epoch)
{
    free(epoch->order);
    *epoch = (tutti__epoch){0};
}

/* Only the caller's thread makes orders, before there are requests for them. */
static tutti_status make_order(const tutti_loader *loader, tutti__epoch *epoch)
{
    if (!epoch->has_order)
        TUTTI_TRY(tutti__sampler_order(&loader->sampler, epoch->number, &epoch->order));
    epoch->has_order = true;
    return TUTTI_OK;
}

static tutti_status open_shards(tutti_loader *loader)
{
    tutti__loader_shards *shards = &loader->shards;

    shards->stride = (size_t)loader->opts.batch;
    if (shards->stride > loader->n_indices)
        shards->stride = loader->n_indices;
    shards->idle = tutti__alloc(loader->n_slots * sizeof(tutti__slot *));
    shards->samples = tutti__alloc(loader->n_slots * shards->stride * sizeof(size_t));
    if (!shards->idle || !shards->samples)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < loader->n_slots; i++)
        put_idle(loader, &loader->slots[i]);
    return TUTTI_OK;
}

void tutti__loader_shards_close(tutti_loader *loader)
{
    forget_epoch(&loader->shards.now);
    forget_epoch(&loader->shards.next);
    free(loader->shards.asked);
    free(loader->shards.idle);
    free(loader->shards.samples);
}

/* Under the mutex. */
static tutti_status seek(tutti_loader *loader, uint64_t number, size_t start)
{
    tutti__epoch *now = &loader->shards.now, *next = &loader->shards.next;

    if (start > loader->sampler.count)
        return tutti__fail(TUTTI_ERR_ARG, "loader: start is %zu of %zu samples", start,
                           loader->sampler.count);
    if (!loader->begun)
        TUTTI_TRY(open_shards(loader));
    loader->begun = true;
    if (loader->status != TUTTI_OK) /* retry what failed */
        drop_first(loader, loader->shards.n_asked);
    if (is_of(next, number)) {
        forget_epoch(now);
        *now = *next;
        *next = (tutti__epoch){0};
    }
    if (!is_of(now, number)) {
        forget_epoch(now);
        *now = (tutti__epoch){.is_known = true, .number = number, .start = start};
    } else if (now->start != start) {
        sift(loader, SIZE_MAX);
        now->start = start;
    }
    if (!is_of(next, number + 1))
        forget_epoch(next);
    sift(loader, 0);
    tutti__ring_set_start(loader, start);
    return TUTTI_OK;
}

void tutti__loader_shards_seek(tutti_loader *loader, uint64_t epoch, size_t start)
{
    tutti_status status;

    pthread_mutex_lock(&loader->mutex);
    status = seek(loader, epoch, start);
    pthread_mutex_unlock(&loader->mutex);
    free(loader->message);
    loader->message = NULL;
    loader->status = TUTTI_OK;
    if (status != TUTTI_OK)
        tutti__ring_end(loader, status, tutti_last_error());
}

/* ---- The caller's side ------------------------------------------------------------------------------- */

/* Makes room for one more request. Failing costs only time. */
static bool make_room(tutti__loader_shards *shards)
{
    size_t room = shards->room ? 2 * shards->room : 64;
    tutti__asked *asked;

    if (shards->n_asked < shards->room)
        return true;
    asked = realloc(shards->asked, room * sizeof *asked);
    if (!asked)
        return false;
    shards->asked = asked;
    shards->room = room;
    return true;
}

static bool is_usable(tutti_loader *loader)
{
    if (!loader->begun && loader->status == TUTTI_OK)
        tutti__loader_shards_seek(loader, 0, 0);
    return loader->status == TUTTI_OK;
}

void tutti_loader_ask(tutti_loader *loader, size_t index, int shard, int epochs_ahead)
{
    tutti__loader_shards *shards;
    tutti__epoch *epoch;
    tutti_sampler_opts sampler;

    if (!loader || shard < 0 || shard >= loader->opts.shards || loader->n_threads == 0 ||
        epochs_ahead < 0 || epochs_ahead > 1 || !is_usable(loader))
        return;
    shards = &loader->shards;
    epoch = epochs_ahead ? &shards->next : &shards->now;
    if (!epoch->is_known) /* no requests for it yet: workers do not read it */
        *epoch = (tutti__epoch){.is_known = true, .number = shards->now.number + 1};
    if (make_order(loader, epoch) != TUTTI_OK ||
        samples_of(loader, epoch, index, shard, &sampler) == 0)
        return;
    pthread_mutex_lock(&loader->mutex);
    if (find(shards, epoch->number, index, shard) == shards->n_asked && make_room(shards)) {
        shards->asked[shards->n_asked++] =
            (tutti__asked){.epoch = epoch->number, .index = index, .shard = shard};
        pthread_cond_signal(&loader->work);
    }
    pthread_mutex_unlock(&loader->mutex);
}

void tutti_loader_forget(tutti_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->mutex);
    drop_first(loader, loader->shards.n_asked);
    pthread_mutex_unlock(&loader->mutex);
}

/* The slot for a batch, owned by the caller from now on: a worker's, when it is full, or an empty one. Under the mutex. */
static tutti__slot *claim(tutti_loader *loader, size_t index, int shard)
{
    tutti__loader_shards *shards = &loader->shards;
    const size_t i = find(shards, shards->now.number, index, shard);
    tutti__slot *s = NULL;

    if (loader->held)
        put_idle(loader, loader->held);
    loader->held = NULL;
    if (i < shards->n_asked) {
        s = shards->asked[i].slot;
        drop_first(loader, i);
        shift(shards, 1);
    }
    if (s) {
        tutti__ring_wait(loader, s);
    } else {
        s = get_idle(loader);
        assign(loader, s, &shards->now, index, shard, loader->opts.workers);
    }
    loader->held = s; /* one fewer idle slot must be left for the caller */
    pthread_cond_signal(&loader->work);
    return s;
}

static tutti__slot *take(tutti_loader *loader, size_t index, int shard)
{
    tutti__slot *s;

    pthread_mutex_lock(&loader->mutex);
    s = claim(loader, index, shard);
    if (!s->full) {
        uint64_t begin_ns = tutti__now_ns();

        pthread_mutex_unlock(&loader->mutex);
        tutti__ring_fill(loader, s, loader->opts.workers);
        pthread_mutex_lock(&loader->mutex);
        tutti__ring_send(loader, s);
        loader->wait_ns += tutti__now_ns() - begin_ns;
    }
    pthread_mutex_unlock(&loader->mutex);
    return s;
}

bool tutti_loader_take(tutti_loader *loader, size_t index, int shard, tutti_batch *batch_p)
{
    tutti_sampler_opts sampler;
    tutti_status status = TUTTI_OK;

    if (TUTTI__NOT_NULL(loader) != TUTTI_OK)
        return false;
    if (!loader->opts.shards)
        status = tutti__fail(TUTTI_ERR_STATE,
                             "loader: it was made without opts.shards; call tutti_loader_next");
    else if (shard < 0 || shard >= loader->opts.shards)
        status = tutti__fail(TUTTI_ERR_ARG, "loader: shard %d of %d", shard, loader->opts.shards);
    else if (is_usable(loader))
        status = make_order(loader, &loader->shards.now);
    if (status != TUTTI_OK)
        return tutti__ring_end(loader, status, tutti_last_error());
    if (loader->status != TUTTI_OK) {
        tutti__fail_again(loader->status, loader->message ? loader->message : "");
        return false;
    }
    if (samples_of(loader, &loader->shards.now, index, shard, &sampler) == 0)
        return false;
    if (loader->held && loader->ahead.cx)
        status = tutti__ahead_take_back(&loader->ahead, &loader->held->ahead);
    if (status != TUTTI_OK)
        return tutti__ring_end(loader, status, tutti_last_error());
    return tutti__ring_deliver(loader, take(loader, index, shard), batch_p);
}
