/* jpeg.c -- JPEG through libjpeg-turbo, with its default (accurate) settings.   SPDX-License-Identifier: MIT
 *
 * libjpeg leaves an error by calling back; the callback keeps the message and jumps out. Damage that libjpeg would only
 * warn of (it fills the rest with grey) is an error here: a half grey picture is not what its label says. */
#include "data/image/image.h"

#include "data/dataset.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

typedef struct decoder {
    struct jpeg_error_mgr errors; /* first: libjpeg hands us its address */
    struct jpeg_decompress_struct jpeg;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    tutti__image *image;
    uint8_t row[3 * TUTTI__MAX_SIDE];
} decoder;

static void leave(j_common_ptr jpeg)
{
    decoder *d = (decoder *)jpeg->err;

    jpeg->err->format_message(jpeg, d->message);
    longjmp(d->jump, 1);
}

static void warn(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;

    if (level < 0 &&
        (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
        leave(jpeg);
}

/* Between setjmp and the end: whatever fails jumps back, or says so. */
static tutti_status decode(decoder *d)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    JSAMPROW row = d->row;

    jpeg_create_decompress(jpeg);
    jpeg_mem_src(jpeg, d->image->data, (unsigned long)d->image->bytes);
    jpeg_read_header(jpeg, TRUE);
    TUTTI_TRY(tutti__image_sized(d->image, jpeg->image_height, jpeg->image_width));
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s is a CMYK JPEG: only grey and RGB are read, convert it first",
                           d->image->path);
    if (!d->image->planes)
        return TUTTI_OK;
    jpeg->out_color_space = JCS_RGB;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        int y = (int)jpeg->output_scanline;

        if (jpeg_read_scanlines(jpeg, &row, 1) == 1)
            tutti__image_put_row(d->image, y, d->row);
    }
    jpeg_finish_decompress(jpeg);
    return TUTTI_OK;
}

tutti_status tutti__jpeg_decode(tutti__image *image)
{
    decoder d = {.image = image};
    tutti_status status;

    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = leave;
    d.errors.emit_message = warn;
    if (setjmp(d.jump))
        status =
            tutti__fail(TUTTI_ERR_FORMAT, "%s is a damaged JPEG file: %s", image->path, d.message);
    else
        status = decode(&d);
    jpeg_destroy_decompress(&d.jpeg);
    return status;
}
