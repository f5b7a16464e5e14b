/* image.h -- image files as planes of bytes.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DATA_IMAGE_H
#define TUTTI_DATA_IMAGE_H

#include "base/base.h"

/* Has the name of an image file that is read: .jpg, .jpeg, .png, in any case. */
bool tutti__image_named(const char *file);
/* The size, from the header; ARG, FORMAT, IO as for load. */
tutti_status tutti__image_size(const char *path, int *height_p, int *width_p);
/* Decodes to red, green, blue planes [3,height,width]. FORMAT if the file is damaged or has another size. */
tutti_status tutti__image_load(const char *path, int height, int width, uint8_t *planes);
/* Scales planes, averaging over what each new pixel covers (a triangle filter, as wide as the shrinking needs). */
tutti_status tutti__image_resize(const uint8_t *from, int from_height, int from_width, uint8_t *to,
                                 int height, int width);

/* ---- For the decoders ------------------------------------------------------------------------------- */

/* A decoder reads `bytes` from memory and calls tutti__image_sized once it knows the size; if planes is not NULL then,
 * it goes on and fills them. */
typedef struct tutti__image {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t bytes;
    int height, width; /* expected, or 0: any */
    uint8_t *planes;   /* NULL: only the size is wanted */
} tutti__image;

/* Checks the size that the file tells, and keeps it. */
tutti_status tutti__image_sized(tutti__image *image, uint64_t height, uint64_t width);
/* Spreads a row of RGB triples over the planes. */
void tutti__image_put_row(tutti__image *image, int row, const uint8_t *rgb);

tutti_status tutti__jpeg_decode(tutti__image *image);
tutti_status tutti__png_decode(tutti__image *image);

#endif
