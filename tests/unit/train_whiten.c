/* train_whiten.c -- filters that whiten patches: their results over the images are uncorrelated, with variances near 1.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "train/session/whiten.h"

#include <math.h>
#include <string.h>

enum { IMAGES = 60, MORE = 5, CHANNELS = 3, SIDE = 9, KERNEL = 2, SIZE = 12, OUT = 24 };

static uint8_t images[IMAGES + MORE][CHANNELS][SIDE][SIDE];
static int64_t labels[IMAGES + MORE];

/* Pixels that follow from their neighbours and from the other colours; those of the last images are others. */
static void draw(void)
{
    uint32_t state = 7;

    for (int i = 0; i < IMAGES + MORE; i++)
        for (int c = 0; c < CHANNELS; c++)
            for (int y = 0; y < SIDE; y++)
                for (int x = 0; x < SIDE; x++) {
                    state = state * 1664525 + 1013904223;
                    images[i][c][y][x] = (uint8_t)(128 + (int)(state >> 25) / (i < IMAGES ? 2 : 1) -
                                                   32 + (x > 0 ? images[i][c][y][x - 1] / 4 : 0) +
                                                   (c > 0 ? images[i][0][y][x] / 8 : 0) - 40);
                }
}

static tutti_dataset *open_images(size_t count)
{
    tutti_dataset *data;

    draw();
    assert_int_equal(
        tutti_dataset_new(&data, &(tutti_samples){.count = count,
                                                  .shape = TUTTI_SHAPE(CHANNELS, SIDE, SIDE),
                                                  .dtype = TUTTI_U8,
                                                  .classes = 2,
                                                  .x = images,
                                                  .labels = labels,
                                                  .mean = {0.5f, 0.4f, 0.45f},
                                                  .std = {0.25f, 0.2f, 0.3f}}),
        TUTTI_OK);
    return data;
}

static const tutti__filters filters = {OUT, CHANNELS, KERNEL, KERNEL};

static double pixel(const tutti_dataset *data, int i, int c, int y, int x)
{
    const tutti_dataset_info *info = &data->info;

    return ((double)images[i][c][y][x] / 255 - (double)info->mean[c]) / (double)info->std[c];
}

/* What a filter makes of the patch at y, x. */
static double result(const tutti_dataset *data, const float *w, int i, int y, int x)
{
    double sum = 0;

    for (int k = 0; k < SIZE; k++)
        sum += (double)w[k] * pixel(data, i, k / 4, y + k / 2 % 2, x + k % 2);
    return sum;
}

static double product(const tutti_dataset *data, const float *a, const float *b)
{
    double sum = 0;

    for (int i = 0; i < IMAGES; i++)
        for (int y = 0; y + 1 < SIDE; y++)
            for (int x = 0; x + 1 < SIDE; x++)
                sum += result(data, a, i, y, x) * result(data, b, i, y, x);
    return sum / (IMAGES * (SIDE - 1) * (SIDE - 1));
}

static void results_are_white(void **state)
{
    tutti_dataset *data = open_images(IMAGES + MORE);
    float w[OUT][SIZE];
    double least = 0;

    (void)state;
    assert_int_equal(tutti__whiten_filters(w[0], &filters, data, IMAGES), TUTTI_OK);
    for (int i = 0; i < SIZE; i++) {
        const double variance = product(data, w[i], w[i]);

        /* v / (v + eps), which grows with v */
        assert_true(variance > least && variance < 1 && variance > 0.9);
        least = variance;
        for (int k = 0; k < i; k++)
            assert_true(fabs(product(data, w[i], w[k])) < 1e-6);
        for (int k = 0; k < SIZE; k++)
            assert_true(w[SIZE + i][k] == -w[i][k]);
    }
    tutti_dataset_free(data);
}

static void fewer_filters_are_the_largest_components(void **state)
{
    tutti_dataset *data = open_images(IMAGES);
    float w[OUT][SIZE], few[4][SIZE];

    (void)state;
    assert_int_equal(tutti__whiten_filters(w[0], &filters, data, 1000), TUTTI_OK);
    assert_int_equal(
        tutti__whiten_filters(few[0], &(tutti__filters){4, CHANNELS, KERNEL, KERNEL}, data, 1000),
        TUTTI_OK);
    assert_memory_equal(few[0], w[SIZE - 2], 2 * sizeof few[0]);
    tutti_dataset_free(data);
}

static void refused(const tutti_dataset *data, tutti__filters f, const char *words)
{
    float w[4 * OUT * SIZE];

    assert_int_equal(tutti__whiten_filters(w, &f, data, 1), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), words))
        fail_msg("'%s' is not in: %s", words, tutti_last_error());
}

static void what_does_not_fit_is_refused(void **state)
{
    tutti_dataset *data = open_images(IMAGES);

    (void)state;
    refused(data, (tutti__filters){23, CHANNELS, KERNEL, KERNEL},
            "has 23 filters of 12 values; expected an even number, at most 24");
    refused(data, (tutti__filters){26, CHANNELS, KERNEL, KERNEL}, "at most 24");
    refused(data, (tutti__filters){8, 4, KERNEL, KERNEL}, "take patches of 4x2x2");
    refused(data, (tutti__filters){8, CHANNELS, SIDE + 1, 1}, "take patches of 3x10x1");
    tutti_dataset_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_white),
                                       cmocka_unit_test(fewer_filters_are_the_largest_components),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
