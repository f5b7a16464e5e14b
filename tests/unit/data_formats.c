/* data: each format reads correctly, and reports what is wrong with a file.   SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"

static tutti_dataset *open_good(const char *spec)
{
    tutti_dataset *dataset;

    if (tutti_dataset_open(&dataset, spec) != TUTTI_OK)
        fail_msg("%s: %s", spec, tutti_last_error());
    return dataset;
}

static void open_fails(const char *spec, tutti_status expected)
{
    tutti_dataset *dataset = (tutti_dataset *)spec;
    tutti_status status = tutti_dataset_open(&dataset, spec);

    if (status != expected)
        fail_msg("%s: status %s, expected %s (%s)", spec ? spec : "NULL", tutti_status_name(status),
                 tutti_status_name(expected), tutti_last_error());
    assert_null(dataset);
}

/* ---- Specs ----------------------------------------------------------------------------------------------- */

static void specs_are_checked(void **state)
{
    tutti_dataset *dataset;

    (void)state;
    open_fails("cifra10:/data/train", TUTTI_ERR_ARG);
    assert_error_says("cifra10", "did you mean \"cifar10\"", "mnist:DIR/train|test");
    open_fails("", TUTTI_ERR_ARG);
    open_fails(":", TUTTI_ERR_ARG);
    open_fails("digits", TUTTI_ERR_ARG);
    assert_error_says("digits:train|test", NULL, NULL);
    open_fails("digits:", TUTTI_ERR_ARG);
    open_fails("digits:validation", TUTTI_ERR_ARG);
    assert_error_says("neither train nor test", NULL, NULL);
    open_fails("cifar10:train", TUTTI_ERR_ARG);
    assert_error_says("cifar10:DIR/train|test", NULL, NULL);
    open_fails("cifar10:/data/", TUTTI_ERR_ARG);
    open_fails("folder:/data/", TUTTI_ERR_ARG);
    open_fails("cifar10:/nowhere/at/all/train", TUTTI_ERR_NOT_FOUND);
    assert_error_says("/nowhere/at/all", NULL, NULL);
    open_fails("mnist:/nowhere/at/all/test", TUTTI_ERR_NOT_FOUND);
    open_fails("folder:/nowhere/at/all/test", TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_dataset_open(&dataset, NULL), TUTTI_ERR_ARG);
}

/* ---- Digits, synthetic -------------------------------------------------------------------------------------- */

static void digits_are_1438_and_359_with_the_stated_mean(void **state)
{
    tutti_dataset *train = open_good("digits:train"), *test = open_good("digits:test");
    tutti_dataset_info info = tutti_dataset_describe(train);
    int per_class[2][10] = {{0}};
    double sum = 0, squares = 0, n = 1438.0 * 64;
    uint8_t image[64];
    int64_t label;

    (void)state;
    assert_int_equal(info.count, 1438);
    assert_int_equal(tutti_dataset_describe(test).count, 359);
    assert_int_equal(info.channels * 100 + info.height * 10 + info.width, 188);
    for (size_t i = 0; i < 1438; i++) {
        assert_int_equal(tutti_dataset_read(train, i, image, &label), TUTTI_OK);
        per_class[0][label]++;
        for (int k = 0; k < 64; k++) {
            sum += image[k] / 255.0;
            squares += image[k] / 255.0 * (image[k] / 255.0);
        }
    }
    assert_true(sum / n > (double)info.mean[0] - 1e-4 && sum / n < (double)info.mean[0] + 1e-4);
    squares = squares / n - sum / n * (sum / n);
    sum = (double)info.std[0];
    assert_true(squares > (sum - 1e-4) * (sum - 1e-4) && squares < (sum + 1e-4) * (sum + 1e-4));
    for (size_t i = 0; i < 359; i++) {
        assert_int_equal(tutti_dataset_read(test, i, image, &label), TUTTI_OK);
        per_class[1][label]++;
    }
    for (int c = 0; c < 10; c++) {
        assert_in_range(per_class[0][c], 120, 165);
        assert_in_range(per_class[0][c] + per_class[1][c], 174, 183);
    }
    assert_int_equal(tutti_dataset_read(test, 359, image, &label), TUTTI_ERR_ARG);
    assert_error_says("359", "digits", "test");
    tutti_dataset_free(train);
    tutti_dataset_free(test);
}

