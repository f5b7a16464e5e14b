/* data: changes of samples beside crops and flips: torchvision's numbers, mixtures of whole batches, a program's own function; and
 * that none depends on ranks, workers or order.   SPDX-License-Identifier: MIT */
#include "data_counting.h"

#include "data/augment.h"

#include <math.h>

/* ---- Colours. Expected: torchvision 0.29 adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue on uint8 ----------- */

enum { W = 12 };

typedef struct adjusted {
    void (*adjust)(uint8_t *image, int channels, size_t n, double factor);
    double factor;
    int channels;
    uint8_t expected[3 * W];
} adjusted;

static const adjusted COLOURS[] = {
    {tutti__adjust_brightness, 0.6, 3, {3,  31, 105, 69,  77, 130, 73,  61,  94, 17, 138, 150, 56,
                                        85, 4,  122, 130, 30, 127, 115, 147, 70, 38, 50,  109, 138,
                                        58, 22, 30,  83,  27, 15,  47,  124, 91, 103}},
    {tutti__adjust_brightness, 1.37, 3, {6,   72,  239, 157, 176, 255, 168, 141, 215,
                                         39,  255, 255, 128, 194, 10,  255, 255, 68,
                                         255, 255, 255, 161, 87,  115, 250, 255, 132,
                                         50,  69,  190, 61,  34,  108, 255, 209, 237}},
    {tutti__adjust_contrast, 0.6, 3, {56,  84,  158, 122, 130, 183, 126, 114, 147, 70,  191, 203,
                                      109, 138, 57,  175, 183, 83,  180, 168, 200, 123, 91,  103,
                                      162, 191, 111, 75,  83,  136, 80,  68,  100, 177, 144, 156}},
    {tutti__adjust_contrast, 1.37, 3, {0,   23,  190, 108, 127, 248, 119, 92,  166, 0,   255, 255,
                                       79,  145, 0,   230, 249, 19,  241, 213, 255, 112, 38,  66,
                                       201, 255, 83,  1,   20,  141, 12,  0,   59,  234, 160, 187}},
    {tutti__adjust_saturation, 0.6, 3, {33,  81,  132, 132, 146, 174, 140, 120, 174,
                                        57,  188, 208, 87,  135, 32,  185, 199, 74,
                                        193, 173, 227, 111, 88,  108, 140, 188, 85,
                                        85,  99,  127, 93,  73,  127, 164, 141, 161}},
    {tutti__adjust_saturation, 1.37, 3, {0,   26,  214, 99,  113, 255, 107, 87,  141,
                                         2,   255, 255, 100, 148, 0,   221, 235, 27,
                                         229, 209, 255, 124, 41,  61,  222, 255, 107,
                                         0,   6,   149, 0,   0,   34,  246, 163, 183}},
    {tutti__adjust_contrast, 0.6, 1, {55, 84, 157, 121, 130, 183, 126, 114, 147, 70, 191, 203}},
    {tutti__adjust_contrast, 1.37, 1, {0, 23, 190, 108, 127, 248, 119, 92, 166, 0, 255, 255}},
    {tutti__adjust_hue, 0.1, 3, {22,  71,  175, 37,  51,  217, 45,  25,  79,  46,  231, 251,
                                 5,   53,  19,  204, 218, 61,  212, 192, 246, 29,  75,  95,
                                 183, 231, 8,   59,  73,  50,  67,  47,  101, 207, 64,  84}},
    {tutti__adjust_hue, -0.3, 3, {58,  106, 8,   204, 218, 50,  212, 192, 246, 82,  64,  84,
                                  183, 231, 63,  37,  51,  106, 45,  25,  79,  207, 120, 140,
                                  5,   53,  175, 81,  95,  217, 89,  69,  124, 29,  231, 251}},
    {tutti__adjust_hue, 0.2, 1, {5, 53, 175, 115, 129, 217, 123, 103, 157, 29, 231, 251}},
    {tutti__adjust_saturation, 1.37, 1, {5, 53, 175, 115, 129, 217, 123, 103, 157, 29, 231, 251}},
};

