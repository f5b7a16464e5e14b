/* digits.c -- 8x8 digits, in the library: 1438 train, 359 test.   SPDX-License-Identifier: MIT
 *
 * Every fifth row of the file is a test image, the rest is for training: fixed, so that results compare. Pixels 0..16
 * become 0..255. The data and who made them: digits.inc. */
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

static tutti_status digits_open(tutti_dataset *dataset, const char *dir)
{
    tutti_dataset_info *info = &dataset->info;

    (void)dir;
    info->count = tutti__dataset_is_train(dataset) ? TUTTI__COUNT_OF(ROWS) - TEST : TEST;
    info->channels = 1;
    info->height = 8;
    info->width = 8;
    info->classes = 10;
    info->mean[0] = MEAN;
    info->std[0] = DEVIATION;
    return TUTTI_OK;
}

static tutti_status digits_read(const tutti_dataset *dataset, size_t index, uint8_t *image,
                                int64_t *label_p)
{
    size_t n =
        tutti__dataset_is_train(dataset) ? index + index / (EVERY - 1) : index * EVERY + EVERY - 1;

    for (int i = 0; i < PIXELS; i++)
        image[i] = (uint8_t)((value_of(ROWS[n][i]) * 255 + 8) / 16);
    *label_p = value_of(ROWS[n][PIXELS]);
    return TUTTI_OK;
}

const tutti__format tutti__format_digits = {
    .name = "digits",
    .usage = "digits:train|test",
    .size = sizeof(tutti_dataset),
    .in_library = true,
    .open = digits_open,
    .read = digits_read,
};
