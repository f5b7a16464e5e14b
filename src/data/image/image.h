/* image.h -- image files as planes of bytes.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_IMAGE_H
#define TUTTI_DATA_IMAGE_H

#include "base/base.h"

/* Images with more pixels are rejected: this bounds what a malicious header makes us allocate, at 3 bytes per pixel (6 for
 * progressive JPEG). The largest phone cameras have 108 million pixels. */
#define TUTTI__MAX_PIXELS (1 << 27)
#define TUTTI__MAX_SIDE                                                                            \
    1000000 /* libpng's own limit; a row takes 19 bytes per pixel, and some time however short it is */

/* How an image gets the requested size. */
typedef enum tutti__fit {
    TUTTI__FIT_EXACT, /* it must have that size */
    TUTTI__FIT_MASKED, /* the same, for an image with a mask, and for the mask: no option scales them */
    TUTTI__FIT_STRETCH, /* all of it, stretched */
    TUTTI__FIT_CENTRE,  /* the largest centred part with the requested aspect ratio */
    TUTTI__FIT_RANDOM /* 8 to 100 % of its area, with an aspect ratio from 3:4 to 4:3: a function of `chance` and its size */
} tutti__fit;

typedef struct tutti__image_want {
    tutti__fit fit;
    int height, width;
    uint64_t chance;
} tutti__image_want;

/* Whether it has the name of a supported image file: .jpg, .jpeg, .png, in any case. */
bool tutti__image_named(const char *file);
/* The size, from the header. Errors: ARG, FORMAT, IO, as load. */
tutti_status tutti__image_size(const char *path, int *height_p, int *width_p);
/* Decodes to red, green, blue planes [3,height,width]; scaling averages over the area of each new pixel (a triangle filter, as
 * wide as the reduction needs). FORMAT if the file is damaged, too large, or (EXACT, MASKED) of another size. */
tutti_status tutti__image_load(const char *path, const tutti__image_want *want, uint8_t *planes);

/* Decodes a mask, a PNG of one number a pixel: the indices of a palette, or grey values of up to 8 bits, unscaled, [height,width].
 * FORMAT if it is damaged, of another kind or of another size. */
tutti_status tutti__image_mask(const char *path, int height, int width, uint8_t *mask);

/* ---- For the decoders ------------------------------------------------------------------------------- */

typedef struct tutti__scaler tutti__scaler;

/* A rectangle in an image, in its pixels. */
typedef struct tutti__rectangle {
    double top, left, height, width;
} tutti__rectangle;

/* A decoder reads `bytes` of `data`, and calls
 *   tutti__image_sized    once it knows the size; if planes is NULL, it stops there;
 *   tutti__image_decoding once it knows the size in which it will decode: 1 / shrink of the image's size (rounded up), with a
 *                         shrink of its choice, of 1, 2, 4, 8, up to most_shrink;
 *   tutti__image_put_row  with each row in that size, from the top, in image->row. */
typedef struct tutti__image {
    const char *path; /* for messages */
    const tutti__image_want *want;
    uint8_t *planes; /* NULL: only the size is wanted */
    bool is_mask;    /* one byte a pixel; only PNG */
    const uint8_t *data;
    size_t bytes;
    int height, width; /* in the file */
    int most_shrink;
    tutti__rectangle part;
    uint8_t *row;          /* RGB triples, or a mask's bytes */
    tutti__scaler *scaler; /* NULL: no scaling */
} tutti__image;

tutti_status tutti__image_sized(tutti__image *image, uint64_t height, uint64_t width);
tutti_status tutti__image_decoding(tutti__image *image, int height, int width);
void tutti__image_put_row(tutti__image *image, int row);

tutti_status tutti__jpeg_decode(tutti__image *image);
tutti_status tutti__png_decode(tutti__image *image);

/* ---- Scaling row by row: needs only the result's memory ------------------------------------------ */

/* Scales `part` of an image of from_height x from_width to height x width. NULL: out of memory, message set. */
tutti__scaler *tutti__scaler_new(const tutti__rectangle *part, int from_height, int from_width,
                                 int height, int width);
void tutti__scaler_free(tutti__scaler *scaler);
/* Row `y`; call it for all rows in order. */
void tutti__scaler_put_row(tutti__scaler *scaler, int y, const uint8_t *rgb);
/* Writes the result as planes. */
void tutti__scaler_finish(const tutti__scaler *scaler, uint8_t *planes);

#endif