static void colours_are_torchvisions(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI__COUNT_OF(COLOURS); k++) {
        const adjusted *a = &COLOURS[k];
        uint8_t image[3 * W];

        for (int i = 0; i < a->channels * W; i++)
            image[i] = (uint8_t)(i / W * 89 + i % W * (i % W) * 37 + i % W * 11 + 5);
        a->adjust(image, a->channels, W, a->factor);
        for (int i = 0; i < a->channels * W; i++)
            if (image[i] != a->expected[i])
                fail_msg("adjustment %zu: byte %d is %d, expected %d", k, i, image[i],
                         a->expected[i]);
    }
}

static void jitter_uses_factors_around_1_and_leaves_out_what_is_0(void **state)
{
    const tutti_augment_opts o = {.brightness = 0.25f};
    uint8_t low = 255, high = 0;

    (void)state;
    for (size_t sample = 0; sample < 2000; sample++) {
        tutti_random random = tutti__random_start(3, 1, sample);
        uint8_t image[3] = {100, 40, 200};

        tutti__color_jitter(&o, &random, image, 3, 1);
        low = image[0] < low ? image[0] : low;
        high = image[0] > high ? image[0] : high;
        /* only brightness: proportions stay */
        assert_in_range(image[2], 2 * image[0], 2 * image[0] + 2);
    }
    assert_int_equal(low, 75);
    assert_int_equal(high, 124);
}

/* ---- Random numbers --------------------------------------------------------------------------------------------- */

static void random_numbers_have_their_distributions(void **state)
{
    static const double alphas[] = {0.001, 0.2, 1, 4, 1000};
    enum { N = 20000 };
    tutti_random random = {.key = 7};
    double sum = 0, squares = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        const double x = tutti_random_normal(&random);

        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / N) < 0.03 && fabs(squares / N - 1) < 0.05);
    for (size_t k = 0; k < TUTTI__COUNT_OF(alphas); k++) {
        sum = squares = 0;
        for (int i = 0; i < N; i++) {
            const double x = tutti__random_beta(&random, alphas[k]);

            assert_true(x >= 0 && x <= 1);
            sum += x;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_true(fabs(sum / N - 0.5) < 0.015);
        assert_true(fabs(squares / N * 4 * (2 * alphas[k] + 1) - 1) < 0.05); /* the variance */
    }
}

static void blocks_of_random_numbers_are_philoxs(void **state)
{
    tutti_random random = tutti__random_start(99, 5, 17);

    (void)state;
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t words[4];

        tutti__philox(99, (tutti__philox_counter){{17, 0, 5, block}}, words);
        for (int i = 0; i < 4; i++)
            assert_true(tutti_random_uniform(&random) == words[i] * 0x1p-32);
    }
}

/* ---- Rectangles ------------------------------------------------------------------------------------------------- */

static void cutmix_boxes_are_torchvisions(void **state)
{
    static const struct {
        int row, column, height, width;
        double lambda;
        tutti__box box;
        double after;
    } rows[] = {{3, 4, 8, 8, 0.6, {1, 2, 5, 6}, 0.75},
                {0, 7, 8, 8, 0.25, {0, 4, 3, 8}, 0.8125},
                {5, 2, 9, 7, 0.1, {1, 0, 9, 5}, 0.3650793650793651},
                {2, 2, 5, 5, 1.0, {2, 2, 2, 2}, 1},
                {4, 4, 8, 8, 0.0, {0, 0, 8, 8}, 0}};

    (void)state;
    for (size_t k = 0; k < TUTTI__COUNT_OF(rows); k++) {
        double lambda = rows[k].lambda;
        const tutti__box box =
            tutti__cutmix_box(rows[k].row, rows[k].column, rows[k].height, rows[k].width, &lambda);

        assert_memory_equal(&box, &rows[k].box, sizeof box);
        assert_true(lambda == rows[k].after);
    }
}

