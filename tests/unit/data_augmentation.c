/* data: what a loader's batches contain beside the images as they are: augmentation, and grey in three channels.
 * SPDX-License-Identifier: MIT */
#include "data_counting.h"

#include "data/transform.h"

/* ---- Augmentation -------------------------------------------------------------------------------------------- */

/* The epoch's images by sample number, over all ranks. */
static float *augmented(const tutti_dataset *dataset, int ranks, int workers, uint64_t epoch,
                        uint64_t seed)
{
    float *all = calloc(COUNT * PIXELS, sizeof *all);

    for (int rank = 0; rank < ranks; rank++) {
        tutti_group group = {rank, ranks};
        tutti_loader *loader = loader_new(dataset, &group,
                                          (tutti_loader_opts){.batch = 3 + workers,
                                                              .workers = workers,
                                                              .shuffle = true,
                                                              .seed = seed,
                                                              .augment = true});
        tutti_batch batch;

        tutti_loader_set_epoch(loader, epoch);
        while (tutti_loader_next(loader, &batch))
            for (size_t i = 0; i < batch.n; i++)
                memcpy(all + ((const int64_t *)batch.y.p)[i] * PIXELS,
                       (const float *)batch.x.p + i * PIXELS, PIXELS * sizeof *all);
        tutti_loader_free(loader);
    }
    return all;
}

static void augmentation_depends_on_seed_epoch_and_sample_only(void **state)
{
    tutti_dataset *dataset = counting_new();
    float *one = augmented(dataset, 1, 0, 2, 7), *same = augmented(dataset, 3, 4, 2, 7);
    float *epoch = augmented(dataset, 1, 0, 3, 7), *seed = augmented(dataset, 1, 0, 2, 8);

    (void)state;
    assert_memory_equal(one, same, COUNT * PIXELS * sizeof *one);
    assert_memory_not_equal(one, epoch, COUNT * PIXELS * sizeof *one);
    assert_memory_not_equal(one, seed, COUNT * PIXELS * sizeof *one);
    free(one);
    free(same);
    free(epoch);
    free(seed);
    tutti_dataset_free(dataset);
}

/* Row or column i of the padded image: torch.nn.functional.pad's; -1: the byte 0. */
static int padded(int i, tutti_pad_mode mode)
{
    if (i >= 0 && i < SIDE)
        return i;
    return mode == TUTTI_PAD_CONSTANT ? -1 : i < 0 ? -i : 2 * SIDE - 2 - i;
}

/* Is x the image moved by (down, right), perhaps mirrored, with the padding from beyond its edge? */
static bool is_moved(const tutti_dataset *dataset, const uint8_t *image, const float *x, int down,
                     int right, bool flip, tutti_pad_mode mode)
{
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                int a = padded(i + down, mode);
                int b = padded((flip ? SIDE - 1 - j : j) + right, mode);
                uint8_t byte = a < 0 || b < 0 ? 0 : image[c * SIDE * SIDE + a * SIDE + b];

                if (x[c * SIDE * SIDE + i * SIDE + j] !=
                    ((float)byte / 255.0f - dataset->info.mean[c]) / dataset->info.std[c])
                    return false;
            }
    return true;
}

static void augmentation_is_a_crop_of_the_padded_image_and_a_flip(void **state)
{
    enum { EPOCHS = 40 };
    tutti_dataset *dataset = counting_new();
    tutti__transform t;
    int moved[9][9] = {{0}}, flips = 0;

    (void)state;
    assert_int_equal(tutti__transform_init(&t, &dataset->info, 0, true, 3, NULL), TUTTI_OK);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (size_t sample = 0; sample < COUNT; sample++) {
            uint8_t image[PIXELS];
            float x[PIXELS];
            int64_t label;
            int found = 0;

            assert_int_equal(tutti_dataset_read(dataset, sample, image, &label), TUTTI_OK);
            tutti__transform_apply(&t, epoch, sample, image, x);
            for (int k = 0; k < 2 * 81; k++)
                if (is_moved(dataset, image, x, k / 2 / 9 - 4, k / 2 % 9 - 4, k % 2,
                             TUTTI_PAD_CONSTANT)) {
                    found++;
                    moved[k / 2 / 9][k / 2 % 9]++;
                    flips += k % 2;
                }
            assert_int_equal(found, 1);
        }
    for (int k = 0; k < 81; k++) /* 2120 draws over 81 places: each about 26 times */
        assert_in_range(moved[k / 9][k % 9], 8, 52);
    assert_in_range(flips, 960, 1160); /* half of 2120 */
    tutti_dataset_free(dataset);
}

