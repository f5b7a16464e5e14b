/* mix.c -- random erasing, mixup and cutmix, with torchvision's formulas.   SPDX-License-Identifier: MIT */
#include "data/augment.h"

#include "base/real.h"

#include <math.h>
#include <string.h>

#define MAX_RATIO 3.3 /* RandomErasing's defaults */
#define MIN_RATIO 0.3
#define MAX_SCALE 0.33
#define MIN_SCALE 0.02

tutti__box tutti__erasing_box(tutti_random *random, int height, int width)
{
    const double area = (double)height * (double)width;

    for (int attempt = 0; attempt < 10; attempt++) {
        const double erased = area * tutti__random_between(random, MIN_SCALE, MAX_SCALE);
        const double ratio =
            tutti__exp(tutti__random_between(random, tutti__log(MIN_RATIO), tutti__log(MAX_RATIO)));
        const double h = rint(sqrt(erased * ratio)), w = rint(sqrt(erased / ratio));
        tutti__box box;

        if (!(h < height && w < width))
            continue;
        box.top = tutti__random_below(random, height - (int)h + 1);
        box.left = tutti__random_below(random, width - (int)w + 1);
        box.bottom = box.top + (int)h;
        box.right = box.left + (int)w;
        return box;
    }
    return (tutti__box){0, 0, 0, 0};
}

tutti__box tutti__cutmix_box(int row, int column, int height, int width, double *lambda)
{
    const double half = 0.5 * sqrt(1 - *lambda);
    const int h = (int)(half * height), w = (int)(half * width);
    const tutti__box box = {.top = row > h ? row - h : 0,
                            .left = column > w ? column - w : 0,
                            .bottom = row + h < height ? row + h : height,
                            .right = column + w < width ? column + w : width};

    *lambda = 1 - (double)(box.bottom - box.top) * (double)(box.right - box.left) /
                      ((double)height * (double)width);
    return box;
}

static size_t sample_size(const tutti__mixed *m)
{
    return (size_t)m->planes * (size_t)m->height * (size_t)m->width;
}

static void mix_rows(float *a, const float *b, size_t n, double lambda)
{
    const float l = (float)lambda, rest = (float)(1 - lambda);

    for (size_t i = 0; i < n; i++)
        a[i] = l * a[i] + rest * b[i];
}

/* Rows of size numbers, from the last to the first, so that the one before is still as it was. */
static void mix_all(float *rows, size_t n, size_t size, float *scratch, double lambda)
{
    if (n == 0)
        return;
    memcpy(scratch, rows + (n - 1) * size, size * sizeof *rows);
    for (size_t i = n; i-- > 0;)
        mix_rows(rows + i * size, i > 0 ? rows + (i - 1) * size : scratch, size, lambda);
}

void tutti__mixup(const tutti__mixed *m, double lambda)
{
    mix_all(m->x, m->n, sample_size(m), m->scratch, lambda);
    mix_all(m->y, m->n, m->n_y, m->scratch, lambda);
}

static void copy_box(const tutti__mixed *m, float *to, const float *from, tutti__box box)
{
    const size_t width = (size_t)m->width, plane = (size_t)m->height * width;

    for (int c = 0; c < m->planes; c++)
        for (int i = box.top; i < box.bottom && box.left < box.right; i++) {
            const size_t at = (size_t)c * plane + (size_t)i * width + (size_t)box.left;

            memcpy(to + at, from + at, (size_t)(box.right - box.left) * sizeof *to);
        }
}

void tutti__cutmix(const tutti__mixed *m, tutti__box box, double lambda)
{
    const size_t size = sample_size(m);

    if (m->n == 0)
        return;
    memcpy(m->scratch, m->x + (m->n - 1) * size, size * sizeof *m->x);
    for (size_t i = m->n; i-- > 0;)
        copy_box(m, m->x + i * size, i > 0 ? m->x + (i - 1) * size : m->scratch, box);
    mix_all(m->y, m->n, m->n_y, m->scratch, lambda);
}

void tutti__mix(const tutti_augment_opts *o, tutti_random *random, const tutti__mixed *m)
{
    const bool is_mixup = o->mixup > 0 && (o->cutmix == 0 || tutti__random_below(random, 2) == 0);
    double lambda = tutti__random_beta(random, (double)(is_mixup ? o->mixup : o->cutmix));
    int row, column;
    tutti__box box;

    if (is_mixup) {
        tutti__mixup(m, lambda);
        return;
    }
    row = tutti__random_below(random, m->height);
    column = tutti__random_below(random, m->width);
    box = tutti__cutmix_box(row, column, m->height, m->width, &lambda);
    tutti__cutmix(m, box, lambda);
}
