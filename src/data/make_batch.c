/* make_batch.c -- a loader's batch: samples read, transformed and delivered, in whichever order.   SPDX-License-Identifier: MIT */
#include "data/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UNUSED SIZE_MAX /* in scratch_at */

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static bool needs_scratch(const tutti_loader *loader, int i)
{
    const tutti_field *f = &loader->dataset->fields[i];

    return f->dtype == TUTTI_U8 || (f->moves && loader->opts.augment) ||
           (i == 1 && loader->augmentation.y_classes);
}

tutti_status tutti__ring_allocate(tutti_loader *loader, size_t batch)
{
    const int n = loader->dataset->info.n_fields;

    for (int i = 0; i < n; i++) {
        loader->scratch_at[i] = needs_scratch(loader, i) ? loader->scratch_stride : UNUSED;
        if (needs_scratch(loader, i))
            loader->scratch_stride += (loader->dataset->bytes[i] + 63) / 64 * 64;
    }
    loader->mix_at = loader->scratch_stride;
    if (loader->augmentation.mixes)
        loader->scratch_stride += (loader->bytes[0] + loader->bytes[1] + 63) / 64 * 64;
    loader->scratch = tutti__alloc(loader->scratch_stride * (size_t)(loader->opts.workers + 1));
    if (!loader->scratch)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < loader->n_slots * (size_t)n; i++) {
        const size_t bytes = loader->bytes[i % (size_t)n];
        void **array_p = &loader->slots[i / (size_t)n].arrays[i % (size_t)n];

        *array_p = tutti__alloc(batch * bytes);
        if (!*array_p)
            return tutti__fail(TUTTI_ERR_MEMORY,
                               "loader: no memory for %zu batches of %zu samples of %zu bytes; use "
                               "a smaller batch size or "
                               "prefetch",
                               loader->n_slots, batch, bytes);
    }
    return TUTTI_OK;
}

void tutti__ring_free_arrays(const tutti_loader *loader, tutti__slot *s)
{
    if (loader->ahead.cx)
        tutti__ahead_slot_close(&loader->ahead, &s->ahead);
    for (int i = 0; i < TUTTI_MAX_FIELDS; i++) {
        if (!loader->ahead.cx)
            free(s->arrays[i]);
        s->arrays[i] = NULL;
    }
}

/* ---- Making a batch ------------------------------------------------------------------------------------ */

/* A label as the probabilities of all classes. */
static void put_one_hot(void *y, size_t bytes, int64_t label)
{
    memset(y, 0, bytes);
    ((float *)y)[label] = 1;
}

/* Separates these random numbers from other uses of the same seed. */
#define EPOCH_KEY 0x65706f6368u /* "epoch" */

/* What the format may draw from: false for nothing. */
static bool chance_of(const tutti_loader *loader, uint64_t epoch, size_t index, uint64_t *chance_p)
{
    const tutti_dataset *dataset = loader->dataset;
    const tutti__philox_counter counter = {{(uint32_t)epoch, (uint32_t)(epoch >> 32), 0, 0}};
    uint32_t words[4];

    if (loader->opts.augment && dataset->image_size > 0) {
        *chance_p = tutti__transform_chance(&loader->transform, epoch, index);
        return true;
    }
    if (!loader->opts.shuffle || epoch == 0 || !dataset->format || !dataset->format->epoch_seed)
        return false;
    tutti__philox(loader->opts.seed ^ EPOCH_KEY, counter, words);
    *chance_p = (uint64_t)words[1] << 32 | words[0];
    return true;
}

static tutti_status fill_sample(const tutti_loader *loader, const tutti__slot *s, size_t i,
                                size_t index, uint8_t *scratch)
{
    const tutti_dataset *dataset = loader->dataset;
    const int n = dataset->info.n_fields;
    void *arrays[TUTTI_MAX_FIELDS] = {NULL};
    uint64_t chance;
    bool random;

    for (int k = 0; k < n; k++)
        arrays[k] = loader->scratch_at[k] == UNUSED ? (char *)s->arrays[k] + i * loader->bytes[k]
                                                    : (void *)(scratch + loader->scratch_at[k]);
    random = chance_of(loader, s->epoch, index, &chance);
    TUTTI_TRY(tutti__dataset_read(dataset, index, random ? &chance : NULL, arrays));
    TUTTI_TRY(tutti__augment_read(&loader->augmentation, dataset, s->epoch, index, arrays));
    for (int k = 0; k < n; k++) {
        void *to = (char *)s->arrays[k] + i * loader->bytes[k];

        if (arrays[k] == to)
            continue;
        if (k == 0)
            tutti__transform_apply(&loader->transform, s->epoch, index, arrays[k], to);
        else if (k == 1 && loader->augmentation.y_classes)
            put_one_hot(to, loader->bytes[k], *(const int64_t *)arrays[k]);
        else
            tutti__transform_field(&loader->transform, s->epoch, index, &dataset->fields[k],
                                   arrays[k], to);
    }
    tutti__augment_sample(&loader->augmentation, s->epoch, index,
                          (float *)s->arrays[0] + i * loader->bytes[0] / sizeof(float));
    return TUTTI_OK;
}