/* How a sample was moved and mirrored, with crops of reflected padding. */
static void find_move(const tutti_dataset *dataset, const tutti__transform *t, uint64_t epoch,
                      size_t sample, int at[3])
{
    uint8_t image[PIXELS];
    float x[PIXELS];
    int64_t label;
    int found = 0, p = t->padding, n = 2 * p + 1;

    assert_int_equal(tutti_dataset_read(dataset, sample, image, &label), TUTTI_OK);
    tutti__transform_apply(t, epoch, sample, image, x);
    for (int k = 0; k < 2 * n * n; k++)
        if (is_moved(dataset, image, x, k / 2 / n - p, k / 2 % n - p, k % 2, t->padding_mode)) {
            found++;
            at[0] = k / 2 / n;
            at[1] = k / 2 % n;
            at[2] = k % 2;
        }
    assert_int_equal(found, 1);
}

static void alternating_flips_show_both_directions_in_two_epochs(void **state)
{
    enum { EPOCHS = 20, PADDING = 2, PLACES = 2 * PADDING + 1 };
    tutti_augment_opts alternate = {
        .flip = TUTTI_FLIP_ALTERNATE, .crop_padding = PADDING, .padding_mode = TUTTI_PAD_REFLECT};
    tutti_augment_opts random = alternate;
    tutti_dataset *dataset = counting_new();
    tutti__transform a, r;
    int moved[PLACES][PLACES] = {{0}}, flips = 0;

    (void)state;
    random.flip = TUTTI_FLIP_RANDOM;
    assert_int_equal(tutti__transform_init(&a, &dataset->info, 0, true, 3, &alternate), TUTTI_OK);
    assert_int_equal(tutti__transform_init(&r, &dataset->info, 0, true, 3, &random), TUTTI_OK);
    for (size_t sample = 0; sample < COUNT; sample++) {
        int first[3], at[3];

        find_move(dataset, &r, 0, sample, first);
        flips += first[2];
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            find_move(dataset, &a, epoch, sample, at);
            assert_int_equal(at[2], first[2] ^ (int)(epoch & 1));
            moved[at[0]][at[1]]++;
        }
    }
    for (int k = 0; k < PLACES * PLACES; k++) /* 1060 draws over 25 places */
        assert_in_range(moved[k / PLACES][k % PLACES], 18, 72);
    assert_in_range(flips, COUNT / 4, COUNT * 3 / 4);
    tutti_dataset_free(dataset);
}

static void crops_and_flips_are_left_out(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_loader *loader =
        loader_new(dataset, NULL,
                   (tutti_loader_opts){.batch = COUNT,
                                       .augment = true,
                                       .augmentation = &(tutti_augment_opts){.flip = TUTTI_FLIP_OFF,
                                                                             .crop_padding = -1}});
    uint8_t image[PIXELS];
    tutti_batch batch;
    int64_t label;

    (void)state;
    assert_true(tutti_loader_next(loader, &batch));
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(tutti_dataset_read(dataset, batch.samples[i], image, &label), TUTTI_OK);
        assert_true(is_moved(dataset, image, (const float *)batch.x.p + i * PIXELS, 0, 0, false,
                             TUTTI_PAD_CONSTANT));
    }
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

