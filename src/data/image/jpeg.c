/* jpeg.c -- JPEG through libjpeg-turbo, with its default (accurate) settings.   SPDX-License-Identifier: MIT
 *
 * libjpeg reports an error by a callback, which keeps the message and jumps out. Damage that libjpeg only warns of (it fills
 * the rest with grey) is an error here: a half grey image does not match its label. If the image is reduced to half or less,
 * libjpeg decodes at a lower resolution: a large photograph then costs little more than its Huffman decoding. */
#include "data/image/image.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

/* A scan of a few bytes takes as long as a whole image, and a file may have any number of scans. Encoders usually write about
 * ten, the most thorough ones fewer than twenty. */
#define MAX_SCANS 50

typedef struct decoder {
    struct jpeg_error_mgr errors; /* first: libjpeg passes its address */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    bool too_many_scans;
    tutti__image *image;
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

static void watch(j_common_ptr common)
{
    j_decompress_ptr jpeg = (j_decompress_ptr)common;
    decoder *d = (decoder *)common->err;

    if (jpeg->input_scan_number <= MAX_SCANS)
        return;
    d->too_many_scans = true;
    longjmp(d->jump, 1);
}

/* Runs under setjmp: failures jump back, or return an error. */
static tutti_status decode(decoder *d)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    tutti__image *image = d->image;

    jpeg_create_decompress(jpeg);
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, image->data, (unsigned long)image->bytes);
    jpeg_read_header(jpeg, TRUE);
    TUTTI_TRY(tutti__image_sized(image, jpeg->image_height, jpeg->image_width));
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s is a CMYK JPEG: only grey and RGB are read, convert it first",
                           image->path);
    if (!image->planes)
        return TUTTI_OK;
    jpeg->out_color_space = JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)image->most_shrink;
    jpeg_start_decompress(jpeg);
    TUTTI_TRY(tutti__image_decoding(image, (int)jpeg->output_height, (int)jpeg->output_width));
    while (jpeg->output_scanline < jpeg->output_height) {
        int y = (int)jpeg->output_scanline;

        if (jpeg_read_scanlines(jpeg, &image->row, 1) == 1)
            tutti__image_put_row(image, y);
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
    d.progress.progress_monitor = watch;
    if (!setjmp(d.jump))
        status = decode(&d);
    else if (d.too_many_scans)
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s is a JPEG of more than %d scans, each as slow as a whole image: "
                             "it is not read; `jpegtran -optimize` makes it one scan",
                             image->path, MAX_SCANS);
    else
        status =
            tutti__fail(TUTTI_ERR_FORMAT, "%s is a damaged JPEG file: %s", image->path, d.message);
    jpeg_destroy_decompress(&d.jpeg);
    return status;
}
