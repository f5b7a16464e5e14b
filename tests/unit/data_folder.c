/* data: image folders, the decoders behind them, and packing them into CIFAR-10 files.   SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"
#include "data/image/image.h"

static tutti_dataset *open_good(const char *spec)
{
    tutti_dataset *dataset;

    if (tutti_dataset_open(&dataset, spec) != TUTTI_OK)
        fail_msg("%s: %s", spec, tutti_last_error());
    return dataset;
}

static void open_fails(const char *spec, tutti_status expected, const char *a, const char *b)
{
    tutti_dataset *dataset;

    assert_int_equal(tutti_dataset_open(&dataset, spec), expected);
    assert_null(dataset);
    assert_error_says(a, b, NULL);
}

/* Skips the test in a build without that decoder. */
static void need(const char *path)
{
    int height, width;

    if (tutti__image_size(path, &height, &width) == TUTTI_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", tutti_last_error());
        skip();
    }
}

static tutti_status load(const char *path, int height, int width, uint8_t *planes)
{
    tutti__image_want want = {TUTTI__FIT_EXACT, height, width, 0};

    return tutti__image_load(path, &want, planes);
}

/* ---- Decoders -------------------------------------------------------------------------------------------------- */

static void every_kind_of_png_becomes_rgb(void **state)
{
    static const uint8_t RGB[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7};
    static const uint8_t RGBA[] = {255, 0, 0, 0, 0, 255, 0, 128, 0, 0, 255, 255, 9, 8, 7, 1};
    static const uint8_t PALETTE[] = {0, 1, 2, 3}, PALETTE_2BIT[] = {0x10, 0xb0}; /* 0 1 / 2 3 */
    static const uint8_t WIDE[] = {255, 255, 0, 0, 0,   0,   0, 0, 255, 255, 0, 0,
                                   0,   0,   0, 0, 255, 255, 9, 9, 8,   8,   7, 7};
    static const uint8_t GREY[] = {0, 85, 170, 255}, GREY_2BIT[] = {0x10, 0xb0};
    static const uint8_t GREY_ALPHA[] = {0, 0, 85, 9, 170, 255, 255, 1};
    static const uint8_t COLOURS[] = {255, 0, 0, 9, 0, 255, 0, 8, 0, 0, 255, 7};
    static const uint8_t GREYS[] = {0, 85, 170, 255, 0, 85, 170, 255, 0, 85, 170, 255};
    static const struct {
        int kind, bits;
        const uint8_t *lines;
        size_t stride;
        const uint8_t *planes;
    } CASES[] = {
        {PNG_RGB, 8, RGB, 6, COLOURS},         {PNG_RGBA, 8, RGBA, 8, COLOURS},
        {PNG_PALETTE, 8, PALETTE, 2, COLOURS}, {PNG_PALETTE, 2, PALETTE_2BIT, 1, COLOURS},
        {PNG_RGB, 16, WIDE, 12, COLOURS},      {PNG_GREY, 8, GREY, 2, GREYS},
        {PNG_GREY, 2, GREY_2BIT, 1, GREYS},    {PNG_GREY_ALPHA, 8, GREY_ALPHA, 4, GREYS},
    };
    uint8_t png[8192], planes[12];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(CASES); i++) {
        put("x.png", png,
            png_make(png, CASES[i].kind, CASES[i].bits, 2, 2, CASES[i].lines, CASES[i].stride));
        need("x.png");
        if (load("x.png", 2, 2, planes) != TUTTI_OK)
            fail_msg("case %zu: %s", i, tutti_last_error());
        assert_memory_equal(planes, CASES[i].planes, sizeof planes);
    }
}

