/* data: no bytes in a file crash a reader.   SPDX-License-Identifier: MIT
 *
 * Each round damages a good file (or makes one of noise), opens the data set and reads from it: any status is allowed, but
 * no invalid access, which sanitizers check. The noise is Philox's, so that a failure can be reproduced. */
#include "data_support.h"

#include "data/dataset.h"
#include "data_numpy.h"

enum { ROUNDS = 400, ROOM = 16384 };

typedef struct noise {
    uint32_t round, drawn;
} noise;

static uint32_t draw(noise *n, uint32_t below)
{
    uint32_t words[4];

    tutti__philox(99, (tutti__philox_counter){{n->round, n->drawn++, 0, 0}}, words);
    return words[0] % below;
}

/* A good file, now cut, with changed bytes, or with a piece moved; one round in eight is noise alone. */
static size_t damage(noise *n, const uint8_t *good, size_t n_good, uint8_t bad[ROOM])
{
    size_t size = n_good;

    memcpy(bad, good, n_good);
    if (n->round % 8 == 0) {
        size = draw(n, 4000);
        for (size_t i = n->round % 16 ? 4 : 0; i < size;
             i++) /* now and then with the right beginning */
            bad[i] = (uint8_t)draw(n, 256);
        return size;
    }
    for (uint32_t i = 1 + draw(n, 8); i > 0; i--)
        bad[draw(n, (uint32_t)size)] = (uint8_t)draw(n, 256);
    if (n->round % 3 == 0)
        size = draw(n, (uint32_t)size);
    return size;
}

static void check_read(const tutti_dataset *dataset, size_t i, const uint64_t *chance,
                       void *const *arrays)
{
    int64_t label;

    if (tutti__dataset_read(dataset, i, chance, arrays) != TUTTI_OK ||
        !tutti__dataset_has_labels(dataset))
        return;
    memcpy(&label, arrays[1], sizeof label);
    assert_in_range(label, 0, dataset->info.classes - 1);
}

/* image_size 0: as they are; else also random parts. */
static void try_to_read(const char *spec, int image_size)
{
    tutti_dataset_opts opts = {.image_size = image_size};
    tutti_dataset *dataset;
    void *arrays[TUTTI_MAX_FIELDS];
    size_t count;

    if (tutti_dataset_open_with(&dataset, spec, &opts) != TUTTI_OK) {
        assert_true(strlen(tutti_last_error()) > 10);
        return;
    }
    for (int i = 0; i < dataset->info.n_fields; i++)
        assert_non_null(arrays[i] = malloc(dataset->bytes[i]));
    /* a damaged header may request many samples: valid, but slow */
    count = dataset->info.count;
    if (dataset->bytes[0] > 1 << 16)
        count = count > 1;
    for (size_t i = 0; i < count && i < 20; i++)
        check_read(dataset, i, NULL, arrays);
    for (uint64_t i = 0; image_size && i < count && i < 4; i++)
        check_read(dataset, i, &i, arrays);
    for (int i = 0; i < dataset->info.n_fields; i++)
        free(arrays[i]);
    tutti_dataset_free(dataset);
}

static void fuzz(const char *path, const uint8_t *good, size_t n_good, const char *spec)
{
    uint8_t bad[ROOM];

    for (noise n = {0}; n.round < ROUNDS; n.round++, n.drawn = 0) {
        size_t size = damage(&n, good, n_good, bad);

        put(path, bad, size);
        try_to_read(spec, 0);
        if (strncmp(spec, "folder:", 7) == 0)
            try_to_read(spec, 5);
    }
}

static void cifar_files(void **state)
{
    static uint8_t good[3 * 3073];
    static const char NAMES[] = "cat\ndog\nowl\n";

    (void)state;
    fuzz("a/test_batch.bin", good, sizeof good, "cifar10:a/test");
    put("a/test_batch.bin", good, sizeof good);
    fuzz("b/test.bin", good, 2 * 3074, "cifar100:b/test");
    fuzz("a/batches.meta.txt", (const uint8_t *)NAMES, sizeof NAMES - 1, "cifar10:a/test");
}