static void keep_message(tutti__slot *s)
{
    if (s->status == TUTTI_OK)
        return;
    free(s->message);
    s->message = strdup(tutti_last_error());
}

static bool is_unwanted(const tutti_loader *loader, const tutti__slot *s)
{
    return atomic_load_explicit(&loader->cancel, memory_order_relaxed) ||
           atomic_load_explicit(&s->dropped, memory_order_relaxed);
}

/* Waits until the device has finished with the slot's previous batch. */
static tutti_status wait_for_device(tutti_loader *loader, tutti__slot *s)
{
    const struct timespec nap = {0, 50000};
    bool is_free = true;

    while (loader->ahead.cx && !is_unwanted(loader, s)) {
        TUTTI_TRY(tutti__ahead_is_free(&loader->ahead, &s->ahead, &is_free));
        if (is_free)
            break;
        nanosleep(&nap, NULL);
    }
    return TUTTI_OK;
}

void tutti__ring_fill(tutti_loader *loader, tutti__slot *s, int worker)
{
    uint8_t *scratch = loader->scratch + (size_t)worker * loader->scratch_stride;

    s->status = wait_for_device(loader, s);
    for (size_t i = 0; i < s->n && s->status == TUTTI_OK; i++) {
        if (is_unwanted(loader, s))
            return;
        atomic_store_explicit(&loader->at[worker], s->samples[i], memory_order_relaxed);
        s->status = fill_sample(loader, s, i, s->samples[i], scratch);
    }
    if (s->status == TUTTI_OK && s->n > 0)
        tutti__augment_batch(&loader->augmentation, s->epoch, s->samples[0], s->arrays[0],
                             s->arrays[1], s->n, loader->bytes[1] / sizeof(float),
                             (float *)(void *)(scratch + loader->mix_at));
    keep_message(s);
}

void tutti__ring_send(tutti_loader *loader, tutti__slot *s)
{
    size_t bytes[TUTTI_MAX_FIELDS];

    for (int i = 0; i < loader->dataset->info.n_fields; i++)
        bytes[i] = s->n * loader->bytes[i];
    if (!loader->ahead.cx || s->status != TUTTI_OK || is_unwanted(loader, s))
        return;
    s->status = tutti__ahead_copy(&loader->ahead, &s->ahead, bytes);
    keep_message(s);
}

bool tutti__ring_deliver(tutti_loader *loader, tutti__slot *s, tutti_batch *batch_p)
{
    const tutti_dataset *dataset = loader->dataset;

    if (s->status != TUTTI_OK)
        return tutti__ring_end(loader, s->status, s->message);
    if (loader->ahead.cx)
        tutti__ahead_offer(&loader->ahead, &s->ahead);
    for (int i = 0; i < dataset->info.n_fields; i++) {
        tutti_named_array *named = &loader->delivered[i];

        named->name = dataset->fields[i].name;
        named->array = tutti__dataset_array(dataset, i, (int64_t)s->n, loader->opts.channels);
        if (i == 1 && loader->augmentation.y_classes)
            named->array = (tutti_array){
                .shape = TUTTI_SHAPE((int64_t)s->n, (int64_t)loader->augmentation.y_classes),
                .dtype = TUTTI_F32};
        named->array.p = s->arrays[i];
    }
    *batch_p = (tutti_batch){.x = loader->delivered[0].array,
                             .y = loader->delivered[1].array,
                             .n = s->n,
                             .index = s->index,
                             .samples = s->samples,
                             .arrays = loader->delivered,
                             .n_arrays = (size_t)dataset->info.n_fields};
    return true;
}
