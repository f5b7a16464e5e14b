/* augment.c -- what a loader does to samples and batches, from its options.   SPDX-License-Identifier: MIT */
#include "data/augment.h"

#include "tensor/tensor.h"

#include <math.h>

/* Separate the random numbers from one another, and from those of the crop. */
#define KEY_OWN    0x6f776eu       /* "own" */
#define KEY_COLOR  0x636f6c6f72u   /* "color" */
#define KEY_ERASE  0x6572617365u   /* "erase" */
#define KEY_MIXING 0x6d6978696e67u /* "mixing" */

static tutti_status check_values(const tutti_augment_opts *o)
{
    const struct {
        const char *name;
        float value, low, high;
    } rows[] = {{"brightness", o->brightness, 0, 100},
                {"contrast", o->contrast, 0, 100},
                {"saturation", o->saturation, 0, 100},
                {"mixup", o->mixup, 0.001f, 1000},
                {"hue", o->hue, 0, 0.5f},
                {"random_erasing", o->random_erasing, 0, 1},
                {"cutmix", o->cutmix, 0.001f, 1000}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        if (rows[i].value != 0 && !(rows[i].value >= rows[i].low && rows[i].value <= rows[i].high))
            return tutti__fail(TUTTI_ERR_ARG, "%s: it is %g, expected %s%g to %g", rows[i].name,
                               (double)rows[i].value, rows[i].low > 0 ? "0 (off), or " : "",
                               (double)rows[i].low, (double)rows[i].high);
    return TUTTI_OK;
}

/* Why samples of this data set cannot be mixed; NULL: they can. */
static const char *why_not_mixed(const tutti_dataset *dataset)
{
    if (dataset->info.dtype == TUTTI_I64)
        return "adds samples of numbers (U8 or F32)";
    if (dataset->info.n_fields > 2)
        return "mixes x and y alone, and there are further arrays";
    if (dataset->fields[1].dtype == TUTTI_F32 ? dataset->fields[1].shape.n > 1
                                              : !tutti__dataset_has_labels(dataset))
        return "mixes one label or a row of targets for each sample";
    return NULL;
}

/* Refuses what does not suit the samples. */
static tutti_status check_data(const tutti__augmentation *a, const tutti_dataset *dataset)
{
    const tutti_augment_opts *o = &a->opts;
    const tutti_dataset_info *info = &dataset->info;
    const bool is_image = dataset->fields[0].shape.n == 3 && info->dtype != TUTTI_I64;
    const char *what = NULL, *name = NULL;
    char text[64];

    if (a->jitters &&
        !(tutti__dataset_has_images(dataset) && (info->channels == 1 || info->channels == 3))) {
        name = "color_jitter";
        what = "changes images of bytes (U8) with 1 or 3 channels";
    } else if (o->random_erasing > 0 && !is_image) {
        name = "random_erasing";
        what = "erases a rectangle of images (U8 or F32 [C,H,W])";
    } else if (o->cutmix > 0 && !is_image) {
        name = "cutmix";
        what = "exchanges rectangles of images (U8 or F32 [C,H,W])";
    } else if (a->mixes) {
        name = o->mixup > 0 ? "mixup" : "cutmix";
        what = why_not_mixed(dataset);
    }
    if (!what)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG, "%s: it %s, and the samples of data=%s are %s %s with y %s %s; leave %s out",
        name, what, info->name, tutti_dtype_name(info->dtype),
        tutti__dataset_text(dataset, 0, text), tutti_dtype_name(dataset->fields[1].dtype),
        tutti__shape_text(dataset->fields[1].shape), name);
}