static void jpegs_become_rgb(void **state)
{
    uint8_t planes[3 * 128];

    (void)state;
    put("rgb.jpg", JPEG_RGB, sizeof JPEG_RGB);
    need("rgb.jpg");
    put("progressive.jpg", JPEG_PROGRESSIVE, sizeof JPEG_PROGRESSIVE);
    put("grey.png", JPEG_GREY, sizeof JPEG_GREY); /* the first bytes decide, not the name */
    put("cmyk.jpg", JPEG_CMYK, sizeof JPEG_CMYK);
    for (int k = 0; k < 3; k++) {
        static const char *const FILES[] = {"rgb.jpg", "progressive.jpg", "grey.png"};

        assert_int_equal(load(FILES[k], 8, 16, planes), TUTTI_OK);
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 16; j++) {
                int grey = 20 + 12 * j + 6 * i;
                int expected[3] = {20 + 12 * j, 230 - 20 * i, 100};

                for (int c = 0; c < 3; c++) {
                    int e = k == 2 ? grey : expected[c];

                    assert_in_range(planes[c * 128 + i * 16 + j], e - 8, e + 8);
                }
            }
    }
    assert_int_equal(load("cmyk.jpg", 8, 16, planes), TUTTI_ERR_UNSUPPORTED);
    assert_error_says("cmyk.jpg", "CMYK", NULL);
}

static void cut_images_are_errors_at_every_length(void **state)
{
    uint8_t planes[3 * 128], png[8192], lines[3 * 128] = {0};
    size_t n = png_make(png, PNG_RGB, 8, 8, 16, lines, 48);

    (void)state;
    put("x.jpg", JPEG_RGB, sizeof JPEG_RGB);
    need("x.jpg");
    for (size_t i = 0; i < sizeof JPEG_RGB - 1; i++) {
        put("x.jpg", JPEG_RGB, i);
        assert_int_equal(load("x.jpg", 8, 16, planes), TUTTI_ERR_FORMAT);
        assert_error_says("x.jpg", NULL, NULL);
    }
    put("x.png", png, n);
    need("x.png");
    for (size_t i = 0; i < n; i++) {
        put("x.png", png, i);
        assert_int_equal(load("x.png", 8, 16, planes), TUTTI_ERR_FORMAT);
    }
}

static void huge_and_foreign_images_are_refused(void **state)
{
    uint8_t png[8192], lines[48] = {0}, planes[3 * 128];
    size_t n = png_make(png, PNG_RGB, 8, 1, 16, lines, 48);
    int height, width;

    (void)state;
    put_text("x.jpg", "GIF89a and so on");
    assert_int_equal(tutti__image_size("x.jpg", &height, &width), TUTTI_ERR_FORMAT);
    assert_error_says("x.jpg", "neither", NULL);
    put_text("x.jpg", "");
    assert_int_equal(tutti__image_size("x.jpg", &height, &width), TUTTI_ERR_FORMAT);
    assert_error_says("empty", NULL, NULL);
    put("x.png", png, n);
    need("x.png");
    assert_int_equal(load("x.png", 2, 16, planes), TUTTI_ERR_FORMAT);
    assert_error_says("1x16", "expected 2x16", "--image-size N");
    put_u32(png + 16, 2000000); /* few pixels, but a row of them takes memory */
    put_u32(png + 29, (uint32_t)crc32(0, png + 12, 17));
    put("x.png", png, n);
    assert_int_equal(tutti__image_size("x.png", &height, &width), TUTTI_ERR_FORMAT);
    assert_error_says("x.png is an image of 1x2000000", "at most 1000000 a side", NULL);
    put_u32(png + 16, 1u << 30); /* a width of a milliard, with a right check sum */
    put_u32(png + 29, (uint32_t)crc32(0, png + 12, 17));
    put("x.png", png, n);
    assert_int_equal(tutti__image_size("x.png", &height, &width), TUTTI_ERR_FORMAT);
}

