/* digits.c -- 8x8 digits, in the library: 1438 train, 359 test.   SPDX-License-Identifier: MIT
 *
 * Every fifth row of the file is a test image, the rest is for training: a fixed split, so that results are comparable. Pixels
 * 0..16 become 0..255. Data and authors: digits.inc. */
#include "data/dataset.h"

static const char ROWS[][66] = {
#include "data/format/digits.inc"
};

#define PIXELS 64
#define EVERY  5
#define TEST   (TUTTI__COUNT_OF(ROWS) / EVERY)

/* Of the training part; tools/make_digits.py prints them. */
#define MEAN      0.3059f
#define DEVIATION 0.3763f

static int value_of(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'A' + 10;
}

/* The data set's `self` points to one of these. */
static const bool TRAIN_PART = true, TEST_PART = false;

static tutti_status digits_open(void **self_p, const tutti_dataset_source *source,
                                tutti_dataset_info *info)
{
    *self_p = (void *)(source->train ? &TRAIN_PART : &TEST_PART);
    info->count = source->train ? TUTTI__COUNT_OF(ROWS) - TEST : TEST;
    info->channels = 1;
    info->height = 8;
    info->width = 8;
    info->classes = 10;
    info->mean[0] = MEAN;
    info->std[0] = DEVIATION;
    return TUTTI_OK;
}

static tutti_status digits_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    const bool *train = self;
    size_t n = *train ? index + index / (EVERY - 1) : index * EVERY + EVERY - 1;

    for (int i = 0; i < PIXELS; i++)
        image[i] = (uint8_t)((value_of(ROWS[n][i]) * 255 + 8) / 16);
    *label_p = value_of(ROWS[n][PIXELS]);
    return TUTTI_OK;
}

const tutti_dataset_format tutti__format_digits = {
    .name = "digits",
    .help = "8x8 digits, in the library",
    .no_folder = true,
    .open = digits_open,
    .read = digits_read,
};