static void erased_boxes_have_the_areas_and_ratios_of_random_erasing(void **state)
{
    enum { N = 4000, HEIGHT = 200, WIDTH = 300 };
    double least = 1, most = 0, flat = 10, tall = 0;
    int none = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        tutti_random random = tutti__random_start(1, 2, i);
        const tutti__box b = tutti__erasing_box(&random, HEIGHT, WIDTH);
        const double h = b.bottom - b.top, w = b.right - b.left, area = h * w / (HEIGHT * WIDTH);

        if (h == 0) {
            none++;
            continue;
        }
        assert_true(b.top >= 0 && b.left >= 0 && b.bottom <= HEIGHT && b.right <= WIDTH);
        least = fmin(least, area);
        most = fmax(most, area);
        flat = fmin(flat, h / w);
        tall = fmax(tall, h / w);
    }
    assert_int_equal(none, 0); /* ten attempts almost always suffice */
    assert_true(least > 0.019 && least < 0.03 && most > 0.3 && most < 0.34);
    assert_true(flat > 0.29 && flat < 0.32 && tall > 3.1 && tall < 3.4);
}

static void a_share_of_images_is_erased_to_0(void **state)
{
    tutti_dataset *dataset = counting_new();
    tutti_loader *loader = loader_new(
        dataset, NULL,
        (tutti_loader_opts){.batch = COUNT,
                            .augmentation = &(tutti_augment_opts){.random_erasing = 0.25f}});
    int erased = 0, all = 0;
    tutti_batch batch;

    (void)state;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        tutti_loader_set_epoch(loader, epoch);
        assert_true(tutti_loader_next(loader, &batch));
        for (size_t i = 0; i < batch.n; i++, all++) {
            const float *x = (const float *)batch.x.p + i * PIXELS;
            int zeros[3] = {0};

            for (int k = 0; k < PIXELS; k++) /* a byte gives 0 in channel 1 alone, 127.5 */
                zeros[k / (SIDE * SIDE)] += x[k] == 0;
            assert_int_equal(zeros[0], zeros[1]);
            assert_int_equal(zeros[0], zeros[2]);
            erased += zeros[0] > 0;
        }
    }
    assert_in_range(erased, all / 5, all * 3 / 10);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

/* ---- Mixtures of a batch ---------------------------------------------------------------------------------------- */

/* Batches of one epoch, as they are and with these options; calls check for each. */
static void for_each_batch(const tutti_augment_opts *o, uint64_t epoch,
                           void (*check)(const tutti_batch *plain, const tutti_batch *mixed))
{
    tutti_dataset *dataset = counting_new();
    const tutti_loader_opts opts = {.batch = 10, .shuffle = true, .seed = 3};
    tutti_loader_opts mixing = opts;
    tutti_loader *plain = loader_new(dataset, NULL, opts), *mixed;
    tutti_batch a, b;

    mixing.augmentation = o;
    mixing.workers = 2;
    mixed = loader_new(dataset, NULL, mixing);
    tutti_loader_set_epoch(plain, epoch);
    tutti_loader_set_epoch(mixed, epoch);
    while (tutti_loader_next(plain, &a)) {
        assert_true(tutti_loader_next(mixed, &b));
        assert_int_equal(b.y.dtype, TUTTI_F32);
        assert_int_equal(b.y.shape.n, 2);
        assert_int_equal(b.y.shape.d[1], COUNT);
        check(&a, &b);
    }
    assert_false(tutti_loader_next(mixed, &b));
    assert_int_equal(tutti_loader_status(mixed), TUTTI_OK);
    tutti_loader_free(plain);
    tutti_loader_free(mixed);
    tutti_dataset_free(dataset);
}