/* Photographs are read, also scaled down; images of impossible sizes are rejected before memory is allocated. */
static void photographs_are_read_and_bombs_are_not(void **state)
{
    enum { HEIGHT = 4000, WIDTH = 6000, SMALL = 224 };
    static uint8_t jpeg[400000];
    static uint8_t planes[3 * SMALL * SMALL];
    tutti__image_want want = {TUTTI__FIT_CENTRE, SMALL, SMALL, 7};
    uint8_t *whole = malloc(3 * HEIGHT * WIDTH);
    int height, width;

    (void)state;
    put("photo.jpg", jpeg, jpeg_make(jpeg, HEIGHT, WIDTH, 0));
    need("photo.jpg");
    assert_int_equal(tutti__image_size("photo.jpg", &height, &width), TUTTI_OK);
    assert_int_equal(height * 10000 + width, 40006000);
    assert_int_equal(load("photo.jpg", HEIGHT, WIDTH, whole), TUTTI_OK);
    assert_in_range(whole[3 * HEIGHT * WIDTH - 1], 126, 130);
    for (int fit = TUTTI__FIT_STRETCH; fit <= TUTTI__FIT_RANDOM; fit++) {
        want.fit = (tutti__fit)fit;
        memset(planes, 0, sizeof planes);
        if (tutti__image_load("photo.jpg", &want, planes) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        for (size_t i = 0; i < sizeof planes; i++)
            assert_in_range(planes[i], 126, 130);
    }
    free(whole);
    put("bomb.jpg", jpeg, jpeg_make(jpeg, 16, 16, 49));
    assert_int_equal(load("bomb.jpg", 16, 16, planes), TUTTI_OK);
    put("bomb.jpg", jpeg, jpeg_make(jpeg, 16, 16, 500));
    assert_int_equal(load("bomb.jpg", 16, 16, planes), TUTTI_ERR_FORMAT);
    assert_error_says("bomb.jpg", "more than 50 scans", "jpegtran");
    jpeg_make(jpeg, 16, 16, 3);
    put_u32(jpeg + 71 + 44 + 5, 0xea60ea60u); /* 60000 x 60000 */
    put("bomb.jpg", jpeg, 400);
    assert_int_equal(load("bomb.jpg", 16, 16, planes), TUTTI_ERR_FORMAT);
    assert_error_says("bomb.jpg is an image of 60000x60000", "134 million", NULL);
}

static void scale(const tutti__rectangle *part, const uint8_t *rgb, int from_height, int from_width,
                  uint8_t *to, int height, int width)
{
    tutti__scaler *scaler = tutti__scaler_new(part, from_height, from_width, height, width);

    assert_non_null(scaler);
    for (int y = 0; y < from_height; y++)
        tutti__scaler_put_row(scaler, y, rgb + (size_t)y * 3 * (size_t)from_width);
    tutti__scaler_finish(scaler, to);
    tutti__scaler_free(scaler);
}

static void scaling_keeps_constants_and_averages(void **state)
{
    enum { H = 50, W = 70 };
    static const tutti__rectangle ALL = {0, 0, H, W}, ONE = {0, 0, 1, 1}, PART = {10, 20, 30, 40};
    uint8_t from[3 * H * W], to[3 * 32 * 32], same[3 * H * W], part[3 * 30 * 40];
    double before = 0, after = 0;

    (void)state;
    memset(from, 77, sizeof from);
    scale(&ALL, from, H, W, to, 32, 32);
    for (size_t i = 0; i < sizeof to; i++)
        assert_int_equal(to[i], 77);
    for (int i = 0; i < 3 * H * W; i++) {
        from[i] = (uint8_t)(i % W * 3 + i / W % H);
        before += from[i];
    }
    scale(&ALL, from, H, W, to, 32, 32);
    for (size_t i = 0; i < sizeof to; i++)
        after += to[i];
    before /= 3 * H * W;
    after /= 3 * 32 * 32;
    assert_true(before - after < 1 && after - before < 1);
    scale(&ALL, from, H, W, same, H, W);
    scale(&PART, from, H, W, part, 30, 40);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                int byte = from[(y * W + x) * 3 + c];

                assert_int_equal(same[c * H * W + y * W + x], byte);
                if (y >= 10 && y < 40 && x >= 20 && x < 60)
                    assert_int_equal(part[c * 30 * 40 + (y - 10) * 40 + x - 20], byte);
            }
    scale(&ONE, from, 1, 1, to, 32, 32);
    assert_int_equal(to[1023], from[0]);
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

/* train: b 2 images, a 1, c 1; val the same classes. Each image has its own value of red. */
static void put_tree(int side)
{
    put_png("d/train/b/2.png", side, side, 12);
    put_png("d/train/b/10.PNG", side, side, 11);
    put_png("d/train/a/x.png", side, side, 10);
    put_png("d/train/c/y.png", side, side, 13);
    put_text("d/train/b/.hidden.png", "not for us");
    put_text("d/train/README", "not a class");
    put_png("d/val/a/1.png", side, side, 20);
    put_png("d/val/b/1.png", side, side, 21);
    put_png("d/val/c/1.png", side, side, 22);
}

static void folders_are_sorted_by_class_and_name(void **state)
{
    static const int LABELS[] = {0, 1, 1, 2};
    tutti_dataset *train, *test, *val;
    tutti_dataset_info info;
    uint8_t image[3 * 36];
    int64_t label;

    (void)state;
    put_tree(6);
    need("d/train/a/x.png");
    train = open_good("folder:d/train");
    info = tutti_dataset_describe(train);
    assert_int_equal(info.count, 4);
    assert_int_equal(info.classes, 3);
    assert_int_equal(info.channels * 100 + info.height * 10 + info.width, 366);
    assert_string_equal(info.class_names[1], "b");
    assert_true(info.mean[0] == 0.485f);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tutti_dataset_read(train, i, image, &label), TUTTI_OK);
        assert_int_equal(label, LABELS[i]);
        assert_int_equal(image[0], 10 + i);
        assert_int_equal(image[36 + 5], 5);     /* green is the column */
        assert_int_equal(image[72 + 5 * 6], 5); /* blue is the row */
    }
    test = open_good("folder:d/test"); /* val serves */
    val = open_good("folder:d/val");
    assert_int_equal(tutti_dataset_describe(test).count, 3);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    tutti_dataset_free(val);
}

