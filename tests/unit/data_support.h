/* data_support.h -- a temporary folder, and files to put in it.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DATA_SUPPORT_H
#define TUTTI_TESTS_DATA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/base.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- A folder for a test; tests run inside it, and it goes when they are done ------------------------------- */

static char folder_path[] = "/tmp/tutti-data-XXXXXX";

static inline int enter_folder(void **state)
{
    (void)state;
    strcpy(folder_path + sizeof folder_path - 7, "XXXXXX");
    return mkdtemp(folder_path) && chdir(folder_path) == 0 ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline int leave_folder(void **state)
{
    (void)state;
    if (chdir("/") != 0)
        return -1;
    return nftw(folder_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

static inline void put(const char *path, const void *bytes, size_t n)
{
    char dir[256];
    FILE *file;

    snprintf(dir, sizeof dir, "%s", path);
    if (strrchr(dir, '/')) {
        *strrchr(dir, '/') = '\0';
        assert_int_equal(tutti__make_dirs(dir), TUTTI_OK);
    }
    unlink(path); /* writing over a file makes some file systems flush it, which takes long */
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

/* The last error says each of the words. */
static inline void assert_error_says(const char *a, const char *b, const char *c)
{
    const char *words[] = {a, b, c};

    for (int i = 0; i < 3; i++)
        if (words[i] && !strstr(tutti_last_error(), words[i]))
            fail_msg("the error \"%s\" does not say \"%s\"", tutti_last_error(), words[i]);
}

/* ---- PNG files, written by hand so that every kind can be made ------------------------------------------------ */

enum { PNG_GREY = 0, PNG_RGB = 2, PNG_PALETTE = 3, PNG_GREY_ALPHA = 4, PNG_RGBA = 6 };

static inline void put_u32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline size_t png_chunk(uint8_t *png, size_t at, const char *type, const void *data,
                               size_t n)
{
    put_u32(png + at, (uint32_t)n);
    memcpy(png + at + 4, type, 4);
    if (n)
        memcpy(png + at + 8, data, n);
    put_u32(png + at + 8 + n, (uint32_t)crc32(0, png + at + 4, (unsigned)(n + 4)));
    return at + 12 + n;
}

/* A PNG of raw scan lines (without the filter bytes), `stride` bytes each; returns its length in png[8192]. */
static inline size_t png_make(uint8_t png[8192], int kind, int bits, int height, int width,
                              const uint8_t *lines, size_t stride)
{
    static const uint8_t SIGNATURE[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    static const uint8_t COLOURS[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7};
    uint8_t header[13] = {0}, raw[4096], packed[4096];
    uLongf n_packed = sizeof packed;
    size_t at = sizeof SIGNATURE, n = 0;

    assert_true((stride + 1) * (size_t)height <= sizeof raw);
    for (int i = 0; i < height; i++) {
        raw[n] = 0;
        memcpy(raw + n + 1, lines + (size_t)i * stride, stride);
        n += stride + 1;
    }
    assert_int_equal(compress(packed, &n_packed, raw, n), Z_OK);
    put_u32(header, (uint32_t)width);
    put_u32(header + 4, (uint32_t)height);
    header[8] = (uint8_t)bits;
    header[9] = (uint8_t)kind;
    memcpy(png, SIGNATURE, sizeof SIGNATURE);
    at = png_chunk(png, at, "IHDR", header, sizeof header);
    if (kind == PNG_PALETTE)
        at = png_chunk(png, at, "PLTE", COLOURS, sizeof COLOURS);
    at = png_chunk(png, at, "IDAT", packed, n_packed);
    return png_chunk(png, at, "IEND", NULL, 0);
}

/* An RGB PNG whose red is r everywhere, green the column and blue the row. */
static inline void put_png(const char *path, int height, int width, int r)
{
    uint8_t lines[4096], png[8192];
    size_t stride = 3 * (size_t)width;

    for (int i = 0; i < height; i++)
        for (int j = 0; j < width; j++) {
            lines[(size_t)i * stride + 3 * (size_t)j] = (uint8_t)r;
            lines[(size_t)i * stride + 3 * (size_t)j + 1] = (uint8_t)j;
            lines[(size_t)i * stride + 3 * (size_t)j + 2] = (uint8_t)i;
        }
    put(path, png, png_make(png, PNG_RGB, 8, height, width, lines, stride));
}

/* An even grey JPEG of any size, progressive with this many scans, or (0) with one; returns its length. Each block has one
 * bit for its mean, which does not change, and one for the rest, which is nothing. */
static inline size_t jpeg_make(uint8_t *jpeg, int height, int width, int scans)
{
    static const uint8_t CODES[] = {0xff, 0xc4, 0, 20, 0x00, 1, 0, 0,    0,    0, 0,  0,    0, 0, 0,
                                    0,    0,    0, 0,  0,    0, 0, 0xff, 0xc4, 0, 20, 0x10, 1, 0, 0,
                                    0,    0,    0, 0,  0,    0, 0, 0,    0,    0, 0,  0,    0, 0};
    uint8_t frame[] = {0xff, scans ? 0xc2 : 0xc0, 0, 11, 8, 0, 0, 0, 0, 1, 1, 0x11, 0};
    uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, 0, scans ? 0 : 63, 0};
    size_t blocks = (size_t)((height + 7) / 8) * (size_t)((width + 7) / 8), n = 0;

    frame[5] = (uint8_t)(height >> 8);
    frame[6] = (uint8_t)height;
    frame[7] = (uint8_t)(width >> 8);
    frame[8] = (uint8_t)width;
    memcpy(jpeg, "\xff\xd8\xff\xdb\0\x43\0", 7);
    memset(jpeg + 7, 16, 64);
    n = 71;
    memcpy(jpeg + n, CODES, sizeof CODES);
    n += sizeof CODES;
    memcpy(jpeg + n, frame, sizeof frame);
    n += sizeof frame;
    for (int i = 0; i < (scans ? scans : 1); i++) {
        size_t bytes = (blocks * (scans ? 1 : 2) + 7) / 8;

        if (i > 0) { /* the other coefficients, again and again */
            scan[7] = 1;
            scan[8] = 63;
        }
        memcpy(jpeg + n, scan, sizeof scan);
        memset(jpeg + n + sizeof scan, 0, bytes);
        n += sizeof scan + bytes;
    }
    memcpy(jpeg + n, "\xff\xd9", 2);
    return n + 2;
}

/* ---- JPEG files of 8x16 pixels, made with libjpeg at quality 95: red 20 + 12x, green 230 - 20y, blue 100;
 *      grey 20 + 12x + 6y ---------------------------------------------------------------------------------------- */

static const uint8_t JPEG_RGB[] = {
    255, 216, 255, 219, 0,   67,  0,   2,   1,   1,   1,   1,   1,   2,   1,   1,   1,   2,   2,
    2,   2,   2,   4,   3,   2,   2,   2,   2,   5,   4,   4,   3,   4,   6,   5,   6,   6,   6,
    5,   6,   6,   6,   7,   9,   8,   6,   7,   9,   7,   6,   6,   8,   11,  8,   9,   10,  10,
    10,  10,  10,  6,   8,   11,  12,  11,  10,  12,  9,   10,  10,  10,  255, 219, 0,   67,  1,
    2,   2,   2,   2,   2,   2,   5,   3,   3,   5,   10,  7,   6,   7,   10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  255, 192, 0,   17,  8,   0,   8,   0,   16,  3,   1,   17,
    0,   2,   17,  1,   3,   17,  1,   255, 196, 0,   21,  0,   1,   1,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   5,   7,   255, 196, 0,   26,  16,  0,   0,   7,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   7,   8,   37,  50,  66,
    81,  255, 196, 0,   22,  1,   1,   1,   1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   8,   6,   7,   255, 196, 0,   26,  17,  0,   2,   2,   3,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   6,   5,   34,  7,   49,  50,  255, 218, 0,   12,
    3,   1,   0,   2,   17,  3,   17,  0,   63,  0,   56,  189, 90,  208, 119, 203, 136, 153, 36,
    45,  208, 39,  36,  99,  62,  104, 92,  203, 229, 173, 7,   108, 184, 207, 164, 144, 183, 65,
    130, 145, 140, 249, 161, 255, 217,
};

static const uint8_t JPEG_GREY[] = {
    255, 216, 255, 219, 0,   67, 0,  2,  1,   1,   1,   1,   1,   2,   1,   1,  1,  2,  2, 2,  2,
    2,   4,   3,   2,   2,   2,  2,  5,  4,   4,   3,   4,   6,   5,   6,   6,  6,  5,  6, 6,  6,
    7,   9,   8,   6,   7,   9,  7,  6,  6,   8,   11,  8,   9,   10,  10,  10, 10, 10, 6, 8,  11,
    12,  11,  10,  12,  9,   10, 10, 10, 255, 192, 0,   11,  8,   0,   8,   0,  16, 1,  1, 17, 0,
    255, 196, 0,   21,  0,   1,  1,  0,  0,   0,   0,   0,   0,   0,   0,   0,  0,  0,  0, 0,  0,
    8,   9,   255, 196, 0,   26, 16, 0,  0,   7,   0,   0,   0,   0,   0,   0,  0,  0,  0, 0,  0,
    0,   0,   0,   7,   8,   36, 52, 66, 82,  255, 218, 0,   8,   1,   1,   0,  0,  63, 0, 37, 162,
    66,  74,  35,  76,  212, 88, 4,  72, 73,  68,  105, 154, 143, 255, 217,
};

static const uint8_t JPEG_PROGRESSIVE[] = {
    255, 216, 255, 219, 0,   67,  0,   2,   1,   1,   1,   1,   1,   2,   1,   1,   1,   2,   2,
    2,   2,   2,   4,   3,   2,   2,   2,   2,   5,   4,   4,   3,   4,   6,   5,   6,   6,   6,
    5,   6,   6,   6,   7,   9,   8,   6,   7,   9,   7,   6,   6,   8,   11,  8,   9,   10,  10,
    10,  10,  10,  6,   8,   11,  12,  11,  10,  12,  9,   10,  10,  10,  255, 219, 0,   67,  1,
    2,   2,   2,   2,   2,   2,   5,   3,   3,   5,   10,  7,   6,   7,   10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10,
    10,  10,  10,  10,  10,  10,  10,  255, 194, 0,   17,  8,   0,   8,   0,   16,  3,   1,   17,
    0,   2,   17,  1,   3,   17,  1,   255, 196, 0,   21,  0,   1,   1,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   4,   6,   255, 196, 0,   22,  1,   1,   1,   1,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   7,   5,   6,   255, 218, 0,
    12,  3,   1,   0,   2,   16,  3,   16,  0,   0,   1,   52,  66,  107, 172, 243, 15,  255, 196,
    0,   22,  16,  0,   3,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   5,   6,   255, 218, 0,   8,   1,   1,   0,   1,   5,   2,   95,  106, 47,  181, 63,  255,
    196, 0,   24,  17,  0,   2,   3,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   5,   6,   33,  49,  255, 218, 0,   8,   1,   3,   1,   1,   63,  1,   73,  25,  202,
    18,  70,  114, 143, 255, 196, 0,   23,  17,  0,   3,   1,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   4,   5,   97,  255, 218, 0,   8,   1,   2,   1,   1,   63,
    1,   102, 14,  12,  193, 195, 255, 196, 0,   21,  16,  1,   1,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   51,  255, 218, 0,   8,   1,   1,   0,   6,   63,
    2,   170, 175, 255, 196, 0,   22,  16,  0,   3,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   0,   0,   0,   0,   49,  193, 255, 218, 0,   8,   1,   1,   0,   1,   63,  33,  93,
    137, 179, 255, 218, 0,   12,  3,   1,   0,   2,   0,   3,   0,   0,   0,   16,  171, 255, 196,
    0,   20,  17,  1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
    16,  255, 218, 0,   8,   1,   3,   1,   1,   63,  16,  38,  127, 255, 196, 0,   21,  17,  1,
    1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   49,  255, 218,
    0,   8,   1,   2,   1,   1,   63,  16,  171, 87,  255, 196, 0,   21,  16,  1,   1,   0,   0,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   161, 255, 218, 0,   8,   1,
    1,   0,   1,   63,  16,  134, 202, 127, 255, 217,
};

static const uint8_t JPEG_CMYK[] = {
    255, 216, 255, 238, 0,  14, 65,  100, 111, 98,  101, 0,   100, 0,   0,   0,  0,  0,   255, 219,
    0,   67,  0,   2,   1,  1,  1,   1,   1,   2,   1,   1,   1,   2,   2,   2,  2,  2,   4,   3,
    2,   2,   2,   2,   5,  4,  4,   3,   4,   6,   5,   6,   6,   6,   5,   6,  6,  6,   7,   9,
    8,   6,   7,   9,   7,  6,  6,   8,   11,  8,   9,   10,  10,  10,  10,  10, 6,  8,   11,  12,
    11,  10,  12,  9,   10, 10, 10,  255, 192, 0,   20,  8,   0,   8,   0,   16, 4,  67,  17,  0,
    77,  17,  0,   89,  17, 0,  75,  17,  0,   255, 196, 0,   22,  0,   1,   1,  1,  0,   0,   0,
    0,   0,   0,   0,   0,  0,  0,   0,   0,   0,   9,   0,   6,   255, 196, 0,  24, 16,  1,   0,
    3,   1,   0,   0,   0,  0,  0,   0,   0,   0,   0,   0,   0,   0,   0,   5,  21, 65,  98,  255,
    218, 0,   14,  4,   67, 0,  77,  0,   89,  0,   75,  0,   0,   63,  0,   3,  99, 112, 6,   214,
    242, 8,   192, 219, 65, 27, 138, 183, 148, 159, 255, 217,
};

#endif
