/* transform.c -- crop, flip and normalise in one pass over the image.   SPDX-License-Identifier: MIT
 *
 * A byte has 256 values, so normalising is a table look-up; the crop's padding is the byte 0. Random numbers are Philox(seed;
 * epoch, sample), hence independent of rank, workers and order. */
#include "data/transform.h"

/* Separates these random numbers from other uses of the same seed. */
#define KEY 0x6175676d656e74u /* "augment" */

tutti_status tutti__transform_init(tutti__transform *t, const tutti_dataset_info *info,
                                   int channels, bool augment, uint64_t seed)
{
    if (channels && channels != info->channels && !(channels == 3 && info->channels == 1))
        return tutti__fail(TUTTI_ERR_ARG,
                           "loader: channels is %d for data set %s with %d; expected %d%s (or 0: "
                           "the data set's own)",
                           channels, info->name, info->channels, info->channels,
                           info->channels == 1 ? " or 3" : "");
    t->channels_in = info->channels;
    t->channels = channels ? channels : info->channels;
    t->height = info->height;
    t->width = info->width;
    t->augment = augment;
    t->flip = info->channels == 3;
    t->padding = info->height < 16 || info->width < 16 ? 1 : 4;
    t->key = seed ^ KEY;
    for (int c = 0; c < t->channels; c++) {
        int from = c < t->channels_in ? c : 0;

        for (int byte = 0; byte < 256; byte++)
            t->table[c][byte] = ((float)byte / 255.0f - info->mean[from]) / info->std[from];
    }
    return TUTTI_OK;
}

/* A random number below n, from 32 random bits. */
static int below(uint32_t random, int n)
{
    return (int)(((uint64_t)random * (uint64_t)n) >> 32);
}

static void draw(const tutti__transform *t, uint64_t epoch, size_t sample, uint32_t random[4])
{
    tutti__philox_counter counter = {{(uint32_t)sample, (uint32_t)((uint64_t)sample >> 32),
                                      (uint32_t)epoch, (uint32_t)(epoch >> 32)}};

    tutti__philox(t->key, counter, random);
}

uint64_t tutti__transform_chance(const tutti__transform *t, uint64_t epoch, size_t sample)
{
    uint32_t random[4];

    draw(t, epoch, sample, random);
    return (uint64_t)random[1] << 32 | random[0];
}

/* n values of a row, from first on, forwards or backwards. */
static void normalise_row(float *x, const uint8_t *from, int n, bool flip, const float *table)
{
    if (flip)
        for (int j = 0; j < n; j++)
            x[j] = table[from[n - 1 - j]];
    else
        for (int j = 0; j < n; j++)
            x[j] = table[from[j]];
}

/* Output (i, j) is the image's (i + down, j + right), mirrored afterwards. */
typedef struct crop {
    int down, right;
    bool flip;
} crop;

static crop crop_of(const tutti__transform *t, uint64_t epoch, size_t sample)
{
    uint32_t random[4];

    if (!t->augment)
        return (crop){0};
    draw(t, epoch, sample, random);
    return (crop){.down = below(random[0], 2 * t->padding + 1) - t->padding,
                  .right = below(random[1], 2 * t->padding + 1) - t->padding,
                  .flip = t->flip && random[2] >> 31};
}

void tutti__transform_apply(const tutti__transform *t, uint64_t epoch, size_t sample,
                            const uint8_t *image, float *x)
{
    const crop at = crop_of(t, epoch, sample);
    const int down = at.down, right = at.right;
    const bool flip = at.flip;
    int low, high, first;

    first = right < 0 ? -right : 0; /* before mirroring */
    high = right > 0 ? t->width - right : t->width;
    low = flip ? t->width - high : first;
    for (int c = 0; c < t->channels; c++) {
        const float *table = t->table[c];
        const uint8_t *plane = image + (c < t->channels_in ? c : 0) * t->height * t->width;

        for (int i = 0; i < t->height; i++, x += t->width) {
            int from_i = i + down, n = from_i < 0 || from_i >= t->height ? 0 : high - first;

            if (n < t->width)
                for (int j = 0; j < t->width; j++)
                    x[j] = table[0];
            if (n > 0)
                normalise_row(x + low, plane + from_i * t->width + first + right, n, flip, table);
        }
    }
}

/* Writes element i of `to`, from element `at` of `from` (-1: the field's fill). */
static void put(const tutti_field *field, void *to, int64_t i, const void *from, int64_t at)
{
    if (field->dtype == TUTTI_F32)
        ((float *)to)[i] = at < 0 ? (float)field->fill : ((const float *)from)[at];
    else if (field->dtype == TUTTI_U8)
        ((int64_t *)to)[i] = at < 0 ? (int64_t)field->fill : ((const uint8_t *)from)[at];
    else
        ((int64_t *)to)[i] = at < 0 ? (int64_t)field->fill : ((const int64_t *)from)[at];
}

void tutti__transform_field(const tutti__transform *t, uint64_t epoch, size_t sample,
                            const tutti_field *field, const void *from, void *to)
{
    const crop at = field->moves ? crop_of(t, epoch, sample) : (crop){0};
    const int64_t count = tutti_shape_count(field->shape), width = field->moves ? t->width : count;
    const int64_t height = field->moves ? t->height : 1;

    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / width % height, column = i % width, plane = i / width / height;
        const int64_t y = row + at.down, x = (at.flip ? width - 1 - column : column) + at.right;
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;

        put(field, to, i, from, inside ? (plane * height + y) * width + x : -1);
    }
}
