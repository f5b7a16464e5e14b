/* Data sets of the program's own samples: in memory and by a function, as delivered by loaders, and errors.
 * SPDX-License-Identifier: MIT */
#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 7, H = 8, W = 6, IMAGE = 3 * H * W, CLASSES = 4 };
static uint8_t images[N][IMAGE];
static float rows[N][5], targets[N][2];
static int64_t labels[N], tokens[N][5];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < IMAGE; k++)
            images[i][k] = (uint8_t)(i * 31 + k * 7);
        for (int k = 0; k < 5; k++) {
            rows[i][k] = (float)(i * 5 + k) / 3;
            tokens[i][k] = i + k;
        }
        targets[i][0] = (float)i;
        targets[i][1] = -(float)i;
        labels[i] = i % CLASSES;
    }
    return 0;
}

static tutti_samples of_images(void)
{
    return (tutti_samples){.count = N,
                           .shape = TUTTI_SHAPE(3, H, W),
                           .dtype = TUTTI_U8,
                           .classes = CLASSES,
                           .x = images,
                           .labels = labels,
                           .mean = {0.5f, 0.25f, 0},
                           .std = {0.5f, 2, 0}};
}

static tutti_dataset *make(const tutti_samples *s)
{
    tutti_dataset *dataset;

    assert_int_equal(tutti_dataset_new(&dataset, s), TUTTI_OK);
    return dataset;
}

/* Every sample once, in order, in batches of 3. check: of sample i, x and y of it. */
static void load(const tutti_dataset *dataset, const tutti_loader_opts *more,
                 void (*check)(size_t i, const void *x, const void *y), size_t x_bytes,
                 size_t y_bytes, tutti_batch *last)
{
    tutti_loader_opts opts = *more;
    tutti_loader *loader;
    tutti_batch b;
    size_t seen = 0;

    opts.batch = 3;
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL, &opts), TUTTI_OK);
    while (tutti_loader_next(loader, &b)) {
        for (size_t i = 0; i < b.n; i++)
            check(b.samples[i], (const char *)b.x.p + i * x_bytes,
                  (const char *)b.y.p + i * y_bytes);
        seen += b.n;
        *last = b;
    }
    assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
    assert_int_equal(seen, N);
    tutti_loader_free(loader);
}

static void is_label(size_t i, const void *y)
{
    int64_t label;

    memcpy(&label, y, sizeof label);
    assert_int_equal(label, labels[i]);
}

static void is_image(size_t i, const void *p, const void *y)
{
    static const float mean[] = {0.5f, 0.25f, 0}, std[] = {0.5f, 2, 1};
    const float *x = p;

    for (int k = 0; k < IMAGE; k++) {
        const int c = k / (H * W);
        const float expected = ((float)images[i][k] / 255.0f - mean[c]) / std[c];

        assert_memory_equal(&x[k], &expected, sizeof expected);
    }
    is_label(i, y);
}

static void images_in_memory_are_normalised_and_have_labels(void **state)
{
    const tutti_samples s = of_images();
    tutti_dataset *dataset = make(&s);
    const tutti_dataset_info info = tutti_dataset_describe(dataset);
    uint8_t image[IMAGE];
    int64_t label;
    tutti_batch b;

    (void)state;
    assert_string_equal(info.name, "memory");
    assert_string_equal(info.split, "train");
    assert_int_equal(info.count, N);
    assert_int_equal(info.channels * info.height * info.width, IMAGE);
    assert_int_equal(info.classes, CLASSES);
    assert_int_equal(info.dtype, TUTTI_U8);
    for (int workers = 0; workers < 3; workers++)
        load(dataset, &(tutti_loader_opts){.workers = workers}, is_image, IMAGE * sizeof(float),
             sizeof(int64_t), &b);
    assert_true(tutti_shape_equal(b.x.shape, TUTTI_SHAPE(1, 3, H, W)));
    assert_int_equal(b.y.dtype, TUTTI_I64);
    assert_int_equal(tutti_dataset_read(dataset, 3, image, &label), TUTTI_OK);
    assert_memory_equal(image, images[3], IMAGE);
    assert_int_equal(label, 3);
    tutti_dataset_free(dataset);
}

static void is_row(size_t i, const void *x, const void *y)
{
    assert_memory_equal(x, rows[i], sizeof rows[i]);
    is_label(i, y);
}