/* A mask goes where its image goes, also in what is reflected. */
static void masks_are_reflected_with_their_image(void **state)
{
    const tutti_augment_opts opts = {
        .flip = TUTTI_FLIP_ALTERNATE, .crop_padding = 3, .padding_mode = TUTTI_PAD_REFLECT};
    const tutti_field field = {.name = "mask",
                               .dtype = TUTTI_U8,
                               .shape = TUTTI_SHAPE(SIDE, SIDE),
                               .moves = true,
                               .fill = 9};
    tutti_dataset *dataset = counting_new();
    tutti__transform t;
    uint8_t image[PIXELS];
    int64_t mask[SIDE * SIDE], label;
    float x[PIXELS];

    (void)state;
    assert_int_equal(tutti__transform_init(&t, &dataset->info, 0, true, 3, &opts), TUTTI_OK);
    for (size_t sample = 0; sample < COUNT; sample++) {
        assert_int_equal(tutti_dataset_read(dataset, sample, image, &label), TUTTI_OK);
        tutti__transform_apply(&t, 1, sample, image, x);
        tutti__transform_field(&t, 1, sample, &field, image, mask);
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_true(x[i] == t.table[0][mask[i]]);
    }
    tutti_dataset_free(dataset);
}

static void refuse(const tutti_dataset *dataset, tutti_augment_opts opts, const char *text)
{
    tutti_loader *loader;

    assert_int_equal(
        tutti_loader_new(&loader, dataset, NULL,
                         &(tutti_loader_opts){.batch = 2, .augment = true, .augmentation = &opts}),
        TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), text));
}

static void wrong_crops_and_flips_are_refused(void **state)
{
    tutti_dataset *dataset = counting_new();

    (void)state;
    refuse(dataset, (tutti_augment_opts){.crop_padding = SIDE}, "crop_padding: it is ");
    refuse(dataset, (tutti_augment_opts){.flip = (tutti_flip_mode)4}, "flip: it is 4");
    refuse(dataset, (tutti_augment_opts){.padding_mode = TUTTI_PAD_CIRCULAR},
           "padding_mode: it is 3, expected TUTTI_PAD_CONSTANT or TUTTI_PAD_REFLECT");
    tutti_dataset_free(dataset);
}

static void grey_digits_are_moved_by_one_and_not_mirrored(void **state)
{
    tutti_dataset *dataset;
    tutti__transform t;

    (void)state;
    assert_int_equal(tutti_dataset_open(&dataset, "digits:train"), TUTTI_OK);
    assert_int_equal(tutti__transform_init(&t, &dataset->info, 3, true, 3, NULL), TUTTI_OK);
    assert_int_equal(t.padding, 1);
    assert_int_equal(t.flip, TUTTI_FLIP_OFF);
    tutti_dataset_free(dataset);
}

static void grey_becomes_three_equal_channels(void **state)
{
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch batch;

    (void)state;
    assert_int_equal(tutti_dataset_open(&dataset, "digits:test"), TUTTI_OK);
    loader =
        loader_new(dataset, NULL, (tutti_loader_opts){.batch = 10, .workers = 1, .channels = 3});
    assert_int_equal(tutti_loader_batches(loader), 36);
    assert_true(tutti_loader_next(loader, &batch));
    assert_int_equal(batch.x.shape.d[1], 3);
    for (int i = 0; i < 10; i++) {
        const float *x = (const float *)batch.x.p + i * 3 * 64;

        assert_memory_equal(x, x + 64, 64 * sizeof *x);
        assert_memory_equal(x, x + 128, 64 * sizeof *x);
    }
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

/* ---- Data sets that crop by themselves: chance is a function of seed, epoch and index -------------------------- */

static tutti_status sized_open(void **self_p, const tutti_dataset_source *source,
                               tutti_dataset_info *info)
{
    *self_p = NULL;
    *info = (tutti_dataset_info){.name = info->name,
                                 .split = info->split,
                                 .count = COUNT,
                                 .channels = 3,
                                 .height = source->image_size,
                                 .width = source->image_size,
                                 .classes = COUNT,
                                 .std = {1, 1, 1}};
    return TUTTI_OK;
}

static tutti_status sized_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    (void)self;
    memset(image, 77, 3 * 16);
    *label_p = (int64_t)index;
    return TUTTI_OK;
}

