/* fill.c -- samples and labels of a batch, from the data set to what the caller gets.   SPDX-License-Identifier: MIT */
#include "data/ring.h"

#include <string.h>

/* A row of bytes is an image of one line. */
static tutti_status prepare_transform(tutti_loader *loader, const tutti_dataset *dataset)
{
    const tutti_loader_opts *opts = &loader->opts;
    tutti_dataset_info info = dataset->info;

    if (dataset->dims == 1) {
        info.width = info.channels;
        info.channels = 1;
    }
    TUTTI_TRY(tutti__transform_init(&loader->transform, &info, opts->channels, opts->augment,
                                    opts->seed));
    if (dataset->image_size > 0)
        loader->transform.padding = 0; /* the data set crops at random itself */
    loader->x_bytes = (size_t)loader->transform.channels * (size_t)info.height *
                      (size_t)info.width * sizeof(float);
    loader->image_stride = (dataset->x_bytes + 63) / 64 * 64;
    return TUTTI_OK;
}

tutti_status tutti__fill_prepare(tutti_loader *loader, const tutti_dataset *dataset)
{
    const tutti_loader_opts *opts = &loader->opts;
    tutti__augmentation *a = &loader->augmentation;

    TUTTI_TRY(tutti__augmentation_init(a, opts->augmentation, dataset, opts->channels, opts->seed));
    loader->opts.augmentation = NULL; /* not kept */
    loader->x_bytes = dataset->x_bytes;
    loader->y_bytes = a->y_classes ? a->y_classes * sizeof(float) : dataset->y_bytes;
    if (dataset->info.dtype == TUTTI_U8)
        TUTTI_TRY(prepare_transform(loader, dataset));
    loader->scratch_stride =
        loader->image_stride + (a->mixes ? (loader->x_bytes + loader->y_bytes + 63) / 64 * 64 : 0);
    return TUTTI_OK;
}

static tutti_status fill_sample(const tutti_loader *loader, const tutti__slot *s, size_t i,
                                uint8_t *image)
{
    const tutti_dataset *dataset = loader->dataset;
    const tutti__augmentation *a = &loader->augmentation;
    const bool random = loader->opts.augment && dataset->image_size > 0;
    const size_t index = s->samples[i];
    char *x = (char *)s->x + i * loader->x_bytes, *y = (char *)s->y + i * loader->y_bytes;
    void *read_x = loader->image_stride ? (void *)image : x;
    uint64_t chance = random ? tutti__transform_chance(&loader->transform, s->epoch, index) : 0;
    int64_t label;
    void *read_y = a->y_classes ? (void *)&label : y;

    TUTTI_TRY(tutti__dataset_read(dataset, index, random, chance, read_x, read_y));
    TUTTI_TRY(tutti__augment_read(a, dataset, s->epoch, index, read_x, read_y));
    if (loader->image_stride)
        tutti__transform_apply(&loader->transform, s->epoch, index, image, (float *)x);
    tutti__augment_sample(a, s->epoch, index, (float *)x);
    if (a->y_classes) {
        memset(y, 0, loader->y_bytes);
        ((float *)y)[label] = 1;
    }
    return TUTTI_OK;
}

tutti_status tutti__fill_batch(tutti_loader *loader, const tutti__slot *s, int worker)
{
    uint8_t *scratch = loader->scratch + (size_t)worker * loader->scratch_stride;

    for (size_t i = 0; i < s->n; i++) {
        if (tutti__ring_is_unwanted(loader, s))
            return TUTTI_OK;
        atomic_store_explicit(&loader->at[worker], s->samples[i], memory_order_relaxed);
        TUTTI_TRY(fill_sample(loader, s, i, scratch));
    }
    if (s->n > 0)
        tutti__augment_batch(&loader->augmentation, s->epoch, s->samples[0], s->x, s->y, s->n,
                             loader->y_bytes / sizeof(float),
                             (float *)(void *)(scratch + loader->image_stride));
    return TUTTI_OK;
}