static void idx_files(void **state)
{
    static uint8_t images[16 + 2 * 784] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 4};
    uint8_t packed[4096];
    gzFile file;
    FILE *bytes;
    size_t n;

    (void)state;
    put("a/t10k-labels-idx1-ubyte", LABELS, sizeof LABELS);
    fuzz("a/t10k-images-idx3-ubyte", images, sizeof images, "mnist:a/test");
    put("a/t10k-images-idx3-ubyte", images, sizeof images);
    fuzz("a/t10k-labels-idx1-ubyte", LABELS, sizeof LABELS, "mnist:a/test");
    put("a/t10k-labels-idx1-ubyte", LABELS, sizeof LABELS);
    assert_int_equal(unlink("a/t10k-images-idx3-ubyte"), 0);
    for (size_t i = 16; i < sizeof images; i++)
        images[i] = (uint8_t)(i * i);
    file = gzopen("good.gz", "wb");
    assert_int_equal(gzwrite(file, images, sizeof images), sizeof images);
    assert_int_equal(gzclose(file), Z_OK);
    bytes = fopen("good.gz", "rb");
    n = fread(packed, 1, sizeof packed, bytes);
    fclose(bytes);
    fuzz("a/t10k-images-idx3-ubyte.gz", packed, n, "mnist:a/test");
}

static void image_files(void **state)
{
    uint8_t png[8192], many[ROOM], lines[3 * 16 * 8];
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = (uint8_t)(i * 7);
    n = png_make(png, PNG_RGB, 8, 8, 16, lines, 48);
    fuzz("d/train/a/1.png", png, n, "folder:d/train");
    n = png_make(png, PNG_PALETTE, 8, 8, 16, lines, 16);
    fuzz("d/train/a/1.png", png, n, "folder:d/train");
    put("d/train/a/1.png", png, n);
    fuzz("d/train/a/2.jpg", JPEG_RGB, sizeof JPEG_RGB, "folder:d/train");
    fuzz("d/train/a/2.jpg", JPEG_PROGRESSIVE, sizeof JPEG_PROGRESSIVE, "folder:d/train");
    fuzz("d/train/a/2.jpg", JPEG_GREY, sizeof JPEG_GREY, "folder:d/train");
    n = jpeg_make(many, 40, 40, 60);
    fuzz("d/train/a/2.jpg", many, n, "folder:d/train");
}

static void mask_files(void **state)
{
    uint8_t png[8192], lines[16 * 8];
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % 3 ? (uint8_t)(i % 3) : 255;
    n = png_make(png, PNG_GREY, 8, 8, 16, lines, 16);
    put_text("k/classes.txt", "sky\nroad\ntree\n");
    put_png("k/train/images/1.png", 8, 16, 9);
    fuzz("k/train/masks/1.png", png, n, "masks:k/train");
    put("k/train/masks/1.png", png, n);
    fuzz("k/train/images/1.png", png, n, "masks:k/train");
}

static void tables(void **state)
{
    static const char TEXT[] =
        "a,\"b, \"\"c\"\"\",class\r\n1,2e3,cat\r\n-.5,\"3\",\"d\nog\"\n7,8,cat\n";

    (void)state;
    fuzz("t/train.csv", (const uint8_t *)TEXT, sizeof TEXT - 1, "csv:t/train");
    put_text("t/train.csv", TEXT);
    fuzz("t/test.csv", (const uint8_t *)TEXT, sizeof TEXT - 1, "csv:t/test");
}

static void numpy_files(void **state)
{
    (void)state;
    fuzz("n/train.npz", NPZ_COMPRESSED, sizeof NPZ_COMPRESSED, "npy:n/train");
    put("m/train/y.npy", NPY_LABELS, sizeof NPY_LABELS - 1);
    fuzz("m/train/x.npy", (const uint8_t *)NPY_ROWS, sizeof NPY_ROWS - 1, "npy:m/train");
    put("m/train/x.npy", NPY_ROWS, sizeof NPY_ROWS - 1);
    fuzz("m/train/y.npy", (const uint8_t *)NPY_LABELS, sizeof NPY_LABELS - 1, "npy:m/train");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(cifar_files), IN_FOLDER(idx_files), IN_FOLDER(image_files),
        IN_FOLDER(mask_files),  IN_FOLDER(tables),    IN_FOLDER(numpy_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