static tutti_status sized_read_random(const void *self, size_t index, uint64_t chance,
                                      uint8_t *image, int64_t *label_p)
{
    (void)self;
    for (int i = 0; i < 48; i++) /* the same in a row, so that mirroring shows nothing */
        image[i] = (uint8_t)(chance >> 8 * (i / 4 % 8));
    *label_p = (int64_t)index;
    return TUTTI_OK;
}

static const tutti_dataset_format SIZED = {.name = "sized",
                                           .no_folder = true,
                                           .open = sized_open,
                                           .read = sized_read,
                                           .read_random = sized_read_random};

static void random_parts_are_not_padded(void **state)
{
    tutti_dataset *dataset;

    (void)state;
    assert_int_equal(
        tutti_dataset_open_with(&dataset, "sized:train",
                                &(tutti_dataset_opts){.format = &SIZED, .image_size = 4}),
        TUTTI_OK);
    refuse(dataset, (tutti_augment_opts){.crop_padding = 2},
           "crop_padding: it is of crops of padded images, and with image_size");
    refuse(dataset, (tutti_augment_opts){.padding_mode = TUTTI_PAD_REFLECT}, "padding_mode: it is");
    tutti_dataset_free(dataset);
}

static void read_parts(int workers, int ranks, uint64_t epoch, uint64_t seed, bool augment,
                       float parts[COUNT][48])
{
    tutti_dataset *dataset;
    tutti_batch batch;

    assert_int_equal(
        tutti_dataset_open_with(&dataset, "sized:train",
                                &(tutti_dataset_opts){.format = &SIZED, .image_size = 4}),
        TUTTI_OK);
    for (int rank = 0; rank < ranks; rank++) {
        tutti_group group = {rank, ranks};
        tutti_loader *loader = loader_new(
            dataset, &group,
            (tutti_loader_opts){
                .batch = 5, .workers = workers, .shuffle = true, .seed = seed, .augment = augment});

        tutti_loader_set_epoch(loader, epoch);
        while (tutti_loader_next(loader, &batch))
            for (size_t i = 0; i < batch.n; i++)
                memcpy(parts[((const int64_t *)batch.y.p)[i]], (const float *)batch.x.p + 48 * i,
                       sizeof parts[0]);
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        tutti_loader_free(loader);
    }
    tutti_dataset_free(dataset);
}

static void random_parts_depend_on_seed_epoch_and_sample_only(void **state)
{
    static float one[COUNT][48], same[COUNT][48], epoch[COUNT][48], seed[COUNT][48],
        plain[COUNT][48];

    (void)state;
    read_parts(0, 1, 2, 7, true, one);
    read_parts(3, 3, 2, 7, true, same);
    read_parts(1, 1, 3, 7, true, epoch);
    read_parts(1, 1, 2, 8, true, seed);
    read_parts(1, 1, 2, 7, false, plain);
    assert_memory_equal(one, same, sizeof one);
    for (int i = 0; i < COUNT; i++) {
        assert_memory_not_equal(one[i], epoch[i], sizeof one[i]);
        assert_memory_not_equal(one[i], seed[i], sizeof one[i]);
        assert_memory_not_equal(one[i], one[(i + 1) % COUNT], sizeof one[i]);
        assert_true(plain[i][0] == 77.0f / 255.0f && plain[i][47] == 77.0f / 255.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(augmentation_depends_on_seed_epoch_and_sample_only),
        cmocka_unit_test(augmentation_is_a_crop_of_the_padded_image_and_a_flip),
        cmocka_unit_test(alternating_flips_show_both_directions_in_two_epochs),
        cmocka_unit_test(crops_and_flips_are_left_out),
        cmocka_unit_test(masks_are_reflected_with_their_image),
        cmocka_unit_test(wrong_crops_and_flips_are_refused),
        cmocka_unit_test(random_parts_are_not_padded),
        cmocka_unit_test(grey_digits_are_moved_by_one_and_not_mirrored),
        cmocka_unit_test(grey_becomes_three_equal_channels),
        cmocka_unit_test(random_parts_depend_on_seed_epoch_and_sample_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