/* The share of sample i's own label; checks that the rest is its predecessor's. */
static double share_of(const tutti_batch *plain, const tutti_batch *mixed, size_t i)
{
    const int64_t *labels = plain->y.p;
    const float *y = (const float *)mixed->y.p + i * COUNT;
    const int64_t own = labels[i], other = labels[(i + plain->n - 1) % plain->n];

    for (int64_t c = 0; c < COUNT; c++)
        if (c != own && c != other)
            assert_true(y[c] == 0);
    assert_true(fabs((double)y[own] + (double)y[other] - 1) < 1e-6);
    return (double)y[own];
}

static void check_mixup(const tutti_batch *plain, const tutti_batch *mixed)
{
    const double lambda = share_of(plain, mixed, 0);
    const float *a = plain->x.p, *b = mixed->x.p;

    for (size_t i = 0; i < plain->n; i++) {
        const float *own = a + i * PIXELS, *other = a + (i + plain->n - 1) % plain->n * PIXELS;

        assert_true(share_of(plain, mixed, i) == lambda);
        for (size_t k = 0; k < PIXELS; k++)
            assert_true(fabs((double)b[i * PIXELS + k] - lambda * (double)own[k] -
                             (1 - lambda) * (double)other[k]) < 1e-5);
    }
}

static void mixup_mixes_neighbours_and_their_labels(void **state)
{
    (void)state;
    for_each_batch(&(tutti_augment_opts){.mixup = 1}, 4, check_mixup);
}

static int n_cut;

/* Each value is the sample's own, or from a rectangle that is the same for all; labels by its area. */
static void check_cutmix(const tutti_batch *plain, const tutti_batch *mixed)
{
    const float *a = plain->x.p, *b = mixed->x.p;
    bool in_box[SIDE * SIDE] = {0};
    int area = 0;

    for (size_t i = 0; i < plain->n; i++)
        for (size_t k = 0; k < PIXELS; k++)
            if (b[i * PIXELS + k] != a[i * PIXELS + k])
                in_box[k % (SIDE * SIDE)] = true;
    for (int k = 0; k < SIDE * SIDE; k++)
        area += in_box[k];
    n_cut += area > 0;
    for (size_t i = 0; i < plain->n; i++) {
        const float *other = a + (i + plain->n - 1) % plain->n * PIXELS;

        assert_true(fabs(share_of(plain, mixed, i) - (1 - area / 400.)) < 1e-6);
        for (size_t k = 0; k < PIXELS; k++)
            if (in_box[k % (SIDE * SIDE)])
                assert_true(b[i * PIXELS + k] == other[k]);
    }
}

static void cutmix_exchanges_a_rectangle_and_its_share_of_labels(void **state)
{
    (void)state;
    n_cut = 0;
    for (uint64_t epoch = 0; epoch < 5; epoch++)
        for_each_batch(&(tutti_augment_opts){.cutmix = 1}, epoch, check_cutmix);
    assert_in_range(n_cut, 15, 30);
}

static int n_mixup;

static void tell_apart(const tutti_batch *plain, const tutti_batch *mixed)
{
    const float *a = plain->x.p, *b = mixed->x.p;
    size_t changed = 0;

    for (size_t k = 0; k < PIXELS; k++)
        changed += a[k] != b[k] && b[k] != a[(plain->n - 1) * PIXELS + k];
    n_mixup += changed > PIXELS / 2;
}

static void both_are_used_half_of_the_time(void **state)
{
    (void)state;
    n_mixup = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++) /* of 120 batches */
        for_each_batch(&(tutti_augment_opts){.mixup = 1, .cutmix = 1}, epoch, tell_apart);
    assert_in_range(n_mixup, 40, 80);
}