static void broken_trees_are_explained(void **state)
{
    tutti_dataset *train;
    uint8_t image[3 * 36];
    int64_t label;

    (void)state;
    open_fails("folder:e/train", TUTTI_ERR_NOT_FOUND, "e", NULL);
    put_text("e/readme", "");
    open_fails("folder:e/test", TUTTI_ERR_NOT_FOUND, "e/test", "e/test/CLASS/FILE.jpg");
    put_text("e/train/1.png", "");
    open_fails("folder:e/train", TUTTI_ERR_FORMAT, "no class folders", "e/train/CLASS/FILE.jpg");
    put_text("e/train/cat/readme.txt", "");
    open_fails("folder:e/train", TUTTI_ERR_FORMAT, "e/train/cat", "holds no .jpg");
    put_text("e/train/cat/1.png", "not an image");
    open_fails("folder:e/train", TUTTI_ERR_FORMAT, "e/train/cat/1.png", "neither");
    put_tree(6);
    need("d/train/a/x.png");
    put_png("d/train/b/10.PNG", 6, 7, 0);
    put_text("d/train/b/2.png", "");
    train = open_good("folder:d/train");
    assert_int_equal(tutti_dataset_read(train, 0, image, &label), TUTTI_OK);
    assert_int_equal(tutti_dataset_read(train, 1, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("d/train/b/10.PNG is an image of 6x7", "expected 6x6", "sample 1");
    assert_int_equal(tutti_dataset_read(train, 2, image, &label), TUTTI_ERR_FORMAT);
    assert_error_says("d/train/b/2.png", "empty", "sample 2");
    assert_int_equal(unlink("d/train/c/y.png"), 0);
    assert_int_equal(tutti_dataset_read(train, 3, image, &label), TUTTI_ERR_NOT_FOUND);
    assert_error_says("d/train/c/y.png", "sample 3", NULL);
    tutti_dataset_free(train);
    put_png("d/val/bb/1.png", 6, 6, 0);
    open_fails("folder:d/test", TUTTI_ERR_FORMAT, "number 2: \"c\" and \"bb\"", NULL);
}

/* Images of many sizes; red says which, green the column, blue the row. */
static tutti_dataset *open_sized(int size)
{
    static const int SIZES[][2] = {{6, 6}, {12, 6}, {7, 20}, {3, 3}};
    tutti_dataset *dataset;
    char path[64];

    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "s/train/%c/%d.png", 'a' + i % 2, i);
        put_png(path, SIZES[i][0], SIZES[i][1], 10 + i);
    }
    need("s/train/a/0.png");
    if (tutti_dataset_open_with(&dataset, "folder:s/train",
                                &(tutti_dataset_opts){.image_size = size}) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

static void images_of_many_sizes_become_one(void **state)
{
    static const int REDS[] = {10, 12, 11, 13};
    tutti_dataset *dataset = open_sized(6);
    tutti_dataset_info info = tutti_dataset_describe(dataset);
    uint8_t image[3 * 36];
    int64_t label;

    (void)state;
    assert_int_equal(info.count * 10000 + (size_t)info.height * 100 + (size_t)info.width, 40606);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tutti_dataset_read(dataset, i, image, &label), TUTTI_OK);
        assert_int_equal(label, i / 2);
        for (int k = 0; k < 36; k++)
            assert_int_equal(image[k], REDS[i]);
    }
    assert_int_equal(tutti_dataset_read(dataset, 2, image, &label), TUTTI_OK); /* 12x6 */
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            assert_int_equal(image[36 + i * 6 + j], j);
            assert_int_equal(image[72 + i * 6 + j], i + 3); /* the middle */
        }
    assert_int_equal(tutti_dataset_read(dataset, 1, image, &label), TUTTI_OK); /* 7x20 */
    assert_in_range(image[36], 6, 8); /* columns 6.5 to 13.5 of it */
    assert_in_range(image[36 + 5], 12, 13);
    assert_int_equal(tutti_dataset_read(dataset, 3, image, &label), TUTTI_OK); /* 3x3, enlarged */
    assert_int_equal(image[36], 0);
    assert_int_equal(image[36 + 5], 2);
    tutti_dataset_free(dataset);
    assert_int_equal(tutti_dataset_open_with(&dataset, "folder:s/train",
                                             &(tutti_dataset_opts){.image_size = -1}),
                     TUTTI_ERR_ARG);
    assert_error_says("image_size is -1", NULL, NULL);
    assert_int_equal(
        tutti_dataset_open_with(&dataset, "digits:train", &(tutti_dataset_opts){.image_size = 6}),
        TUTTI_ERR_ARG);
    assert_error_says("those of digits have one", NULL, NULL);
}

