/* jitter.c -- brightness, contrast and saturation of bytes.   SPDX-License-Identifier: MIT
 *
 * torchvision's formulas: factor x + (1 - factor) y in F32, limited to 0..255 and cut off to a byte, where y is 0 (brightness), the
 * mean of the grey image (contrast), or the grey image (saturation). */
#include "data/augment.h"

static uint8_t blend(float x, float y, float factor, float rest)
{
    const float sum = factor * x + rest * y;

    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static uint8_t grey_of(const uint8_t *image, size_t n, size_t i)
{
    return (uint8_t)(0.2989f * (float)image[i] + 0.587f * (float)image[n + i] +
                     0.114f * (float)image[2 * n + i]);
}

/* Each byte becomes its blend with y. */
static void blend_all(uint8_t *image, size_t count, float y, double factor)
{
    uint8_t table[256];

    for (int byte = 0; byte < 256; byte++)
        table[byte] = blend((float)byte, y, (float)factor, (float)(1 - factor));
    for (size_t i = 0; i < count; i++)
        image[i] = table[image[i]];
}

void tutti__adjust_brightness(uint8_t *image, int channels, size_t n, double factor)
{
    blend_all(image, (size_t)channels * n, 0, factor);
}

void tutti__adjust_contrast(uint8_t *image, int channels, size_t n, double factor)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += channels == 3 ? grey_of(image, n, i) : image[i];
    blend_all(image, (size_t)channels * n, (float)((double)sum / (double)n), factor);
}

void tutti__adjust_saturation(uint8_t *image, int channels, size_t n, double factor)
{
    const float f = (float)factor, rest = (float)(1 - factor);

    for (size_t i = 0; channels == 3 && i < n; i++) {
        const float grey = (float)grey_of(image, n, i);

        for (size_t c = 0; c < 3; c++)
            image[c * n + i] = blend((float)image[c * n + i], grey, f, rest);
    }
}

void tutti__color_jitter(const tutti_augment_opts *o, tutti_random *random, uint8_t *image,
                         int channels, size_t n)
{
    static void (*const adjust[])(uint8_t *, int, size_t, double) = {
        tutti__adjust_brightness, tutti__adjust_contrast, tutti__adjust_saturation};
    const double strength[] = {(double)o->brightness, (double)o->contrast, (double)o->saturation};
    double factor[3];
    int order[] = {0, 1, 2};

    for (int i = 2; i > 0; i--) {
        const int j = tutti__random_below(random, i + 1), last = order[i];

        order[i] = order[j];
        order[j] = last;
    }
    for (int i = 0; i < 3; i++)
        factor[i] =
            tutti__random_between(random, strength[i] < 1 ? 1 - strength[i] : 0, 1 + strength[i]);
    for (int i = 0; i < 3; i++)
        if (strength[order[i]] > 0)
            adjust[order[i]](image, channels, n, factor[order[i]]);
}
