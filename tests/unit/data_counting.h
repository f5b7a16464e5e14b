/* data_counting.h -- a data set whose images contain their index, and that can be made to fail.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DATA_COUNTING_H
#define TUTTI_TESTS_DATA_COUNTING_H

#include "data_loaders.h"

#include <stdatomic.h>

enum { COUNT = 53, SIDE = 20, PIXELS = 3 * SIDE * SIDE };

/* One for all data sets of this kind: tests run one after the other. */
static _Atomic size_t fails_at = SIZE_MAX;

static inline tutti_status counting_open(void **self_p, const tutti_dataset_source *source,
                                         tutti_dataset_info *info)
{
    *self_p = NULL;
    assert_true(source->train);
    assert_null(source->dir);
    info->count = COUNT;
    info->channels = 3;
    info->height = SIDE;
    info->width = SIDE;
    info->classes = COUNT;
    for (int c = 0; c < 3; c++) {
        info->mean[c] = 0.25f * (float)(c + 1);
        info->std[c] = 0.5f;
    }
    return TUTTI_OK;
}

static inline tutti_status counting_read(const void *self, size_t index, uint8_t *image,
                                         int64_t *label_p)
{
    (void)self;
    if (index == fails_at)
        return tutti_fail(TUTTI_ERR_FORMAT, "file 00%zu.bin is broken", index);
    for (size_t i = 0; i < PIXELS; i++)
        image[i] =
            (uint8_t)(1 + (index * 7 + i * 31 + i / 400) % 255); /* never 0: that is padding */
    *label_p = (int64_t)index;
    return TUTTI_OK;
}

static const tutti_dataset_format COUNTING = {
    .name = "counting", .no_folder = true, .open = counting_open, .read = counting_read};

static inline tutti_dataset *own_new(const tutti_dataset_format *format)
{
    tutti_dataset *dataset;
    char spec[80];

    snprintf(spec, sizeof spec, "%s:train", format->name);
    if (tutti_dataset_open_with(&dataset, spec, &(tutti_dataset_opts){.format = format}) !=
        TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

static inline tutti_dataset *counting_new(void)
{
    fails_at = SIZE_MAX;
    return own_new(&COUNTING);
}

#endif