static void the_first_digit_is_a_nought(void **state)
{
    static const uint8_t VALUES[16] = {0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0};
    tutti_dataset *train = open_good("digits:train");
    uint8_t image[64];
    int64_t label;

    (void)state;
    assert_int_equal(tutti_dataset_read(train, 0, image, &label), TUTTI_OK);
    assert_int_equal(label, 0);
    for (int i = 0; i < 16; i++)
        assert_int_equal(image[i], (VALUES[i] * 255 + 8) / 16);
    assert_int_equal(tutti_dataset_read(train, 4, image, &label), TUTTI_OK);
    assert_int_equal(label, 5); /* row 4 of the file is a test image */
    tutti_dataset_free(train);
}

static void synthetic_images_are_a_function_of_the_index(void **state)
{
    tutti_dataset *a = open_good("synthetic:train"), *b = open_good("synthetic:train");
    tutti_dataset *test = open_good("synthetic:test");
    uint8_t x[3072], y[3072];
    int64_t label_x, label_y;

    (void)state;
    assert_int_equal(tutti_dataset_read(a, 49999, x, &label_x), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(b, 5, y, &label_y), TUTTI_OK);
    assert_memory_not_equal(x, y, sizeof x);
    assert_int_equal(tutti_dataset_read(b, 49999, y, &label_y), TUTTI_OK);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(label_x, label_y);
    assert_in_range(label_x, 0, 9);
    assert_int_equal(tutti_dataset_read(test, 5, x, &label_x), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(a, 5, y, &label_y), TUTTI_OK);
    assert_memory_not_equal(x, y, sizeof x);
    tutti_dataset_free(a);
    tutti_dataset_free(b);
    tutti_dataset_free(test);
}

/* ---- CIFAR-10 ---------------------------------------------------------------------------------------------------- */

/* Five files of 2, 3, 4, 5 and 6 records; record n of all has label n % 10 and pixels n. */
static void put_cifar(const char *dir)
{
    uint8_t records[6 * 3073];
    char path[256];
    int n = 0;

    for (int file = 1; file <= 6; file++) {
        int count = file <= 5 ? file + 1 : 3;

        for (int i = 0; i < count; i++, n++) {
            memset(records + i * 3073, n, 3073);
            records[i * 3073] = (uint8_t)(n % 10);
        }
        if (file <= 5)
            snprintf(path, sizeof path, "%s/data_batch_%d.bin", dir, file);
        else
            snprintf(path, sizeof path, "%s/test_batch.bin", dir);
        put(path, records, (size_t)count * 3073);
    }
}

static void check_cifar(const char *spec)
{
    tutti_dataset *train = open_good(spec);
    tutti_dataset_info info = tutti_dataset_describe(train);
    uint8_t image[3072];
    int64_t label;

    assert_int_equal(info.count, 20);
    assert_int_equal(info.classes, 10);
    assert_true(info.mean[0] == 0.4914f && info.std[2] == 0.2616f);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(tutti_dataset_read(train, i, image, &label), TUTTI_OK);
        assert_int_equal(label, i % 10);
        assert_int_equal(image[0], i);
        assert_int_equal(image[3071], i);
    }
    tutti_dataset_free(train);
}

static void cifar_files_of_any_length_are_read(void **state)
{
    tutti_dataset *test;

    (void)state;
    put_cifar("a");
    check_cifar("cifar10:a/train");
    put_cifar("b/cifar-10-batches-bin");
    check_cifar("cifar10:b/train");
    test = open_good("cifar10:b/test");
    assert_int_equal(tutti_dataset_describe(test).count, 3);
    tutti_dataset_free(test);
}

