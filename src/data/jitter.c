/* jitter.c -- brightness, contrast, saturation and hue of bytes.   SPDX-License-Identifier: MIT
 *
 * torchvision's formulas: factor x + (1 - factor) y in F32, limited to 0..255 and cut off to a byte, where y is 0 (brightness), the
 * mean of the grey image (contrast), or the grey image (saturation). Hue: a turn in HSV, in F32 from 0 to 1. */
#include "data/augment.h"

#include <math.h>

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

static float largest(float a, float b)
{
    return a > b ? a : b;
}

/* The hue of a colour from 0 to 1, where red is 0, green 1/3 and blue 2/3; its greatest part and their spread are given. */
static float hue_of(const float rgb[3], float high, float spread)
{
    const float divisor = spread > 0 ? spread : 1;
    const float r = (high - rgb[0]) / divisor, g = (high - rgb[1]) / divisor,
                b = (high - rgb[2]) / divisor;
    const float sixths = rgb[0] == high ? b - g : rgb[1] == high ? 2 + r - b : 4 + g - r;

    return fmodf(sixths / 6 + 1, 1);
}

static float limited(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static void colour_of(float hue, float saturation, float value, float rgb[3])
{
    const float sector = floorf(hue * 6), f = hue * 6 - sector;
    const float p = limited(value * (1 - saturation)), q = limited(value * (1 - saturation * f)),
                t = limited(value * (1 - saturation * (1 - f)));
    const float all[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                             {p, q, value}, {t, p, value}, {value, p, q}};

    for (int c = 0; c < 3; c++)
        rgb[c] = all[(int)sector % 6][c];
}

void tutti__adjust_hue(uint8_t *image, int channels, size_t n, double turn)
{
    for (size_t i = 0; channels == 3 && i < n; i++) {
        float rgb[3], high, spread, hue;

        for (size_t c = 0; c < 3; c++)
            rgb[c] = (float)image[c * n + i] / 255;
        high = largest(largest(rgb[0], rgb[1]), rgb[2]);
        spread = high + largest(largest(-rgb[0], -rgb[1]), -rgb[2]);
        hue = fmodf(hue_of(rgb, high, spread) + (float)turn, 1);
        colour_of(hue < 0 ? hue + 1 : hue, spread / (spread > 0 ? high : 1), high, rgb);
        for (size_t c = 0; c < 3; c++)
            image[c * n + i] = (uint8_t)(rgb[c] * (256 - 1e-3f));
    }
}

void tutti__color_jitter(const tutti_augment_opts *o, tutti_random *random, uint8_t *image,
                         int channels, size_t n)
{
    static void (*const adjust[])(uint8_t *, int, size_t,
                                  double) = {tutti__adjust_brightness, tutti__adjust_contrast,
                                             tutti__adjust_saturation, tutti__adjust_hue};
    const double strength[] = {(double)o->brightness, (double)o->contrast, (double)o->saturation,
                               (double)o->hue};
    double factor[4];
    int order[] = {0, 1, 2, 3};

    for (int i = 3; i > 0; i--) {
        const int j = tutti__random_below(random, i + 1), last = order[i];

        order[i] = order[j];
        order[j] = last;
    }
    for (int i = 0; i < 3; i++)
        factor[i] =
            tutti__random_between(random, strength[i] < 1 ? 1 - strength[i] : 0, 1 + strength[i]);
    factor[3] = tutti__random_between(random, -strength[3], strength[3]);
    for (int i = 0; i < 4; i++)
        if (strength[order[i]] > 0)
            adjust[order[i]](image, channels, n, factor[order[i]]);
}