static void is_regression(size_t i, const void *x, const void *y)
{
    assert_memory_equal(x, rows[i], sizeof rows[i]);
    assert_memory_equal(y, targets[i], sizeof targets[i]);
}

static void are_tokens(size_t i, const void *x, const void *y)
{
    assert_memory_equal(x, tokens[i], sizeof tokens[i]);
    is_label(i, y);
}

static void other_samples_come_as_they_are(void **state)
{
    tutti_samples s = {
        .count = N, .shape = TUTTI_SHAPE(5), .classes = CLASSES, .x = rows, .labels = labels};
    tutti_dataset *dataset = make(&s);
    tutti_batch b;

    (void)state;
    load(dataset, &(tutti_loader_opts){.workers = 1}, is_row, sizeof rows[0], 8, &b);
    assert_true(tutti_shape_equal(b.x.shape, TUTTI_SHAPE(1, 5)));
    assert_int_equal(b.x.dtype, TUTTI_F32);
    assert_int_equal(tutti_dataset_read(dataset, 0, (uint8_t *)images, labels),
                     TUTTI_ERR_UNSUPPORTED);
    tutti_dataset_free(dataset);

    s.dtype = TUTTI_I64;
    s.x = tokens;
    dataset = make(&s);
    load(dataset, &(tutti_loader_opts){.workers = 1}, are_tokens, sizeof tokens[0], 8, &b);
    assert_int_equal(b.x.dtype, TUTTI_I64);
    tutti_dataset_free(dataset);

    s = (tutti_samples){
        .count = N, .shape = TUTTI_SHAPE(5), .targets = 2, .x = rows, .y = &targets[0][0]};
    dataset = make(&s);
    load(dataset, &(tutti_loader_opts){.workers = 1}, is_regression, sizeof rows[0],
         sizeof targets[0], &b);
    assert_true(tutti_shape_equal(b.y.shape, TUTTI_SHAPE(1, 2)));
    assert_int_equal(b.y.dtype, TUTTI_F32);
    tutti_dataset_free(dataset);
}

static tutti_status read_image(void *self, size_t index, void *x, void *y)
{
    if (index == 5 && self)
        return tutti_fail(TUTTI_ERR_IO, "the wire is cut");
    memcpy(x, images[index], IMAGE);
    memcpy(y, &labels[index], sizeof labels[index]);
    return TUTTI_OK;
}

/* The message of a loader about an invalid sample. */
static void fails(const tutti_dataset *dataset, int workers, const char *message)
{
    tutti_loader *loader;
    tutti_batch b;

    assert_int_equal(tutti_loader_new(&loader, dataset, NULL,
                                      &(tutti_loader_opts){.batch = 2, .workers = workers}),
                     TUTTI_OK);
    while (tutti_loader_next(loader, &b))
        ;
    assert_int_not_equal(tutti_loader_status(loader), TUTTI_OK);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), message);
    tutti_loader_free(loader);
}

static void a_function_reads_and_its_errors_name_the_sample(void **state)
{
    tutti_samples s = of_images();
    tutti_dataset *dataset;
    tutti_batch b;
    int broken;

    (void)state;
    s.x = s.labels = NULL;
    s.read = read_image;
    s.name = "wire";
    dataset = make(&s);
    assert_string_equal(tutti_dataset_describe(dataset).name, "wire");
    load(dataset, &(tutti_loader_opts){.workers = 2}, is_image, IMAGE * sizeof(float),
         sizeof(int64_t), &b);
    labels[6] = CLASSES;
    fails(dataset, 1, "the label is 4, expected 0 to 3 (sample 6 of data set wire, train)");
    labels[6] = 6 % CLASSES;
    tutti_dataset_free(dataset);
    s.self = &broken;
    dataset = make(&s);
    for (int workers = 0; workers < 3; workers++)
        fails(dataset, workers, "the wire is cut (sample 5 of data set wire, train)");
    tutti_dataset_free(dataset);
}

static void a_label_that_changes_in_memory_is_found_too(void **state)
{
    const tutti_samples s = of_images();
    tutti_dataset *dataset = make(&s);

    (void)state;
    labels[2] = -1;
    fails(dataset, 1, "the label is -1, expected 0 to 3 (sample 2 of data set memory, train)");
    labels[2] = 2;
    tutti_dataset_free(dataset);
}

