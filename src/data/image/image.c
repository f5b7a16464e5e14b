/* image.c -- which decoder a file needs, told by its first bytes; and resizing.   SPDX-License-Identifier: MIT */
#include "data/image/image.h"

#include "data/dataset.h"
#include "data/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_LIMIT ((size_t)256 << 20)

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
    if (image->bytes >= sizeof JPEG && memcmp(data, JPEG, sizeof JPEG) == 0)
        status = tutti__jpeg_decode(image);
    else if (image->bytes >= sizeof PNG && memcmp(data, PNG, sizeof PNG) == 0)
        status = tutti__png_decode(image);
    else
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s is neither a JPEG nor a PNG file%s", image->path,
                             image->bytes ? "" : ": it is empty");
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

tutti_status tutti__image_load(const char *path, int height, int width, uint8_t *planes)
{
    return decode(
        &(tutti__image){.path = path, .height = height, .width = width, .planes = planes});
}

tutti_status tutti__image_sized(tutti__image *image, uint64_t height, uint64_t width)
{
    if (height < 1 || width < 1 || height > TUTTI__MAX_SIDE || width > TUTTI__MAX_SIDE)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is an image of %llux%llu (height x width), expected 1 to %d a side",
                           image->path, (unsigned long long)height, (unsigned long long)width,
                           TUTTI__MAX_SIDE);
    if (image->height && ((int)height != image->height || (int)width != image->width))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is an image of %dx%d (height x width), expected %dx%d: all images "
                           "of a data set have one size "
                           "(`tutti data pack --resize` scales a folder to 32x32)",
                           image->path, (int)height, (int)width, image->height, image->width);
    image->height = (int)height;
    image->width = (int)width;
    return TUTTI_OK;
}

void tutti__image_put_row(tutti__image *image, int row, const uint8_t *rgb)
{
    size_t width = (size_t)image->width, plane = (size_t)image->height * width;
    uint8_t *to = image->planes + (size_t)row * width;

    for (size_t x = 0; x < width; x++)
        for (size_t c = 0; c < 3; c++)
            to[c * plane + x] = rgb[3 * x + c];
}

/* One direction of a resize: n_lines lines of from_n pixels become lines of n. */
typedef struct resampling {
    int n_lines, from_n, n;
    size_t from_line, from_step; /* from a line, a pixel, to the next */
    size_t line, step;
} resampling;

static void resample(const resampling *r, const float *from, float *to)
{
    float scale = (float)r->from_n / (float)r->n, reach = scale > 1 ? scale : 1;

    for (int i = 0; i < r->n; i++) {
        float centre = ((float)i + 0.5f) * scale - 0.5f, total = 0;
        int first = (int)ceilf(centre - reach), last = (int)floorf(centre + reach);

        first = first < 0 ? 0 : first;
        last = last > r->from_n - 1 ? r->from_n - 1 : last;
        for (int line = 0; line < r->n_lines; line++)
            to[(size_t)line * r->line + (size_t)i * r->step] = 0;
        for (int k = first; k <= last; k++) {
            float weight = 1 - fabsf((float)k - centre) / reach;

            total += weight;
            for (int line = 0; line < r->n_lines; line++)
                to[(size_t)line * r->line + (size_t)i * r->step] +=
                    weight * from[(size_t)line * r->from_line + (size_t)k * r->from_step];
        }
        for (int line = 0; line < r->n_lines; line++)
            to[(size_t)line * r->line + (size_t)i * r->step] /= total;
    }
}

tutti_status tutti__image_resize(const uint8_t *from, int from_height, int from_width, uint8_t *to,
                                 int height, int width)
{
    size_t n_from = (size_t)from_height * (size_t)from_width, n = (size_t)height * (size_t)width;
    size_t n_middle = (size_t)from_height * (size_t)width;
    float *pixels = tutti__alloc((n_from + n_middle + n) * sizeof *pixels);
    float *middle, *result;
    resampling across = {from_height, from_width, width, (size_t)from_width, 1, (size_t)width, 1};
    resampling down = {width, from_height, height, 1, (size_t)width, 1, (size_t)width};

    if (!pixels)
        return TUTTI_ERR_MEMORY;
    middle = pixels + n_from;
    result = middle + n_middle;
    for (size_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < n_from; i++)
            pixels[i] = from[c * n_from + i];
        resample(&across, pixels, middle);
        resample(&down, middle, result);
        for (size_t i = 0; i < n; i++)
            to[c * n + i] = (uint8_t)(result[i] + 0.5f);
    }
    free(pixels);
    return TUTTI_OK;
}