static void cifar_takes_its_classes_from_the_names_file(void **state)
{
    tutti_dataset *test;
    uint8_t image[3072];
    int64_t label;

    (void)state;
    put_cifar("a");
    put_text("a/batches.meta.txt", "cat\r\n\ndog\n");
    test = open_good("cifar10:a/test");
    assert_int_equal(tutti_dataset_describe(test).classes, 2);
    assert_string_equal(tutti_dataset_describe(test).class_names[1], "dog");
    assert_int_equal(tutti_dataset_read(test, 0, image, &label), TUTTI_OK); /* label 0 */
    assert_int_equal(tutti_dataset_read(test, 2, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("a/test_batch.bin: record 2 has label 2", "expected 0 to 1", "sample 2");
    tutti_dataset_free(test);
    put_text("a/batches.meta.txt", "\n\n");
    open_fails("cifar10:a/test", TUTTI_ERR_FORMAT);
}

static void damaged_cifar_files_are_named(void **state)
{
    static const uint8_t NOTHING[1];
    tutti_dataset *train;
    uint8_t record[2 * 3073] = {0}, image[3072];
    int64_t label;

    (void)state;
    put_cifar("a");
    assert_int_equal(truncate("a/data_batch_3.bin", 3 * 3073 + 100), 0);
    open_fails("cifar10:a/train", TUTTI_ERR_FORMAT);
    assert_error_says("a/data_batch_3.bin has 9319 bytes", "3073", "truncated");
    record[3073] = 10;
    put("a/data_batch_3.bin", record, sizeof record);
    train = open_good("cifar10:a/train");
    assert_int_equal(tutti_dataset_read(train, 5, image, &label), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(train, 6, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("a/data_batch_3.bin: record 1 has label 10", "expected 0 to 9", "sample 6");
    /* cut while open: an error, not a signal */
    assert_int_equal(truncate("a/data_batch_3.bin", 3000), 0);
    assert_int_equal(tutti_dataset_read(train, 5, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("a/data_batch_3.bin ends at byte 3000", NULL, NULL);
    tutti_dataset_free(train);
    assert_int_equal(unlink("a/data_batch_4.bin"), 0);
    put("a/data_batch_3.bin", record, sizeof record);
    open_fails("cifar10:a/train", TUTTI_ERR_NOT_FOUND);
    assert_error_says("a/data_batch_4.bin", NULL, NULL);
    put("a/test_batch.bin", NOTHING, 0);
    open_fails("cifar10:a/test", TUTTI_ERR_FORMAT);
    assert_error_says("no records", NULL, NULL);
    assert_int_equal(unlink("a/test_batch.bin"), 0);
    open_fails("cifar10:a/test", TUTTI_ERR_NOT_FOUND);
    assert_error_says("test_batch.bin", "cifar-10-batches-bin", NULL);
    assert_int_equal(mkfifo("a/test_batch.bin", 0600), 0); /* must not wait for a writer */
    open_fails("cifar10:a/test", TUTTI_ERR_IO);
    open_fails("cifar10:a/data_batch_1.bin/test", TUTTI_ERR_NOT_FOUND);
}

/* ---- CIFAR-100 --------------------------------------------------------------------------------------------------- */

/* Record i has coarse label 3, fine label 5 i + first, and pixels i + 1. */
static void put_cifar100(const char *path, int n, int first)
{
    static uint8_t records[20 * 3074];

    for (int i = 0; i < n; i++) {
        memset(records + i * 3074, i + 1, 3074);
        records[i * 3074] = 3;
        records[i * 3074 + 1] = (uint8_t)(5 * i + first);
    }
    put(path, records, (size_t)n * 3074);
}

static void cifar100_has_the_fine_labels(void **state)
{
    tutti_dataset *train, *test;
    tutti_dataset_info info;
    uint8_t image[3072];
    int64_t label;

    (void)state;
    put_cifar100("a/cifar-100-binary/train.bin", 20, 4);
    put_cifar100("a/cifar-100-binary/test.bin", 2, 95);
    train = open_good("cifar100:a/train");
    test = open_good("cifar100:a/cifar-100-binary/test");
    info = tutti_dataset_describe(train);
    assert_int_equal(info.count * 1000 + (size_t)info.classes, 20100);
    assert_true(info.mean[0] == 0.5071f && info.std[2] == 0.2762f);
    assert_null(info.class_names);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(tutti_dataset_read(train, i, image, &label), TUTTI_OK);
        assert_int_equal(label, 5 * i + 4);
        assert_int_equal(image[0], i + 1);
        assert_int_equal(image[3071], i + 1);
    }
    assert_int_equal(tutti_dataset_read(test, 0, image, &label), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(test, 1, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("test.bin: record 1 has label 100", "expected 0 to 99", "cifar100, test");
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    put_text("a/cifar-100-binary/fine_label_names.txt", "apple\naquarium_fish\nbaby\n");
    test = open_good("cifar100:a/test");
    assert_int_equal(tutti_dataset_describe(test).classes, 3);
    assert_string_equal(tutti_dataset_describe(test).class_names[1], "aquarium_fish");
    tutti_dataset_free(test);
    assert_int_equal(truncate("a/cifar-100-binary/train.bin", 3074 * 3 + 1), 0);
    open_fails("cifar100:a/train", TUTTI_ERR_FORMAT);
    assert_error_says("records of 3074 bytes", "153700000", "train.bin has 9223 bytes");
    open_fails("cifar10:a/train", TUTTI_ERR_NOT_FOUND);
}

/* ---- A program's own ---------------------------------------------------------------------------------------------- */

static tutti_dataset_info own_info;

static tutti_status own_open(void **self_p, const tutti_dataset_source *source,
                             tutti_dataset_info *info)
{
    *self_p = &own_info;
    assert_string_equal(source->dir, "some/where");
    own_info.name = info->name;
    own_info.split = info->split;
    *info = own_info;
    return TUTTI_OK;
}

static tutti_status own_read(const void *self, size_t index, uint8_t *image, int64_t *label_p)
{
    assert_ptr_equal(self, &own_info);
    image[0] = (uint8_t)index;
    *label_p = (int64_t)index - 1;
    return TUTTI_OK;
}

static void a_programs_own_format_is_checked(void **state)
{
    static const tutti_dataset_info GOOD = {
        .count = 4, .channels = 1, .height = 1, .width = 1, .classes = 2, .std = {1}};
    static const tutti_dataset_format OWN = {.name = "own", .open = own_open, .read = own_read};
    tutti_dataset_format bad[] = {OWN, OWN, OWN, OWN};
    tutti_dataset_info wrong[] = {GOOD, GOOD, GOOD, GOOD, GOOD, GOOD};
    tutti_dataset_opts opts = {.format = &OWN};
    tutti_dataset *dataset;
    uint8_t image[1];
    int64_t label;

    (void)state;
    own_info = GOOD;
    assert_int_equal(tutti_dataset_open_with(&dataset, "own:some/where/train", &opts), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(dataset, 2, image, &label), TUTTI_OK);
    assert_int_equal(label * 10 + image[0], 12);
    assert_int_equal(tutti_dataset_read(dataset, 0, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("the label is -1", "expected 0 to 1", "sample 0 of data set own, train");
    assert_int_equal(tutti_dataset_read(dataset, 3, image, &label), TUTTI_ERR_FORMAT);
    tutti_dataset_free(dataset);
    wrong[0].count = 0;
    wrong[1].channels = 5;
    wrong[2].height = 0;
    wrong[3].classes = 0;
    wrong[4].std[0] = 0;
    wrong[5].height = wrong[5].width = 65536; /* more bytes than fit */
    for (size_t i = 0; i < TUTTI__COUNT_OF(wrong); i++) {
        own_info = wrong[i];
        assert_int_equal(tutti_dataset_open_with(&dataset, "own:some/where/test", &opts),
                         TUTTI_ERR_FORMAT);
        assert_null(dataset);
        assert_error_says("data set own, test", "expected", NULL);
    }
    bad[0].name = "";
    bad[1].name = "a:b";
    bad[2].open = NULL;
    bad[3].read = NULL;
    for (size_t i = 0; i < TUTTI__COUNT_OF(bad); i++) {
        opts.format = &bad[i];
        assert_int_equal(tutti_dataset_open_with(&dataset, "digits:train", &opts), TUTTI_ERR_ARG);
    }
}

/* ---- MNIST ------------------------------------------------------------------------------------------------------- */

static void put_idx(const char *path, const uint8_t *head, size_t n_head, size_t n, bool packed)
{
    uint8_t values[4096];

    assert_true(n_head + n <= sizeof values);
    memcpy(values, head, n_head);
    for (size_t i = 0; i < n; i++)
        values[n_head + i] = (uint8_t)(i % 10);
    put(path, values, packed ? 0 : n_head + n);
    if (packed) {
        gzFile file = gzopen(path, "wb");

        assert_non_null(file);
        assert_int_equal(gzwrite(file, values, (unsigned)(n_head + n)), n_head + n);
        assert_int_equal(gzclose(file), Z_OK);
    }
}

static const uint8_t IMAGES_HEAD[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28};
static const uint8_t LABELS_HEAD[] = {0, 0, 8, 1, 0, 0, 0, 3};

static void check_mnist(const char *spec)
{
    tutti_dataset *dataset = open_good(spec);
    tutti_dataset_info info = tutti_dataset_describe(dataset);
    uint8_t image[784];
    int64_t label;

    assert_int_equal(info.count, 3);
    assert_int_equal(info.channels * 10000 + info.height * 100 + info.width, 12828);
    assert_true(info.mean[0] == 0.1307f && info.std[0] == 0.3081f);
    assert_int_equal(tutti_dataset_read(dataset, 2, image, &label), TUTTI_OK);
    assert_int_equal(label, 2);
    assert_int_equal(image[3], (2 * 784 + 3) % 10);
    tutti_dataset_free(dataset);
}

static void mnist_is_read_in_every_spelling(void **state)
{
    (void)state;
    put_idx("t-dash", IMAGES_HEAD, 16, 3 * 784, false);
    put_idx("a/train-images-idx3-ubyte", IMAGES_HEAD, 16, 3 * 784, false);
    put_idx("a/train-labels-idx1-ubyte", LABELS_HEAD, 8, 3, false);
    put_idx("a/t10k-images.idx3-ubyte", IMAGES_HEAD, 16, 3 * 784, false);
    put_idx("a/t10k-labels.idx1-ubyte.gz", LABELS_HEAD, 8, 3, true);
    put_idx("b/MNIST/raw/train-images-idx3-ubyte.gz", IMAGES_HEAD, 16, 3 * 784, true);
    put_idx("b/MNIST/raw/train-labels-idx1-ubyte.gz", LABELS_HEAD, 8, 3, true);
    check_mnist("mnist:a/train");
    check_mnist("mnist:a/test");
    check_mnist("mnist:b/train");
    put_idx("c/FashionMNIST/raw/train-images-idx3-ubyte.gz", IMAGES_HEAD, 16, 3 * 784, true);
    put_idx("c/FashionMNIST/raw/train-labels-idx1-ubyte.gz", LABELS_HEAD, 8, 3, true);
    check_mnist("mnist:c/train");
    put_idx("c/KMNIST/raw/train-images-idx3-ubyte.gz", IMAGES_HEAD, 16, 3 * 784, true);
    open_fails("mnist:c/train", TUTTI_ERR_ARG); /* which one? */
    assert_error_says("c holds FashionMNIST/raw and KMNIST/raw", "c/FashionMNIST/raw", NULL);
}

/* Opens a/test after the images, then the labels, were made like this. */
static void mnist_fails(const uint8_t *images, size_t n_images, const uint8_t *labels,
                        size_t n_labels, const char *word, const char *other)
{
    put_idx("a/t10k-images-idx3-ubyte", images, 16, n_images, false);
    put_idx("a/t10k-labels-idx1-ubyte", labels, 8, n_labels, false);
    open_fails("mnist:a/test", TUTTI_ERR_FORMAT);
    assert_error_says(word, other, NULL);
}

static void damaged_idx_files_are_named(void **state)
{
    static const uint8_t FLOATS[] = {0, 0, 13, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28};
    static const uint8_t HUGE_[] = {0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 16, 0, 0, 0, 16, 0};
    static const uint8_t LYING[] = {0, 0, 8, 3, 0, 64, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28};
    static const uint8_t WIDE[] = {0, 0, 8, 3, 0, 0, 0, 3, 255, 0, 0, 28, 0, 0, 0, 28};
    static const uint8_t FOUR[] = {0, 0, 8, 1, 0, 0, 0, 4};
    static const uint8_t TWELVE[] = {0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 12};

    (void)state;
    mnist_fails(IMAGES_HEAD, 3 * 784 - 1, LABELS_HEAD, 3, "a/t10k-images-idx3-ubyte", "truncated");
    assert_error_says("2351", "2352", NULL);
    mnist_fails(IMAGES_HEAD, 3 * 784 + 1, LABELS_HEAD, 3, "images-idx3", "continues after");
    mnist_fails(FLOATS, 3 * 784, LABELS_HEAD, 3, "00000d03", "expected 00000803");
    mnist_fails(HUGE_, 784, LABELS_HEAD, 3, "at most", "header");
    mnist_fails(LYING, 784, LABELS_HEAD, 3, "truncated", "3288334336");
    mnist_fails(WIDE, 784, LABELS_HEAD, 3, "images of 4278190108x28", NULL);
    mnist_fails(IMAGES_HEAD, 3 * 784, FOUR, 4, "3 images", "4 labels");
    mnist_fails(IMAGES_HEAD, 3 * 784, FOUR, 2, "labels-idx1", "truncated");
    put("a/t10k-labels-idx1-ubyte", TWELVE, sizeof TWELVE);
    open_fails("mnist:a/test", TUTTI_ERR_FORMAT);
    assert_error_says("labels-idx1-ubyte", "label 2 is 12", "expected 0 to 9");
    put_text("a/t10k-labels-idx1-ubyte", "");
    open_fails("mnist:a/test", TUTTI_ERR_FORMAT);
    assert_int_equal(unlink("a/t10k-labels-idx1-ubyte"), 0);
    open_fails("mnist:a/test", TUTTI_ERR_NOT_FOUND);
    put_text("a/t10k-labels-idx1-ubyte.gz", "\x1f\x8b\x08 and then no gzip data at all.........");
    open_fails("mnist:a/test", TUTTI_ERR_FORMAT);
    assert_error_says("labels-idx1-ubyte.gz", NULL, NULL);
}

static void a_truncated_gzip_file_is_an_error(void **state)
{
    struct stat st;

    (void)state;
    put_idx("a/t10k-images-idx3-ubyte.gz", IMAGES_HEAD, 16, 3 * 784, true);
    put_idx("a/t10k-labels-idx1-ubyte", LABELS_HEAD, 8, 3, false);
    assert_int_equal(stat("a/t10k-images-idx3-ubyte.gz", &st), 0);
    for (off_t n = st.st_size - 1; n >= 0; n--) {
        assert_int_equal(truncate("a/t10k-images-idx3-ubyte.gz", n), 0);
        open_fails("mnist:a/test", TUTTI_ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_are_checked),
        cmocka_unit_test(digits_are_1438_and_359_with_the_stated_mean),
        cmocka_unit_test(the_first_digit_is_a_nought),
        cmocka_unit_test(synthetic_images_are_a_function_of_the_index),
        IN_FOLDER(cifar_files_of_any_length_are_read),
        IN_FOLDER(cifar_takes_its_classes_from_the_names_file),
        IN_FOLDER(damaged_cifar_files_are_named),
        IN_FOLDER(cifar100_has_the_fine_labels),
        cmocka_unit_test(a_programs_own_format_is_checked),
        IN_FOLDER(mnist_is_read_in_every_spelling),
        IN_FOLDER(damaged_idx_files_are_named),
        IN_FOLDER(a_truncated_gzip_file_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
