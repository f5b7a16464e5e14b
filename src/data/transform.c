/* transform.c -- crop, flip and normalise in one pass over the image.   SPDX-License-Identifier: MIT
 *
 * A byte has 256 values, so normalising is a table look-up; the crop's padding is the byte 0, or the image mirrored. Random numbers are Philox(seed;
 * epoch, sample), hence independent of rank, workers and order. */
#include "data/transform.h"

/* Separates these random numbers from other uses of the same seed. */
#define KEY 0x6175676d656e74u /* "augment" */

static tutti_status set_augmentation(tutti__transform *t, const tutti_augment_opts *o)
{
    const int side = t->height < t->width ? t->height : t->width;

    t->flip = o->flip != TUTTI_FLIP_AUTO ? o->flip
              : t->channels_in == 3      ? TUTTI_FLIP_RANDOM
                                         : TUTTI_FLIP_OFF;
    t->padding = o->crop_padding == 0  ? (side < 16 ? 1 : 4)
                 : o->crop_padding < 0 ? 0
                                       : o->crop_padding;
    t->padding_mode = o->padding_mode;
    if ((unsigned)o->flip > TUTTI_FLIP_ALTERNATE)
        return tutti__fail(TUTTI_ERR_ARG, "flip: it is %d, expected a tutti_flip_mode",
                           (int)o->flip);
    if (o->padding_mode != TUTTI_PAD_CONSTANT && o->padding_mode != TUTTI_PAD_REFLECT)
        return tutti__fail(TUTTI_ERR_ARG,
                           "padding_mode: it is %d, expected TUTTI_PAD_CONSTANT or "
                           "TUTTI_PAD_REFLECT",
                           (int)o->padding_mode);
    if (o->crop_padding >= side)
        return tutti__fail(TUTTI_ERR_ARG,
                           "crop_padding: it is %d, and images are %d x %d pixels; expected less "
                           "than %d",
                           o->crop_padding, t->height, t->width, side);
    return TUTTI_OK;
}

tutti_status tutti__transform_init(tutti__transform *t, const tutti_dataset_info *info,
                                   int channels, bool augment, uint64_t seed,
                                   const tutti_augment_opts *opts)
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
    t->key = seed ^ KEY;
    for (int c = 0; c < t->channels; c++) {
        int from = c < t->channels_in ? c : 0;

        for (int byte = 0; byte < 256; byte++)
            t->table[c][byte] = ((float)byte / 255.0f - info->mean[from]) / info->std[from];
    }
    return augment ? set_augmentation(t, opts ? opts : &(tutti_augment_opts){0}) : TUTTI_OK;
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

/* Whether the sample is mirrored; random: of this epoch. */
static bool flips(const tutti__transform *t, uint64_t epoch, size_t sample,
                  const uint32_t random[4])
{
    uint32_t first[4];

    if (t->flip != TUTTI_FLIP_ALTERNATE)
        return t->flip == TUTTI_FLIP_RANDOM && random[2] >> 31;
    draw(t, 0, sample, first);
    return (first[2] >> 31) ^ (epoch & 1);
}

static crop crop_of(const tutti__transform *t, uint64_t epoch, size_t sample)
{
    uint32_t random[4];

    if (!t->augment)
        return (crop){0};
    draw(t, epoch, sample, random);
    return (crop){.down = below(random[0], 2 * t->padding + 1) - t->padding,
                  .right = below(random[1], 2 * t->padding + 1) - t->padding,
                  .flip = flips(t, epoch, sample, random)};
}

/* Which of n rows or columns is at place i of the padded image; -1: none. */
static int64_t source(const tutti__transform *t, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (t->padding_mode == TUTTI_PAD_CONSTANT)
        return -1;
    return i < 0 ? -i : 2 * (n - 1) - i;
}

/* Columns [begin, end) of a row, which are padding; from NULL: of all its columns. */
static void pad_row(const tutti__transform *t, crop at, const uint8_t *from, const float *table,
                    float *x, int begin, int end)
{
    for (int j = begin; j < end; j++) {
        const int64_t k = from ? source(t, j + at.right, t->width) : -1;

        x[at.flip ? t->width - 1 - j : j] = table[k < 0 ? 0 : from[k]];
    }
}

static void crop_row(const tutti__transform *t, crop at, const uint8_t *from, const float *table,
                     float *x)
{
    const int first = at.right < 0 ? -at.right : 0; /* within the image, before mirroring */
    const int end = at.right > 0 ? t->width - at.right : t->width;

    if (!from) {
        pad_row(t, at, NULL, table, x, 0, t->width);
        return;
    }
    pad_row(t, at, from, table, x, 0, first);
    normalise_row(x + (at.flip ? t->width - end : first), from + first + at.right, end - first,
                  at.flip, table);
    pad_row(t, at, from, table, x, end, t->width);
}

void tutti__transform_apply(const tutti__transform *t, uint64_t epoch, size_t sample,
                            const uint8_t *image, float *x)
{
    const crop at = crop_of(t, epoch, sample);

    for (int c = 0; c < t->channels; c++) {
        const uint8_t *plane = image + (c < t->channels_in ? c : 0) * t->height * t->width;

        for (int i = 0; i < t->height; i++, x += t->width) {
            const int64_t row = source(t, i + at.down, t->height);

            crop_row(t, at, row < 0 ? NULL : plane + row * t->width, t->table[c], x);
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
        const int64_t across = at.flip ? width - 1 - column : column;
        const int64_t y = source(t, row + at.down, height);
        const int64_t x = source(t, across + at.right, width);

        put(field, to, i, from, y < 0 || x < 0 ? -1 : (plane * height + y) * width + x);
    }
}
