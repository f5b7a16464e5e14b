/* Images with masks: numbers of grey and palette PNGs, in the order of names, and what is refused.
 * SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"
#include "data/image/image.h"

enum { H = 4, W = 8 };

static void put_mask(const char *path, int kind, int bits, const uint8_t *lines, size_t stride)
{
    uint8_t png[8192];

    put(path, png, png_make(png, kind, bits, H, W, lines, stride));
}

/* Two images: the first with a mask of bytes, the second with one of a palette in 2 bits. */
static void make(void)
{
    uint8_t bytes[H][W], packed[H][W / 4];
    int height, width;

    for (int i = 0; i < H; i++)
        for (int j = 0; j < W; j++)
            bytes[i][j] = (uint8_t)(j == 7 ? 255 : (i + j) % 3);
    memset(packed, 0x18, sizeof packed); /* 0 1 2 0 */
    put_text("d/classes.txt", "sky\r\nroad\n\ntree\n");
    put_png("d/train/images/b.png", H, W, 1);
    if (tutti__image_size("d/train/images/b.png", &height, &width) == TUTTI_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", tutti_last_error());
        skip();
    }
    put_png("d/train/images/a.png", H, W, 2);
    put_mask("d/train/masks/a.png", PNG_GREY, 8, &bytes[0][0], W);
    put_mask("d/train/masks/b.png", PNG_PALETTE, 2, &packed[0][0], W / 4);
}

static void numbers_of_masks_are_classes(void **state)
{
    tutti_dataset *dataset;
    tutti_dataset_info info;
    uint8_t image[3][H][W];
    static const int64_t repeated[] = {0, 1, 2, 0};
    int64_t mask[H][W];

    (void)state;
    make();
    assert_int_equal(tutti_dataset_open(&dataset, "masks:d/train"), TUTTI_OK);
    info = tutti_dataset_describe(dataset);
    assert_int_equal(info.count, 2);
    assert_int_equal(info.classes, 3);
    assert_string_equal(info.class_names[1], "road");
    assert_true(info.fields[1].moves);
    for (size_t n = 0; n < 2; n++) {
        assert_int_equal(tutti__dataset_read(dataset, n, NULL, (void *const[]){image, mask}),
                         TUTTI_OK);
        assert_int_equal(image[0][0][0], n ? 1 : 2);
        for (int i = 0; i < H; i++)
            for (int j = 0; j < W; j++)
                assert_int_equal(mask[i][j], n ? repeated[j % 4] : j == 7 ? -100 : (i + j) % 3);
    }
    tutti_dataset_free(dataset);
}

static void refuse(size_t index, const char *a, const char *b)
{
    tutti_dataset *dataset;
    uint8_t image[3][H][W];
    int64_t mask[H][W];
    tutti_status status = tutti_dataset_open(&dataset, "masks:d/train");

    if (status == TUTTI_OK)
        status = tutti__dataset_read(dataset, index, NULL, (void *const[]){image, mask});
    assert_int_not_equal(status, TUTTI_OK);
    assert_error_says(a, b, NULL);
    tutti_dataset_free(dataset);
}

static void wrong_masks_are_refused_with_the_file(void **state)
{
    uint8_t lines[H][3 * W];

    (void)state;
    make();
    memset(lines, 3, sizeof lines);
    put_mask("d/train/masks/a.png", PNG_GREY, 8, &lines[0][0], W);
    refuse(0, "d/train/masks/a.png: row 3, column 7 is 3, expected a class, 0 to 2, or 255", NULL);
    put_mask("d/train/masks/a.png", PNG_RGB, 8, &lines[0][0], 3 * W);
    refuse(0, "d/train/masks/a.png is not a mask", "of grey values of up to 8 bits");
    put_mask("d/train/masks/a.png", PNG_GREY, 16, &lines[0][0], 2 * W);
    refuse(0, "d/train/masks/a.png is not a mask", NULL);
    put("d/train/masks/a.png", JPEG_GREY, sizeof JPEG_GREY);
    refuse(0, "d/train/masks/a.png is not a PNG file", NULL);
    put_png("d/train/images/b.png", H, W + 1, 1);
    refuse(1, "d/train/images/b.png is an image of 4x9", "expected 4x8");
    assert_null(strstr(tutti_last_error(), "--image-size")); /* refused for masks */
    assert_int_equal(unlink("d/train/masks/a.png"), 0);
    refuse(0, "d/train/masks/a.png", "No such file");
    put_text("d/classes.txt", "\n");
    refuse(0, "d/classes.txt is empty", NULL);
    assert_int_equal(unlink("d/classes.txt"), 0);
    refuse(0, "d/classes.txt", "one a line");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(numbers_of_masks_are_classes),
        IN_FOLDER(wrong_masks_are_refused_with_the_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
