/* pixel_shuffle.c -- channels as pixels, and back.   SPDX-License-Identifier: MIT
 *   pixel_shuffle    x [..,C r r,H,W] -> y [..,C,H r,W r]
 *   pixel_unshuffle  x [..,C,H r,W r] -> y [..,C r r,H,W] */
#include "tensor/move.h"

#include <string.h>

static tutti_status check_image(const tutti_op_args *p, int64_t r, tutti_dtype *dtype)
{
    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    if (p->sources[0]->shape.n < 3)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected [..,C,H,W]",
                           tutti__shape_text(p->sources[0]->shape));
    if (r < 1 || r > INT32_MAX)
        return tutti__fail(TUTTI_ERR_ARG, "the factor is %lld, expected at least 1", (long long)r);
    return TUTTI_OK;
}

static tutti_status shuffle_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const int64_t r = *(const int64_t *)p->attributes;
    int64_t *d;

    TUTTI_TRY(check_image(p, r, dtype));
    *y = p->sources[0]->shape;
    d = y->d + y->n - 3;
    if (d[0] % (r * r) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, expected a multiple of %lld channels, the factor's square",
                           tutti__shape_text(*y), (long long)(r * r));
    d[0] /= r * r;
    d[1] *= r;
    d[2] *= r;
    return TUTTI_OK;
}

static tutti_status unshuffle_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const int64_t r = *(const int64_t *)p->attributes;
    int64_t *d;

    TUTTI_TRY(check_image(p, r, dtype));
    *y = p->sources[0]->shape;
    d = y->d + y->n - 3;
    if (d[1] % r != 0 || d[2] % r != 0)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected a multiple of %lld rows and columns",
                           tutti__shape_text(*y), (long long)r);
    d[0] *= r * r;
    d[1] /= r;
    d[2] /= r;
    return TUTTI_OK;
}

/* Dimensions N, C, r, r, H, W: as they lie in [..,C r r,H,W], and in [..,C,H r,W r]. */
static void strides_of(tutti_shape large, int64_t r, int64_t *size, int64_t *channels,
                       int64_t *pixels)
{
    const int64_t *d = large.d + large.n - 3, h = d[1] / r, w = d[2] / r;
    const int64_t sizes[] = {1, d[0], r, r, h, w};
    const int64_t in_channels[] = {d[0] * r * r * h * w, r * r * h * w, r * h * w, h * w, w, 1};
    const int64_t in_pixels[] = {d[0] * r * r * h * w, r * r * h * w, r * w, 1, r * r * w, r};

    memcpy(size, sizes, sizeof sizes);
    for (int i = 0; i < large.n - 3; i++)
        size[0] *= large.d[i];
    memcpy(channels, in_channels, sizeof in_channels);
    memcpy(pixels, in_pixels, sizeof in_pixels);
}

static bool shuffle_block(const tutti_op_args *p, int i, tutti__block *b)
{
    b->n = 6;
    strides_of(p->shape, *(const int64_t *)p->attributes, b->size, b->src_stride, b->dst_stride);
    return i == 0;
}

static bool unshuffle_block(const tutti_op_args *p, int i, tutti__block *b)
{
    b->n = 6;
    strides_of(p->sources[0]->shape, *(const int64_t *)p->attributes, b->size, b->dst_stride,
               b->src_stride);
    return i == 0;
}

tutti_tensor *tutti_pixel_shuffle(tutti_tensor *x, int64_t upscale_factor)
{
    static const tutti__move_op op = {
        .name = "pixel_shuffle", .shape = shuffle_shape, .block = shuffle_block};

    return tutti__move_run(&op, &x, 1, &upscale_factor, sizeof upscale_factor);
}

tutti_tensor *tutti_pixel_unshuffle(tutti_tensor *x, int64_t downscale_factor)
{
    static const tutti__move_op op = {
        .name = "pixel_unshuffle", .shape = unshuffle_shape, .block = unshuffle_block};

    return tutti__move_run(&op, &x, 1, &downscale_factor, sizeof downscale_factor);
}
