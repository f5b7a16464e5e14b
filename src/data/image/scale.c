/* scale.c -- scales a part of an image row by row.   SPDX-License-Identifier: MIT
 *
 * The filter is a triangle over each new pixel, as wide as the reduction needs, cut at the part's edges: as bilinear filters
 * with antialiasing. It is separable: a row is first scaled horizontally, then added, with weights, to the result's rows that
 * it contributes to. A pixel has a fourth, unused number, so that it is one vector. */
#include "data/image/image.h"

#include <math.h>
#include <stdlib.h>

/* For one new pixel, or row: the old ones that contribute to it, and their weights. */
typedef struct taps {
    int first, n;
    float *weights; /* they sum to 1 */
} taps;

typedef struct pixel {
    float v[4];
} pixel;

struct tutti__scaler {
    int height, width;
    taps *rows, *columns;
    float *weights;
    int first_column, n_columns; /* of the old row, that contribute to any new pixel */
    int next;                    /* rows of the result before it are done */
    pixel *from, *across;        /* the old row; scaled horizontally */
    pixel *sums;                 /* the result */
};

/* The taps of n new pixels over [begin, begin + length) of `limit` old ones. */
static float *find_taps(taps *t, int n, double begin, double length, int limit, float *weights)
{
    double scale = length / n, reach = scale > 1 ? scale : 1;
    int low = (int)floor(begin + 1e-6), high = (int)ceil(begin + length - 1e-6) - 1;

    low = low < 0 ? 0 : low > limit - 1 ? limit - 1 : low;
    high = high > limit - 1 ? limit - 1 : high < low ? low : high;
    for (int i = 0; i < n; i++) {
        double centre = begin + (i + 0.5) * scale - 0.5, total = 0;
        int first = (int)ceil(centre - reach), last = (int)floor(centre + reach);

        first = first < low ? low : first > high ? high : first;
        last = last > high ? high : last < first ? first : last;
        t[i] = (taps){first, last - first + 1, weights};
        for (int k = first; k <= last; k++) {
            double weight = 1 - fabs(k - centre) / reach;

            weights[k - first] = weight > 0 ? (float)weight : 0;
            total += (double)weights[k - first];
        }
        if (total <= 0) { /* beyond an edge: that edge's pixel */
            weights[0] = 1;
            total = 1;
        }
        for (int k = 0; k < t[i].n; k++)
            weights[k] = (float)((double)weights[k] / total);
        weights += t[i].n;
    }
    return weights;
}

/* The most weights that find_taps may write. */
static size_t most_weights(int n, double length)
{
    double scale = length / n, reach = scale > 1 ? scale : 1;

    return (size_t)n * ((size_t)(2 * reach) + 2);
}

tutti__scaler *tutti__scaler_new(const tutti__rectangle *part, int from_height, int from_width,
                                 int height, int width)
{
    tutti__scaler *s = tutti__alloc(sizeof *s);
    size_t n_weights = most_weights(height, part->height) + most_weights(width, part->width);
    const taps *last;
    float *next;

    if (!s)
        return NULL;
    s->height = height;
    s->width = width;
    s->rows = tutti__alloc((size_t)height * sizeof *s->rows);
    s->columns = tutti__alloc((size_t)width * sizeof *s->columns);
    s->weights = tutti__alloc(n_weights * sizeof *s->weights);
    s->from = tutti__alloc((size_t)from_width * sizeof *s->from);
    s->across = tutti__alloc((size_t)width * sizeof *s->across);
    s->sums = tutti__alloc((size_t)height * (size_t)width * sizeof *s->sums);
    if (!s->rows || !s->columns || !s->weights || !s->from || !s->across || !s->sums) {
        tutti__scaler_free(s);
        return NULL;
    }
    next = find_taps(s->rows, height, part->top, part->height, from_height, s->weights);
    find_taps(s->columns, width, part->left, part->width, from_width, next);
    last = &s->columns[width - 1];
    s->first_column = s->columns[0].first;
    s->n_columns = last->first + last->n - s->first_column;
    return s;
}

void tutti__scaler_free(tutti__scaler *s)
{
    if (!s)
        return;
    free(s->rows);
    free(s->columns);
    free(s->weights);
    free(s->from);
    free(s->across);
    free(s->sums);
    free(s);
}

TUTTI__CLONES static void widen(pixel *to, const uint8_t *rgb, int n)
{
    for (int x = 0; x < n; x++)
        for (int c = 0; c < 3; c++)
            to[x].v[c] = rgb[3 * x + c];
}

TUTTI__CLONES static void scale_across(pixel *to, const pixel *from, const taps *columns, int n)
{
    for (int j = 0; j < n; j++) {
        const pixel *p = from + columns[j].first;
        pixel sum = {{0}};

        for (int k = 0; k < columns[j].n; k++)
            for (int c = 0; c < 4; c++)
                sum.v[c] += columns[j].weights[k] * p[k].v[c];
        to[j] = sum;
    }
}

TUTTI__CLONES static void add_row(float *sums, const float *row, float weight, int n)
{
    for (int i = 0; i < n; i++)
        sums[i] += weight * row[i];
}

void tutti__scaler_put_row(tutti__scaler *s, int y, const uint8_t *rgb)
{
    bool scaled = false;

    for (int i = s->next; i < s->height && s->rows[i].first <= y; i++) {
        const taps *t = &s->rows[i];

        if (y >= t->first + t->n)
            continue;
        if (!scaled) {
            widen(s->from + s->first_column, rgb + 3 * (size_t)s->first_column, s->n_columns);
            scale_across(s->across, s->from, s->columns, s->width);
            scaled = true;
        }
        add_row(s->sums[(size_t)i * (size_t)s->width].v, s->across->v, t->weights[y - t->first],
                4 * s->width);
    }
    while (s->next < s->height && s->rows[s->next].first + s->rows[s->next].n <= y + 1)
        s->next++;
}

TUTTI__CLONES static void round_sums(const tutti__scaler *s, size_t n, uint8_t *planes)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            planes[c * n + i] = (uint8_t)(s->sums[i].v[c] + 0.5f);
}

void tutti__scaler_finish(const tutti__scaler *s, uint8_t *planes)
{
    round_sums(s, (size_t)s->height * (size_t)s->width, planes);
}