tutti_status tutti__augmentation_init(tutti__augmentation *a, const tutti_augment_opts *opts,
                                      const tutti_dataset *dataset, int channels, uint64_t seed)
{
    const tutti_dataset_info *info = &dataset->info;
    const tutti_shape shape = dataset->fields[0].shape;

    *a = (tutti__augmentation){.seed = seed};
    if (!opts)
        return TUTTI_OK;
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_augment_opts, opts));
    TUTTI_TRY(check_values(opts));
    a->opts = *opts;
    a->jitters =
        opts->brightness > 0 || opts->contrast > 0 || opts->saturation > 0 || opts->hue > 0;
    a->mixes = opts->mixup > 0 || opts->cutmix > 0;
    a->varies = a->jitters || a->mixes || opts->random_erasing > 0 || (opts->own && opts->train);
    if (a->mixes && tutti__dataset_has_labels(dataset))
        a->y_classes = (size_t)info->classes;
    a->planes = shape.n != 3 ? 1 : channels ? channels : info->channels;
    a->height = shape.n != 3 ? 1 : info->height;
    a->width = shape.n != 3 ? (int)tutti_shape_count(shape) : info->width;
    return check_data(a, dataset);
}

static tutti_status run_own(const tutti__augmentation *a, const tutti_dataset *dataset,
                            uint64_t epoch, size_t index, void *const *arrays)
{
    const tutti_dataset_info *info = &dataset->info;
    const bool has_label = tutti__dataset_has_labels(dataset);
    tutti_sample sample = {.x = arrays[0],
                           .shape = dataset->fields[0].shape,
                           .dtype = info->dtype,
                           .y = arrays[1],
                           .train = a->opts.train,
                           .index = index,
                           .epoch = a->opts.train ? epoch : 0,
                           .seed = a->seed,
                           .fields = dataset->fields,
                           .arrays = arrays,
                           .n_fields = info->n_fields};
    tutti_status status;
    int64_t label;

    sample.random = tutti__random_start(a->seed ^ KEY_OWN, sample.epoch, index);
    (void)tutti__fail_again(TUTTI_OK, ""); /* an earlier message is not this one's reason */
    status = a->opts.own(a->opts.self, &sample);
    label = has_label ? *(const int64_t *)arrays[1] : 0;
    if (status == TUTTI_OK && has_label && (label < 0 || label >= info->classes))
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "the program's augmentation has made the label %lld, expected 0 to %d",
                             (long long)label, info->classes - 1);
    if (status == TUTTI_OK)
        return TUTTI_OK;
    return tutti__fail(status, "%s (sample %zu of data set %s, %s)",
                       tutti_last_error()[0]
                           ? tutti_last_error()
                           : "the program's augmentation failed and did not say why",
                       index, info->name, info->split);
}

tutti_status tutti__augment_read(const tutti__augmentation *a, const tutti_dataset *dataset,
                                 uint64_t epoch, size_t index, void *const *arrays)
{
    const tutti_dataset_info *info = &dataset->info;

    if (a->opts.own)
        TUTTI_TRY(run_own(a, dataset, epoch, index, arrays));
    if (a->jitters) {
        tutti_random random = tutti__random_start(a->seed ^ KEY_COLOR, epoch, index);

        tutti__color_jitter(&a->opts, &random, arrays[0], info->channels,
                            (size_t)info->height * (size_t)info->width);
    }
    return TUTTI_OK;
}

void tutti__augment_sample(const tutti__augmentation *a, uint64_t epoch, size_t index, float *x)
{
    tutti_random random = tutti__random_start(a->seed ^ KEY_ERASE, epoch, index);
    tutti__box box;

    if (a->opts.random_erasing == 0 ||
        tutti_random_uniform(&random) >= (double)a->opts.random_erasing)
        return;
    box = tutti__erasing_box(&random, a->height, a->width);
    for (int c = 0; c < a->planes; c++)
        for (int i = box.top; i < box.bottom; i++)
            for (int j = box.left; j < box.right; j++)
                x[((size_t)c * (size_t)a->height + (size_t)i) * (size_t)a->width + (size_t)j] = 0;
}

void tutti__augment_batch(const tutti__augmentation *a, uint64_t epoch, size_t first, float *x,
                          float *y, size_t n, size_t n_y, float *scratch)
{
    tutti_random random = tutti__random_start(a->seed ^ KEY_MIXING, epoch, first);
    const tutti__mixed m = {.x = x,
                            .y = y,
                            .n = n,
                            .n_y = n_y,
                            .planes = a->planes,
                            .height = a->height,
                            .width = a->width,
                            .scratch = scratch};

    if (a->mixes)
        tutti__mix(&a->opts, &random, &m);
}