/* A random part is within the image, with the documented areas and aspect ratios, and a function of chance. */
static void random_parts_are_parts(void **state)
{
    tutti_dataset *dataset = open_sized(5);
    uint8_t image[75], again[75], other[75];
    int64_t label;
    int differ = 0, low = 255, high = 0;

    (void)state;
    for (uint64_t chance = 0; chance < 300; chance++) {
        assert_int_equal(
            tutti__dataset_read(dataset, 2, &(uint64_t){chance}, (void *const[]){image, &label}),
            TUTTI_OK);
        assert_int_equal(
            tutti__dataset_read(dataset, 2, &(uint64_t){chance}, (void *const[]){again, &label}),
            TUTTI_OK);
        assert_int_equal(tutti__dataset_read(dataset, 2, &(uint64_t){chance + 1000},
                                             (void *const[]){other, &label}),
                         TUTTI_OK);
        assert_memory_equal(image, again, sizeof image);
        differ += memcmp(image, other, sizeof image) != 0;
        for (int k = 0; k < 25; k++) {
            int column = image[25 + k], row = image[50 + k];

            assert_int_equal(image[k], 11);
            assert_in_range(column, 0, 5);
            assert_in_range(row, 0, 11);
            low = row < low ? row : low;
            high = row > high ? row : high;
            if (k % 5)
                assert_true(column >= image[25 + k - 1]); /* not mirrored: the loader does that */
        }
    }
    assert_in_range(differ, 250, 300);
    assert_int_equal(low, 0);
    assert_int_equal(high, 11);
    tutti_dataset_free(dataset);
}