static void targets_are_mixed_as_samples(void **state)
{
    static const float x[] = {1, 10, 2, 20, 3, 30, 4, 40}, y[] = {1, 2, 3, 4};
    tutti_dataset *dataset;
    tutti_loader *loader;
    tutti_batch batch;

    (void)state;
    assert_int_equal(tutti_dataset_from_memory(&dataset, x, 2, y, 1, 4), TUTTI_OK);
    loader = loader_new(
        dataset, NULL,
        (tutti_loader_opts){.batch = 4, .augmentation = &(tutti_augment_opts){.mixup = 1}});
    assert_true(tutti_loader_next(loader, &batch));
    assert_int_equal(batch.y.shape.d[1], 1);
    for (int i = 0; i < 4; i++) {
        const double own = (double)((const float *)batch.y.p)[i];

        assert_true(i == 0 || (own >= i && own <= i + 1));
        assert_true(fabs((double)((const float *)batch.x.p)[2 * i] - own) < 1e-6);
        assert_true(fabs((double)((const float *)batch.x.p)[2 * i + 1] - 10 * own) < 1e-5);
    }
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

/* ---- The program's own ------------------------------------------------------------------------------------------ */

static _Atomic int n_calls;

static tutti_status add_noise(void *self, tutti_sample *s)
{
    uint8_t *x = s->x;

    atomic_fetch_add(&n_calls, 1);
    if (s->index == *(const size_t *)self)
        return tutti_fail(TUTTI_ERR_FORMAT, "index %zu is unlucky", s->index);
    if (s->shape.n != 3 || s->shape.d[0] != 3 || s->shape.d[1] != SIDE || s->dtype != TUTTI_U8 ||
        s->n_fields != 2 || *(const int64_t *)s->y != (int64_t)s->index || s->seed != 5 ||
        (!s->train && s->epoch != 0))
        return tutti_fail(TUTTI_ERR_ARG, "a call with other values");
    for (int i = 0; i < PIXELS; i++)
        x[i] = (uint8_t)(x[i] / 2 + (int)(100 * tutti_random_uniform(&s->random)));
    return TUTTI_OK;
}

static tutti_status wrong_label(void *self, tutti_sample *s)
{
    (void)self;
    *(int64_t *)s->y = COUNT;
    return TUTTI_OK;
}

static tutti_status silent(void *self, tutti_sample *s)
{
    (void)self, (void)s;
    return TUTTI_ERR_IO;
}

/* The epoch's images by sample number, over all ranks or (shards) taken from the last to the first. */
static float *read_all(const tutti_augment_opts *o, int ranks, int workers, uint64_t epoch,
                       bool shards)
{
    tutti_dataset *dataset = counting_new();
    float *all = calloc(COUNT * PIXELS, sizeof *all);

    for (int rank = 0; rank < ranks; rank++) {
        tutti_group group = {rank, ranks};
        tutti_loader *loader = loader_new(dataset, &group,
                                          (tutti_loader_opts){.batch = 7,
                                                              .workers = workers,
                                                              .shuffle = true,
                                                              .seed = 5,
                                                              .augment = true,
                                                              .no_padding = true,
                                                              .shards = shards ? 2 : 0,
                                                              .augmentation = o});
        size_t left = 2 * tutti_loader_batches(loader);
        tutti_batch b;

        tutti_loader_set_epoch(loader, epoch);
        while (shards ? left-- > 0 : tutti_loader_next(loader, &b)) {
            if (shards) {
                tutti_loader_ask(loader, left / 2, (int)(left % 2), 0);
                assert_true(tutti_loader_take(loader, left / 2, (int)(left % 2), &b));
            }
            for (size_t i = 0; i < b.n; i++)
                memcpy(all + b.samples[i] * PIXELS, (const float *)b.x.p + i * PIXELS,
                       PIXELS * sizeof *all);
        }
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        tutti_loader_free(loader);
    }
    tutti_dataset_free(dataset);
    return all;
}

static void nothing_depends_on_ranks_workers_or_order(void **state)
{
    static const size_t none = SIZE_MAX;
    const size_t bytes = (size_t)COUNT * PIXELS * sizeof(float);
    tutti_augment_opts o = {.own = add_noise,
                            .self = (void *)(uintptr_t)&none,
                            .train = true,
                            .brightness = 0.4f,
                            .contrast = 0.4f,
                            .saturation = 0.4f,
                            .random_erasing = 0.5f};
    float *one = read_all(&o, 1, 0, 2, false), *two = read_all(&o, 2, 3, 2, false);
    float *other = read_all(&o, 1, 1, 3, false), *by_rank, *by_shard;

    (void)state;
    assert_memory_equal(one, two, bytes);
    assert_memory_not_equal(one, other, bytes);
    o.mixup = o.cutmix = 0.5f;
    by_rank = read_all(&o, 2, 2, 2, false); /* its batches are those of two shards */
    by_shard = read_all(&o, 1, 3, 2, true);
    assert_memory_equal(by_rank, by_shard, bytes);
    assert_memory_not_equal(one, by_rank, bytes);
    free(one);
    free(two);
    free(other);
    free(by_rank);
    free(by_shard);
}

static void evaluations_have_no_epochs(void **state)
{
    static const size_t none = SIZE_MAX;
    const tutti_augment_opts o = {.own = add_noise, .self = (void *)(uintptr_t)&none};
    tutti_dataset *dataset = counting_new();
    tutti_loader *loader = loader_new(
        dataset, NULL, (tutti_loader_opts){.batch = COUNT, .seed = 5, .augmentation = &o});
    float *first = malloc(COUNT * PIXELS * sizeof *first);
    tutti_batch batch;

    (void)state;
    assert_true(tutti_loader_next(loader, &batch));
    memcpy(first, batch.x.p, COUNT * PIXELS * sizeof *first);
    tutti_loader_set_epoch(loader, 7);
    assert_true(tutti_loader_next(loader, &batch));
    assert_memory_equal(first, batch.x.p, COUNT * PIXELS * sizeof *first);
    free(first);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void assert_fails(tutti_status (*own)(void *self, tutti_sample *), size_t at, int workers,
                         const char *message)
{
    const tutti_augment_opts o = {.own = own, .self = &at, .train = true, .mixup = 1};
    tutti_dataset *dataset = counting_new();
    tutti_loader *loader = loader_new(
        dataset, NULL,
        (tutti_loader_opts){.batch = 10, .workers = workers, .seed = 5, .augmentation = &o});
    tutti_batch batch;

    while (tutti_loader_next(loader, &batch))
        ;
    assert_int_not_equal(tutti_loader_status(loader), TUTTI_OK);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), message);
    tutti_loader_free(loader);
    tutti_dataset_free(dataset);
}

