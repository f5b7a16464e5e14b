/* synthetic.c -- random images and labels, a function of split and index only.   SPDX-License-Identifier: MIT
 *
 * For benchmarks: CIFAR-10's shape and counts, without a file. There is nothing to learn in it. */
#include "data/dataset.h"

#include <string.h>

#define CHANNELS 3
#define SIDE     32
#define CLASSES  10
#define KEY      0x73796e7468657469u /* "syntheti"; the test part's key is the next number */

/* Of uniformly distributed bytes. */
#define MEAN      0.5f
#define DEVIATION 0.28980f

/* the data set's `self` points to one of these */
static const uint64_t TRAIN_KEY = KEY, TEST_KEY = KEY + 1;

static tutti_status synthetic_open(void **self_p, const tutti_dataset_source *source,
                                   tutti_dataset_info *info)
{
    *self_p = (void *)(source->train ? &TRAIN_KEY : &TEST_KEY);
    info->count = source->train ? 50000 : 10000;
    info->channels = CHANNELS;
    info->height = SIDE;
    info->width = SIDE;
    info->classes = CLASSES;
    for (int c = 0; c < CHANNELS; c++) {
        info->mean[c] = MEAN;
        info->std[c] = DEVIATION;
    }
    return TUTTI_OK;
}

static tutti_status synthetic_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    const uint64_t key = *(const uint64_t *)self;
    tutti__philox_counter counter = {{0, (uint32_t)index, (uint32_t)((uint64_t)index >> 32), 0}};
    uint32_t words[4];

    tutti__philox(key, counter, words);
    *label_p = (int64_t)(((uint64_t)words[0] * CLASSES) >> 32);
    for (size_t i = 0; i < CHANNELS * SIDE * SIDE; i += sizeof words) {
        counter.v[0]++;
        tutti__philox(key, counter, words);
        memcpy(image + i, words, sizeof words);
    }
    return TUTTI_OK;
}

const tutti_dataset_format tutti__format_synthetic = {
    .name = "synthetic",
    .help = "random images and labels, for measuring",
    .no_folder = true,
    .open = synthetic_open,
    .read = synthetic_read,
};