static char heard[4096];

static void hear(void *user, tutti_log_level level, const char *area, int rank, const char *text)
{
    (void)user;
    (void)area;
    (void)rank;
    if (level == TUTTI_LOG_WARN)
        snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s\n", text);
}

/* Skipped entries of a folder are named in one warning, with printable names. */
static void what_is_left_out_is_named(void **state)
{
    (void)state;
    put_tree(6);
    need("d/train/a/x.png");
    assert_int_equal(symlink("nowhere.png", "d/train/a/lost.png"), 0);
    assert_int_equal(symlink("x.png", "d/train/a/found.png"), 0);
    assert_int_equal(symlink("loop.png", "d/train/a/loop.png"), 0);
    tutti_log_set_callback(hear, NULL);
    tutti_dataset_free(open_good("folder:d/train"));
    assert_non_null(strstr(heard, "d/train: 3 entries are left out: "));
    assert_non_null(strstr(heard, "train/README (not a folder)"));
    assert_non_null(strstr(heard, "a/lost.png (a link to nothing)"));
    assert_non_null(strstr(heard, "a/loop.png (a link in a circle)"));
    assert_null(strstr(heard, "found"));
    assert_ptr_equal(strchr(heard, '\n'), heard + strlen(heard) - 1); /* one line */
    heard[0] = '\0';
    put_text("d/train/b/a\nb\x1b[2J.gif", "");
    assert_int_equal(mkfifo("d/train/c/fifo.png", 0600), 0);
    assert_int_equal(symlink("nowhere", "d/train/dog"), 0); /* a class that would be lost */
    tutti_dataset_free(open_good("folder:d/train"));
    assert_non_null(strstr(heard, "6 entries"));
    assert_non_null(strstr(heard, "train/dog (a link to nothing)"));
    assert_non_null(strstr(heard, ", ..."));
    assert_null(strchr(heard, '\x1b'));
    tutti_log_set_callback(NULL, NULL);
    assert_int_equal(unlink("d/train/c/y.png"), 0);
    open_fails("folder:d/train", TUTTI_ERR_FORMAT, "d/train/c holds no .jpg", "left out");
}

/* ---- Pack and show -------------------------------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void packing_keeps_every_image(void **state)
{
    tutti__pack_opts opts = {0};
    tutti__pack_report report;
    tutti_dataset *train, *test;
    uint8_t image[3072];
    int64_t label;
    int seen[256] = {0};

    (void)state;
    put_tree(32);
    need("d/train/a/x.png");
    assert_int_equal(tutti__data_pack("d", "packed/", &opts, &report), TUTTI_OK);
    assert_int_equal(report.train, 4);
    assert_int_equal(report.test, 3);
    assert_int_equal(report.classes, 3);
    assert_false(exists("packed.partial"));
    train = open_good("cifar10:packed/train");
    test = open_good("cifar10:packed/test");
    assert_int_equal(tutti_dataset_describe(train).count, 4);
    assert_int_equal(tutti_dataset_describe(test).count, 3);
    assert_string_equal(tutti_dataset_describe(test).class_names[2], "c");
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tutti_dataset_read(train, i, image, &label), TUTTI_OK);
        seen[image[0]]++;
        assert_int_equal(label, image[0] == 10 ? 0 : image[0] == 13 ? 2 : 1);
        assert_int_equal(image[1024 + 31], 31);
        assert_int_equal(image[3071], 31);
    }
    for (int red = 10; red < 14; red++)
        assert_int_equal(seen[red], 1);
    tutti_dataset_free(train);
    tutti_dataset_free(test);
    /* what is there stays there */
    assert_int_equal(tutti__data_pack("d", "packed", &opts, &report), TUTTI_ERR_ARG);
    assert_error_says("packed", "not empty", NULL);
}