static void failures_name_the_sample(void **state)
{
    (void)state;
    for (int workers = 0; workers < 2; workers++) {
        assert_fails(add_noise, 31, workers,
                     "index 31 is unlucky (sample 31 of data set counting, train)");
        assert_fails(
            wrong_label, 0, workers,
            "the program's augmentation has made the label 53, expected 0 to 52 (sample 0");
        assert_fails(silent, 0, workers,
                     "the program's augmentation failed and did not say why (sample 0");
    }
}

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

static void assert_refused(const tutti_samples *samples, tutti_augment_opts o, const char *message)
{
    tutti_dataset *dataset = NULL;
    tutti_loader *loader;

    assert_int_equal(tutti_dataset_new(&dataset, samples), TUTTI_OK);
    assert_int_equal(tutti_loader_new(&loader, dataset, NULL,
                                      &(tutti_loader_opts){.batch = 2, .augmentation = &o}),
                     TUTTI_ERR_ARG);
    assert_null(loader);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), message);
    tutti_dataset_free(dataset);
}

static void what_does_not_suit_is_refused_by_name(void **state)
{
    static const float x[32], y[2];
    static const int64_t labels[2];
    tutti_samples rows = {.count = 2, .shape = TUTTI_SHAPE(4), .targets = 1, .x = x, .y = y};
    tutti_samples tokens = {.count = 2,
                            .shape = TUTTI_SHAPE(4),
                            .dtype = TUTTI_I64,
                            .classes = 2,
                            .x = x,
                            .labels = labels};
    tutti_samples images = {.count = 2,
                            .shape = TUTTI_SHAPE(2, 2, 2),
                            .dtype = TUTTI_U8,
                            .classes = 2,
                            .x = x,
                            .labels = labels};

    (void)state;
    assert_refused(&rows, (tutti_augment_opts){.mixup = -1},
                   "mixup: it is -1, expected 0 (off), or 0.001 to 1000");
    assert_refused(&rows, (tutti_augment_opts){.cutmix = NAN}, "cutmix: it is nan, expected 0");
    assert_refused(&rows, (tutti_augment_opts){.random_erasing = 1.5f},
                   "random_erasing: it is 1.5, expected 0 to 1");
    assert_refused(&rows, (tutti_augment_opts){.cutmix = 1},
                   "cutmix: it exchanges rectangles of images (U8 or F32 [C,H,W]), and the samples "
                   "of data=memory are F32 rows of 4 with y F32 [1]; leave cutmix out");
    assert_refused(&rows, (tutti_augment_opts){.random_erasing = 1}, "random_erasing: it erases");
    assert_refused(&rows, (tutti_augment_opts){.contrast = 1},
                   "color_jitter: it changes images of bytes");
    assert_refused(&images, (tutti_augment_opts){.contrast = 1}, "images of 2x2x2");
    assert_refused(&tokens, (tutti_augment_opts){.mixup = 1},
                   "mixup: it adds samples of numbers (U8 or F32), and the samples of data=memory "
                   "are I64 rows of 4");
}

