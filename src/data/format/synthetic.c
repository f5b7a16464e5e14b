/* synthetic.c -- random images and labels, a function of split and index only.   SPDX-License-Identifier: MIT
 *
 * For measuring: CIFAR-10's shape and counts, and no file. There is nothing to learn in it. */
#include "data/dataset.h"

#include <string.h>

#define CHANNELS 3
#define SIDE     32
#define CLASSES  10
#define KEY      0x73796e7468657469u /* "syntheti"; the test part's key is the next number */

/* Of bytes that are all equally likely. */
#define MEAN      0.5f
#define DEVIATION 0.28980f

static tutti_status synthetic_open(tutti_dataset *dataset, const char *dir)
{
    tutti_dataset_info *info = &dataset->info;

    (void)dir;
    info->count = tutti__dataset_is_train(dataset) ? 50000 : 10000;
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

static tutti_status synthetic_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                   int64_t *label_p)
{
    uint64_t key = KEY + (tutti__dataset_is_train(dataset) ? 0 : 1);
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

const tutti__format tutti__format_synthetic = {
    .name = "synthetic",
    .usage = "synthetic:train|test",
    .size = sizeof(tutti_dataset),
    .in_library = true,
    .open = synthetic_open,
    .read = synthetic_read,
};