static void shards_and_augmentation_are_a_function_of_the_sample(void **state)
{
    const tutti_samples s = of_images();
    tutti_dataset *dataset = make(&s);
    tutti_loader *one, *two;
    tutti_batch a, b;

    (void)state;
    for (int workers = 0; workers < 2; workers++) {
        const tutti_loader_opts opts = {
            .batch = 2, .shards = 3, .workers = workers, .augment = true, .shuffle = true};

        assert_int_equal(tutti_loader_new(&one, dataset, NULL, &opts), TUTTI_OK);
        assert_int_equal(tutti_loader_new(&two, dataset, NULL, &opts), TUTTI_OK);
        for (int shard = 2; shard >= 0; shard--)
            for (size_t i = 0; i < tutti_loader_batches(one); i++) {
                assert_true(tutti_loader_take(one, i, shard, &a));
                assert_true(tutti_loader_take(two, i, shard, &b));
                assert_memory_equal(a.x.p, b.x.p, a.n * IMAGE * sizeof(float));
                assert_memory_equal(a.y.p, b.y.p, a.n * sizeof(int64_t));
            }
        tutti_loader_free(one);
        tutti_loader_free(two);
    }
    tutti_dataset_free(dataset);
}

static void refused(const tutti_samples *s, const char *part)
{
    tutti_dataset *dataset = (tutti_dataset *)1;

    assert_int_equal(tutti_dataset_new(&dataset, s), TUTTI_ERR_ARG);
    assert_null(dataset);
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

static void what_does_not_go_together_is_refused(void **state)
{
    const int64_t wrong[N] = {0, 1, 2, 3, 4, 0, 0};
    tutti_samples s;

    (void)state;
#define WITH(change, part)                                                                         \
    s = of_images();                                                                               \
    change;                                                                                        \
    refused(&s, part)
    WITH(s.count = 0, "count is 0");
    WITH(s.labels = wrong, "label 4 is 4, expected 0 to 3");
    WITH(s.labels = NULL, "labels NULL");
    WITH(s.x = NULL, "expected x and labels, or read alone");
    WITH(s.read = read_image, "or read alone");
    WITH(s.targets = 1, "4 classes and 1 targets");
    WITH(s.classes = 0, "0 classes and 0 targets");
    WITH(s.shape = TUTTI_SHAPE(8, 8),
         "field \"x\" [8,8] of U8: expected images [C,H,W] of 1 to 4 channels, or [K]");
    WITH(s.shape = TUTTI_SHAPE(5, 2, 2),
         "field \"x\" [5,2,2] of U8: expected images [C,H,W] of 1 to 4 channels");
    WITH(s.shape = TUTTI_SHAPE(1, 0, 2),
         "field \"x\" [1,0,2] of U8: expected up to 5 dimensions of at least 1");
    WITH(s.shape = TUTTI_SHAPE(1, INT64_MAX, 2),
         "dimensions of at least 1, and at most 2^26 elements");
    WITH(s.dtype = TUTTI_BF16, "of BF16: expected U8, F32 or I64");
    WITH(s.std[1] = -1, "std -1 of channel 1");
#undef WITH
}

static void what_is_for_images_is_refused_of_rows(void **state)
{
    tutti_samples s = {
        .count = N, .shape = TUTTI_SHAPE(5), .classes = CLASSES, .x = rows, .labels = labels};
    tutti_dataset *dataset = make(&s);
    tutti_loader *loader;

    (void)state;
    assert_int_equal(
        tutti_loader_new(&loader, dataset, NULL, &(tutti_loader_opts){.batch = 1, .augment = true}),
        TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "rows of 5, F32"));
    tutti_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_in_memory_are_normalised_and_have_labels),
        cmocka_unit_test(other_samples_come_as_they_are),
        cmocka_unit_test(a_function_reads_and_its_errors_name_the_sample),
        cmocka_unit_test(a_label_that_changes_in_memory_is_found_too),
        cmocka_unit_test(shards_and_augmentation_are_a_function_of_the_sample),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(what_is_for_images_is_refused_of_rows),
    };

    return cmocka_run_group_tests_name("data_samples", tests, set_up, NULL);
}