static void masks_and_further_arrays_are_not_mixed(void **state)
{
    static const uint8_t x[2 * 12];
    static const int64_t mask[2 * 4], label[2];
    static const float more[2];
    const tutti_field fields[] = {
        {.name = "x", .dtype = TUTTI_U8, .shape = {3, {3, 2, 2}}, .data = x},
        {.name = "mask", .dtype = TUTTI_I64, .shape = {2, {2, 2}}, .data = mask}};
    const tutti_field weighted[] = {fields[0],
                                    {.name = "label", .dtype = TUTTI_I64, .data = label},
                                    {.name = "weight", .dtype = TUTTI_F32, .data = more}};

    (void)state;
    assert_refused(&(tutti_samples){.count = 2, .classes = 2, .fields = fields, .n_fields = 2},
                   (tutti_augment_opts){.cutmix = 1},
                   "cutmix: it mixes one label or a row of targets for each sample");
    assert_refused(&(tutti_samples){.count = 2, .classes = 2, .fields = weighted, .n_fields = 3},
                   (tutti_augment_opts){.mixup = 1},
                   "mixup: it mixes x and y alone, and there are further arrays");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colours_are_torchvisions),
        cmocka_unit_test(jitter_uses_factors_around_1_and_leaves_out_what_is_0),
        cmocka_unit_test(random_numbers_have_their_distributions),
        cmocka_unit_test(blocks_of_random_numbers_are_philoxs),
        cmocka_unit_test(cutmix_boxes_are_torchvisions),
        cmocka_unit_test(erased_boxes_have_the_areas_and_ratios_of_random_erasing),
        cmocka_unit_test(a_share_of_images_is_erased_to_0),
        cmocka_unit_test(mixup_mixes_neighbours_and_their_labels),
        cmocka_unit_test(cutmix_exchanges_a_rectangle_and_its_share_of_labels),
        cmocka_unit_test(both_are_used_half_of_the_time),
        cmocka_unit_test(targets_are_mixed_as_samples),
        cmocka_unit_test(nothing_depends_on_ranks_workers_or_order),
        cmocka_unit_test(evaluations_have_no_epochs),
        cmocka_unit_test(failures_name_the_sample),
        cmocka_unit_test(what_does_not_suit_is_refused_by_name),
        cmocka_unit_test(masks_and_further_arrays_are_not_mixed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
