/* fingerprint.c -- of tensors [N,C,H,W] in oneDNN's layouts, without a row-major copy.   SPDX-License-Identifier: MIT
 *
 * A piece of some channels and pixels at a time is transposed, in the cache, into rows of neighbours. */
#include "tensor/kernel/onednn/onednn_state.h"

enum { CHANNELS = 16, PIXELS = 512, SQUARE = 4, LAZY = 1 << 14 };

typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));

/* SQUARE channels of SQUARE pixels. */
static void transpose_square(uint32_t *to, int64_t row, const uint32_t *from, int64_t step)
{
    const four a = *(const four *)from, b = *(const four *)(from + step);
    const four c = *(const four *)(from + 2 * step), d = *(const four *)(from + 3 * step);
    const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const four cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    *(four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(four *)(to + row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(four *)(to + 2 * row) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(four *)(to + 3 * row) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

/* A row for each channel, one behind the other. */
static void transpose_words(uint32_t *to, const uint32_t *from, int64_t step, int64_t channels,
                            int64_t pixels)
{
    int64_t c = 0;

    for (; c + SQUARE <= channels; c += SQUARE) {
        int64_t p = 0;

        for (; p + SQUARE <= pixels; p += SQUARE)
            transpose_square(to + c * pixels + p, pixels, from + p * step + c, step);
        for (; p < pixels; p++)
            for (int64_t k = c; k < c + SQUARE; k++)
                to[k * pixels + p] = from[p * step + k];
    }
    for (; c < channels; c++)
        for (int64_t p = 0; p < pixels; p++)
            to[c * pixels + p] = from[p * step + c];
}

static void transpose_halves(uint16_t *to, const uint16_t *from, int64_t step, int64_t channels,
                             int64_t pixels)
{
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < channels; c++)
            to[c * pixels + p] = from[p * step + c];
}

typedef struct piece {
    const char *from; /* channel `channel` of pixel `pixel` of an image */
    int64_t image, channel, pixel, channels, pixels;
} piece;

static void add_piece(tutti__fingerprint_sums *sums, const tutti__onednn_view *v, const piece *of)
{
    const size_t size = tutti_dtype_size(sums->dtype);
    const int64_t n = of->pixels == v->s ? of->channels : 1;
    uint32_t rows[CHANNELS * PIXELS];

    if (size == sizeof(uint32_t))
        transpose_words(rows, (const uint32_t *)of->from, v->step, of->channels, of->pixels);
    else
        transpose_halves((uint16_t *)rows, (const uint16_t *)of->from, v->step, of->channels,
                         of->pixels);
    /* rows of whole images are neighbours */
    for (int64_t c = 0; c < of->channels; c += n)
        tutti__fingerprint_add(sums, (const char *)rows + (size_t)(c * of->pixels) * size,
                               (size_t)(n * of->pixels),
                               (size_t)((of->image * v->c + of->channel + c) * v->s + of->pixel));
}

/* Pixels of a block of v->inner channels: `of` without the channels. */
static void add_block(tutti__fingerprint_sums *sums, const tutti__onednn_view *v, piece of)
{
    const size_t bytes = CHANNELS * tutti_dtype_size(sums->dtype);
    const int64_t in_block = of.channel + v->inner < v->c ? of.channel + v->inner : v->c;

    for (; of.channel < in_block; of.channel += CHANNELS, of.from += bytes) {
        of.channels = in_block - of.channel < CHANNELS ? in_block - of.channel : CHANNELS;
        add_piece(sums, v, &of);
    }
}

static void add_blocks(tutti__fingerprint_sums *sums, const tutti__onednn_view *v,
                       const tutti_tensor *t, int64_t image, int64_t pixels)
{
    const size_t size = tutti_dtype_size(t->dtype);
    piece of = {.image = image};
    float lazy[LAZY];

    for (int64_t b = 0; b * v->inner < v->c; b++)
        for (of.pixel = 0; of.pixel < v->s; of.pixel += pixels) {
            const int64_t at = image * v->image + b * v->block + of.pixel * v->step;

            of.channel = b * v->inner;
            of.pixels = v->s - of.pixel < pixels ? v->s - of.pixel : pixels;
            of.from = t->data ? (const char *)t->data + (size_t)at * size : (const char *)lazy;
            if (!t->data)
                t->lazy->read(t, at, of.pixels * v->step, lazy);
            add_block(sums, v, of);
        }
}

bool tutti__onednn_fingerprint(tutti__fingerprint_sums *sums, const tutti_tensor *t)
{
    const size_t size = tutti_dtype_size(t->dtype);
    tutti__onednn_view v;
    int64_t pixels = PIXELS;

    if (!t->layout || !tutti__onednn_view_of(t->shape, t->layout, &v) || v.step < v.inner ||
        (size != sizeof(uint32_t) && size != sizeof(uint16_t)))
        return false;
    if (!t->data && LAZY / v.step < pixels)
        pixels = LAZY / v.step;
    if (pixels == 0)
        return false;
    for (int64_t image = 0; image < v.n; image++)
        add_blocks(sums, &v, t, image, pixels);
    return true;
}
