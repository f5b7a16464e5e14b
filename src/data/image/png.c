/* png.c -- PNG through libpng; converts every kind to 8-bit RGB.   SPDX-License-Identifier: MIT
 *
 * Grey is repeated, palettes are looked up, 16 bits are scaled to 8, and transparency is dropped (not blended), as
 * torchvision's image folder does it. */
#include "data/image/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct decoder {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    char message[128];
    tutti__image *image;
    size_t at;       /* bytes read */
    uint8_t *pixels; /* of an interlaced image, which is decoded in seven passes */
} decoder;

static void leave(png_structp png, const char *message)
{
    decoder *d = png_get_error_ptr(png);

    snprintf(d->message, sizeof d->message, "%s", message);
    longjmp(d->jump, 1);
}

static void warn(png_structp png, const char *message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    decoder *d = png_get_io_ptr(png);

    if (n > d->image->bytes - d->at)
        leave(png, "it ends too early");
    memcpy(to, d->image->data + d->at, n);
    d->at += n;
}

/* Decodes an interlaced image. */
static tutti_status decode_passes(decoder *d, int passes, size_t stride)
{
    tutti__image *image = d->image;

    d->pixels = malloc(stride * (size_t)image->height);
    if (!d->pixels)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to decode %s", image->path);
    for (int i = 0; i < passes; i++)
        for (int y = 0; y < image->height; y++)
            png_read_row(d->png, d->pixels + (size_t)y * stride, NULL);
    for (int y = 0; y < image->height; y++) {
        memcpy(image->row, d->pixels + (size_t)y * stride, stride);
        tutti__image_put_row(image, y);
    }
    return TUTTI_OK;
}

static tutti_status want_colours(const decoder *d)
{
    png_set_scale_16(d->png);
    png_set_expand(d->png);
    png_set_strip_alpha(d->png);
    png_set_gray_to_rgb(d->png);
    return TUTTI_OK;
}

/* A byte a pixel: an index or a grey value as it stands in the file. */
static tutti_status want_numbers(const decoder *d)
{
    const int kind = png_get_color_type(d->png, d->info);

    if ((kind != PNG_COLOR_TYPE_PALETTE && kind != PNG_COLOR_TYPE_GRAY) ||
        png_get_bit_depth(d->png, d->info) > 8)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s is not a mask: expected a PNG of grey values of up to 8 bits, or of "
                           "a palette, whose numbers are the classes",
                           d->image->path);
    png_set_packing(d->png);
    return TUTTI_OK;
}

/* Runs under setjmp: failures jump back, or return an error. */
static tutti_status decode(decoder *d)
{
    png_structp png = d->png;
    tutti__image *image = d->image;
    size_t stride;
    int passes;

    png_set_user_limits(png, TUTTI__MAX_PIXELS, TUTTI__MAX_PIXELS);
    png_set_read_fn(png, d, read_bytes);
    /* Skips texts, colour profiles and the like: there may be many, of up to 8 MB each when unpacked. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, d->info);
    TUTTI_TRY(tutti__image_sized(image, png_get_image_height(png, d->info),
                                 png_get_image_width(png, d->info)));
    if (!image->planes)
        return TUTTI_OK;
    TUTTI_TRY(image->is_mask ? want_numbers(d) : want_colours(d));
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, d->info);
    stride = png_get_rowbytes(png, d->info);
    if (stride != (image->is_mask ? 1 : 3) * (size_t)image->width)
        return tutti__fail(TUTTI_ERR_INTERNAL, "%s: libpng gives rows of %zu bytes for %d pixels",
                           image->path, stride, image->width);
    TUTTI_TRY(tutti__image_decoding(image, image->height, image->width));
    if (passes > 1)
        TUTTI_TRY(decode_passes(d, passes, stride));
    for (int y = 0; passes == 1 && y < image->height; y++) {
        png_read_row(png, image->row, NULL);
        tutti__image_put_row(image, y);
    }
    png_read_end(png, NULL);
    return TUTTI_OK;
}

tutti_status tutti__png_decode(tutti__image *image)
{
    decoder d = {.image = image};
    tutti_status status;

    if (setjmp(d.jump)) {
        status =
            tutti__fail(TUTTI_ERR_FORMAT, "%s is a damaged PNG file: %s", image->path, d.message);
    } else {
        d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, leave, warn);
        d.info = d.png ? png_create_info_struct(d.png) : NULL;
        status = d.info ? decode(&d)
                        : tutti__fail(TUTTI_ERR_MEMORY, "no memory to decode %s", image->path);
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    free(d.pixels);
    return status;
}