static bool stop_at_two(void *user, size_t done, size_t total)
{
    (void)user;
    (void)total;
    return done < 2;
}

static void a_pack_that_fails_leaves_nothing(void **state)
{
    tutti__tick tick = {stop_at_two, NULL};
    tutti__pack_opts opts = {0}, stopped = {.tick = &tick}, resize = {.resize = true};
    tutti__pack_report report;
    tutti_dataset *train;

    (void)state;
    put_tree(32);
    need("d/train/a/x.png");
    assert_int_equal(tutti__data_pack("d", "p", &stopped, &report), TUTTI_ERR_STATE);
    assert_false(exists("p") || exists("p.partial"));
    put_png("d/val/a/1.png", 30, 32, 0);
    assert_int_equal(tutti__data_pack("d", "p", &opts, &report), TUTTI_ERR_FORMAT);
    assert_error_says("d/val/a/1.png", "30x32", "--image-size");
    assert_false(exists("p") || exists("p.partial"));
    assert_int_equal(tutti__data_pack("d", "p", &resize, &report), TUTTI_OK);
    train = open_good("cifar10:p/train");
    tutti_dataset_free(train);
    assert_int_equal(tutti__data_pack("nowhere", "q", &opts, &report), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti__data_pack("d", "", &opts, &report), TUTTI_ERR_ARG);
    assert_int_equal(tutti__data_pack("d", "no/such/folder", &resize, &report),
                     TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti__make_dirs("q.partial"), TUTTI_OK); /* another one at work */
    assert_int_equal(tutti__data_pack("d", "q", &resize, &report), TUTTI_ERR_STATE);
    assert_true(exists("q.partial"));
    assert_error_says("q.partial", "remove it", NULL);
}

static void show_counts_and_measures(void **state)
{
    char text[16384] = "";
    FILE *out = fmemopen(text, sizeof text, "w");

    (void)state;
    assert_non_null(out);
    assert_int_equal(tutti__data_show("digits:test", NULL, out, NULL, NULL, NULL), TUTTI_OK);
    fclose(out);
    assert_non_null(strstr(text, "images     359, each 1 x 8 x 8 bytes"));
    assert_non_null(strstr(text, "0.3059"));
    assert_non_null(strstr(text, "the first labels: 4, 9, 4, 9, 4, 9, 6, 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(every_kind_of_png_becomes_rgb),
        IN_FOLDER(jpegs_become_rgb),
        IN_FOLDER(cut_images_are_errors_at_every_length),
        IN_FOLDER(huge_and_foreign_images_are_refused),
        IN_FOLDER(photographs_are_read_and_bombs_are_not),
        cmocka_unit_test(scaling_keeps_constants_and_averages),
        IN_FOLDER(folders_are_sorted_by_class_and_name),
        IN_FOLDER(broken_trees_are_explained),
        IN_FOLDER(images_of_many_sizes_become_one),
        IN_FOLDER(random_parts_are_parts),
        IN_FOLDER(what_is_left_out_is_named),
        IN_FOLDER(packing_keeps_every_image),
        IN_FOLDER(a_pack_that_fails_leaves_nothing),
        cmocka_unit_test(show_counts_and_measures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
