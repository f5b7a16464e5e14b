/* image.c -- chooses the decoder by a file's first bytes, and the part of the image.
 * SPDX-License-Identifier: MIT */
#include "data/image/image.h"
#include "base/real.h"

#include "data/data_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_LIMIT ((size_t)256 << 20)
#define LEAST_AREA                                                                                 \
    0.08 /* smallest area of a random part; the usual choice since Inception (Szegedy et al., 2015) */
#define LEAST_ASPECT (3.0 / 4)
#define TRIES        10

bool tutti__image_named(const char *file)
{
    static const char *const EXTENSIONS[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(file, '.');

    for (size_t i = 0; dot && i < TUTTI__COUNT_OF(EXTENSIONS); i++)
        if (strcasecmp(dot, EXTENSIONS[i]) == 0)
            return true;
    return false;
}

static tutti_status decode(tutti__image *image)
{
    static const uint8_t JPEG[] = {0xff, 0xd8, 0xff}, PNG[] = {0x89, 'P', 'N', 'G'};
    uint8_t *data;
    tutti_status status;

    TUTTI_TRY(tutti__read_file(image->path, FILE_LIMIT, &data, &image->bytes));
    image->data = data;
    if (image->is_mask && (image->bytes < sizeof PNG || memcmp(data, PNG, sizeof PNG) != 0))
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s is not a PNG file, as masks are", image->path);
    else if (image->bytes >= sizeof JPEG && memcmp(data, JPEG, sizeof JPEG) == 0)
        status = tutti__jpeg_decode(image);
    else if (image->bytes >= sizeof PNG && memcmp(data, PNG, sizeof PNG) == 0)
        status = tutti__png_decode(image);
    else
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s is neither a JPEG nor a PNG file%s", image->path,
                             image->bytes ? "" : ": it is empty");
    if (status == TUTTI_OK && image->scaler)
        tutti__scaler_finish(image->scaler, image->planes);
    tutti__scaler_free(image->scaler);
    free(image->row);
    free(data);
    return status;
}

tutti_status tutti__image_size(const char *path, int *height_p, int *width_p)
{
    tutti__image image = {.path = path};

    TUTTI_TRY(decode(&image));
    *height_p = image.height;
    *width_p = image.width;
    return TUTTI_OK;
}

tutti_status tutti__image_load(const char *path, const tutti__image_want *want, uint8_t *planes)
{
    return decode(&(tutti__image){.path = path, .want = want, .planes = planes});
}

tutti_status tutti__image_mask(const char *path, int height, int width, uint8_t *mask)
{
    const tutti__image_want want = {TUTTI__FIT_MASKED, height, width, 0};

    return decode(&(tutti__image){.path = path, .want = &want, .planes = mask, .is_mask = true});
}

/* ---- The part to decode ------------------------------------------------------------------------------ */

static tutti__rectangle centre_part(const tutti__image *image)
{
    double height = image->height, width = image->width;
    double aspect = (double)image->want->width / image->want->height;
    tutti__rectangle part = {0, 0, height, width};

    if (width > height * aspect)
        part.width = height * aspect;
    else
        part.height = width / aspect;
    part.top = (height - part.height) / 2;
    part.left = (width - part.width) / 2;
    return part;
}

/* In whole pixels. */
static tutti__rectangle random_part(const tutti__image *image)
{
    const double step = 0x1p-32, height = image->height, width = image->width;

    for (uint32_t i = 0; i < TRIES; i++) {
        uint32_t words[4];
        double area, aspect;
        tutti__rectangle part;

        tutti__philox(image->want->chance, (tutti__philox_counter){{i, 0, 0, 0}}, words);
        area = (LEAST_AREA + (1 - LEAST_AREA) * (words[0] * step)) * height * width;
        aspect = tutti__exp((2 * (words[1] * step) - 1) * -tutti__log(LEAST_ASPECT));
        part.width = fmax(1, round(sqrt(area * aspect)));
        part.height = fmax(1, round(sqrt(area / aspect)));
        if (part.width > width || part.height > height)
            continue;
        part.top = floor((height - part.height + 1) * (words[2] * step));
        part.left = floor((width - part.width + 1) * (words[3] * step));
        return part;
    }
    return centre_part(image);
}

static tutti_status choose_part(tutti__image *image)
{
    const tutti__image_want *want = image->want;

    image->part = (tutti__rectangle){0, 0, image->height, image->width};
    if (want->fit == TUTTI__FIT_CENTRE)
        image->part = centre_part(image);
    else if (want->fit == TUTTI__FIT_RANDOM)
        image->part = random_part(image);
    else if ((want->fit == TUTTI__FIT_EXACT || want->fit == TUTTI__FIT_MASKED) &&
             (image->height != want->height || image->width != want->width))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is an image of %dx%d (height x width), expected %dx%d: all images "
                           "of a data set have one size%s",
                           image->path, image->height, image->width, want->height, want->width,
                           want->fit == TUTTI__FIT_MASKED
                               ? ", and their masks have it; scale or cut them to it beforehand"
                               : "; --image-size N scales and crops them");
    image->most_shrink = 8;
    while (image->most_shrink > 1 && (image->part.height < want->height * image->most_shrink ||
                                      image->part.width < want->width * image->most_shrink))
        image->most_shrink /= 2;
    return TUTTI_OK;
}

tutti_status tutti__image_sized(tutti__image *image, uint64_t height, uint64_t width)
{
    if (height < 1 || width < 1)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is an image without pixels", image->path);
    if (height > TUTTI__MAX_PIXELS || width > TUTTI__MAX_PIXELS / height)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is an image of %llux%llu (height x width), more than the %d million "
                           "pixels that are read; make it smaller",
                           image->path, (unsigned long long)height, (unsigned long long)width,
                           TUTTI__MAX_PIXELS / 1000000);
    if (height > TUTTI__MAX_SIDE || width > TUTTI__MAX_SIDE)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is an image of %llux%llu (height x width), expected at most %d a "
                           "side; cut it into several",
                           image->path, (unsigned long long)height, (unsigned long long)width,
                           TUTTI__MAX_SIDE);
    image->height = (int)height;
    image->width = (int)width;
    return image->planes ? choose_part(image) : TUTTI_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------------------- */

tutti_status tutti__image_decoding(tutti__image *image, int height, int width)
{
    const tutti__image_want *want = image->want;
    double down = (double)height / image->height, across = (double)width / image->width;
    tutti__rectangle part = {image->part.top * down, image->part.left * across,
                             image->part.height * down, image->part.width * across};
    bool whole = image->part.height >= image->height && image->part.width >= image->width;

    image->row = malloc(3 * (size_t)width);
    if (!image->row)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to decode %s", image->path);
    if (whole && height == want->height && width == want->width)
        return TUTTI_OK;
    image->scaler = tutti__scaler_new(&part, height, width, want->height, want->width);
    return image->scaler ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__image_put_row(tutti__image *image, int row)
{
    size_t width = (size_t)image->want->width, plane = (size_t)image->want->height * width;
    const uint8_t *rgb = image->row;
    uint8_t *to = image->planes + (size_t)row * width;

    if (image->scaler) {
        tutti__scaler_put_row(image->scaler, row, rgb);
        return;
    }
    if (image->is_mask) {
        memcpy(to, rgb, width);
        return;
    }
    for (size_t x = 0; x < width; x++)
        for (size_t c = 0; c < 3; c++)
            to[c * plane + x] = rgb[3 * x + c];
}
