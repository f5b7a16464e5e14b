/* winograd_tiles.h -- a convolution's tiles: their order, and their transforms to and from points.   SPDX-License-Identifier: MIT
 *
 * Each dimension of a tile has one of the sizes of transforms.h, which are constants where they are used, so that all loops are
 * unrolled. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_WINOGRAD_TILES_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_WINOGRAD_TILES_H

#include "tensor/kernel/vector/isa/transforms.h"

#include <math.h>

/* The convolution from the view of winograd.c: `in` is x or dy, `out` is y or dx. */
typedef struct winograd {
    int64_t n, in_c, out_c, in_h, in_w, out_h, out_w;
    int64_t w_c;          /* channels of x that have weights; the others are zeros */
    bool turned, strided; /* turned: from y to x; strided: of stride 2 */
    int points;           /* per dimension: 6 or 9 */
    int tile, step;       /* pixels of `out` per tile, and of `in` from tile to tile */
    int last_h,
        last_w; /* pixels of the last tile of a column, of a row: 3 or 2; 0: as of the others */
    int64_t padding, tiles, part;
    int64_t whole_h, whole_w; /* its other tiles */
    int64_t group;            /* images whose tiles lie kind by kind */
    int64_t kinds[5];         /* an image's tiles of the kinds before; [KINDS]: all */
    bool by_panels;
    int64_t
        sums; /* tiles whose products a weight gradient adds up before those of another point with the same weight */
    int64_t v_stride, m_stride, u_stride; /* from point to point, in floats; not powers of two */
    const float *in, *w, *bias;           /* bias NULL: none */
    const tutti__channel_norm *norm;      /* the source is this norm of `in`; NULL: `in` itself */
    float *out, *u, *v, *work;            /* work: v and m of each thread; by panels m and u */
    bool streams;                         /* out is stored non-temporally */
    int64_t work_size;
} winograd;

/* Channels of out, and how many m has of a tile. */
typedef struct channels {
    int64_t from, to, all;
} channels;

static inline channels all_channels(const winograd *t)
{
    return (channels){0, t->out_c, t->out_c};
}

static inline channels panel_at(const winograd *t, int64_t i)
{
    const int64_t from = i * 2 * W, to = from + 2 * W < t->out_c ? from + 2 * W : t->out_c;

    return (channels){from, to, to - from};
}

static inline int64_t panels_of(const winograd *t)
{
    return (t->out_c + 2 * W - 1) / (2 * W);
}

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

/* Whether a tile is the last, shorter one of its row and of its column. In this order those with a given point follow each
 * other. */
enum { LAST_OF_ROW, NOT_LAST, LAST_OF_COLUMN, LAST_OF_BOTH, KINDS };

static inline bool is_last_of_row(int kind)
{
    return kind == LAST_OF_ROW || kind == LAST_OF_BOTH;
}

static inline bool is_last_of_column(int kind)
{
    return kind == LAST_OF_COLUMN || kind == LAST_OF_BOTH;
}

/* The tiles of one kind in a group of images. */
typedef struct run {
    int kind;
    int64_t begin, end, image; /* image: the group's first */
} run;

typedef struct place {
    int64_t n, h, w; /* the tile's image, and its row and column among the image's tiles */
} place;

/* The first image of the group that a tile is in, and how many there are. */
static inline int64_t group_at(const winograd *t, int64_t tile, int64_t *images_p)
{
    const int64_t image = tile / (t->group * t->kinds[KINDS]) * t->group;

    *images_p = image + t->group < t->n ? t->group : t->n - image;
    return image;
}

static inline run run_at(const winograd *t, int64_t tile)
{
    int64_t images;
    const int64_t image = group_at(t, tile, &images), begin = image * t->kinds[KINDS];
    int kind = 0;

    while (tile - begin >= images * t->kinds[kind + 1])
        kind++;
    return (run){kind, begin + images * t->kinds[kind], begin + images * t->kinds[kind + 1], image};
}

static inline place place_in(const winograd *t, const run *r, int64_t tile)
{
    const int64_t tiles = t->kinds[r->kind + 1] - t->kinds[r->kind]; /* of an image */
    const int64_t number = tile - r->begin, of_image = number % tiles;
    const int64_t of_row = is_last_of_row(r->kind) ? 1 : t->whole_w;

    return (place){r->image + number / tiles,
                   is_last_of_column(r->kind) ? t->whole_h : of_image / of_row,
                   is_last_of_row(r->kind) ? t->whole_w : of_image % of_row};
}

static inline place place_of(const winograd *t, int64_t tile)
{
    const run r = run_at(t, tile);

    return place_in(t, &r, tile);
}

/* Tiles that have a point, of one group and among some. */
typedef struct range {
    int64_t begin, end, next; /* next: of the next group */
} range;

/* Whether a dimension's last tile, of 3 or 2 pixels, has no such point. */
static inline bool lacks(int last, int point)
{
    return last != 0 && (point == 0 || (last == 2 && point == 5));
}

/* Those with point (i, j) among [tile, end) and in the group of `tile`. */
static inline range having(const winograd *t, int i, int j, int64_t tile, int64_t end)
{
    int64_t images;
    const int64_t group = group_at(t, tile, &images) * t->kinds[KINDS];
    const int first = lacks(t->last_w, j) ? NOT_LAST : LAST_OF_ROW;
    const int after = lacks(t->last_h, i)   ? LAST_OF_COLUMN
                      : lacks(t->last_w, j) ? LAST_OF_BOTH
                                            : KINDS;
    const range r = {group + images * t->kinds[first], group + images * t->kinds[after],
                     group + images * t->kinds[KINDS]};

    return (range){r.begin > tile ? r.begin : tile, r.end < end ? r.end : end,
                   r.next < end ? r.next : end};
}

/* An image's planes of W channels each, and the positions of tiles' patches in them. */
typedef struct planes {
    const float *data;
    int64_t channels, height, width;
    int64_t step, padding;
    const tutti__channel_norm *norm; /* NULL: none */
} planes;

/* A norm of W channels. */
typedef struct vec_norm {
    vec mean, scale, bias, least;
} vec_norm;

static inline vec_norm norm_at(const tutti__channel_norm *n, int64_t c)
{
    return (vec_norm){*(const vec_at *)(n->mean + c), *(const vec_at *)(n->scale + c),
                      *(const vec_at *)(n->bias + c), (vec){0} - (n->relu ? 0 : INFINITY)};
}

/* The same arithmetic as in runs.c. */
INLINE vec normalised(vec v, const vec_norm *n)
{
    const vec u = (v - n->mean) * n->scale + n->bias;

    return (vec)(~(u < n->least) & (veci)u);
}

static inline const float *plane_of(const planes *x, int64_t n, int64_t c)
{
    return x->data + (n * x->channels + c) * x->height * x->width;
}

/* Prefetches the tile's pixels of W channels. */
INLINE void prefetch(const planes *x, place at, int64_t c)
{
    const float *from = plane_of(x, at.n, c) + (at.h * x->width + at.w) * x->step * W;

    for (int64_t i = 0; i < x->step; i++)
        for (int64_t j = 0; j < x->step * W; j += 16)
            __builtin_prefetch(from + i * x->width * W + j, 0, 2);
}

INLINE vec load_pixel(const float *from, const vec_norm *n)
{
    const vec v = *(const vec_at *)from;

    return n ? normalised(v, n) : v;
}

/* patch[0 .. size) = a column of the image from row h on, normalised if n is not NULL; zero outside */
INLINE void load_column(vec *patch, const planes *x, const float *plane, int64_t h, int64_t w,
                        int size, const vec_norm *n)
{
    const float *from = plane + (h * x->width + w) * W;

    if (w < 0 || w >= x->width)
        for (int i = 0; i < size; i++)
            patch[i] = (vec){0};
    else if (h >= 0 && h + size <= x->height)
        for (int i = 0; i < size; i++)
            patch[i] = load_pixel(from + i * x->width * W, n);
    else
        for (int i = 0; i < size; i++)
            if (h + i >= 0 && h + i < x->height)
                patch[i] = load_pixel(from + i * x->width * W, n);
            else
                patch[i] = (vec){0};
}

typedef void transform(vec *o, const vec *i);

/* One dimension of a tile's transform: from or to its pixels, and its points [begin, end). */
typedef struct axis {
    int pixels, begin, end;
    transform *f;
} axis;

/* Stride 1: of tiles of 4 pixels, of 3, of 2. */
static const axis inputs_1[] = {
    {6, 0, 6, input_1}, {5, 1, 6, input_1_of_3}, {4, 1, 5, input_1_of_2}};
static const axis outputs_1[] = {
    {4, 0, 6, output_1}, {3, 1, 6, output_1_of_3}, {2, 1, 5, output_1_of_2}};
static const axis gradients_1[] = {
    {4, 0, 6, gradient_1}, {3, 1, 6, gradient_1_of_3}, {2, 1, 5, gradient_1_of_2}};
static const axis inputs_2[] = {{9, 0, 9, input_2}};
static const axis spread_inputs_2[] = {{5, 0, 9, spread_input_2}};
static const axis outputs_2[] = {{4, 0, 9, output_2}};
static const axis spread_outputs_2[] = {{8, 0, 9, spread_output_2}};
static const axis gradients_2[] = {{4, 0, 9, gradient_2}};

/* Patches of W channels of x, and where their points go: to[point][tile - first][channels] */
typedef struct patches {
    const winograd *t;
    const planes *x;
    const vec_norm *norm; /* NULL: none */
    float *to;
    int64_t c, first, last, stride;
    int points; /* per dimension */
} patches;

INLINE void transform_patch(const patches *p, place at, float *to, axis high, axis wide)
{
    const planes *x = p->x;
    const float *plane = plane_of(x, at.n, p->c);
    vec column[9], y[9 * 9], z[9];

    for (int j = 0; j < wide.pixels; j++) {
        load_column(column, x, plane, at.h * x->step - x->padding, at.w * x->step - x->padding + j,
                    high.pixels, p->norm);
        high.f(z, column);
        for (int i = high.begin; i < high.end; i++)
            y[i * 9 + j] = z[i];
    }
    for (int i = high.begin; i < high.end; i++) {
        wide.f(z, y + i * 9);
        for (int j = wide.begin; j < wide.end; j++)
            *(vec *)(to + (i * p->points + j) * p->stride) = z[j];
    }
}

/* Those of the run's tiles [tile, end) */
INLINE void transform_run(const patches *p, const run *r, int64_t tile, int64_t end, axis high,
                          axis wide)
{
    const int64_t part = p->last - p->first, all = p->x->channels;

    for (; tile < end; tile++) {
        const place at = place_in(p->t, r, tile);

        if (p->c + W < all)
            prefetch(p->x, at, p->c + W);
        else if (tile + part < p->t->tiles)
            prefetch(p->x, place_of(p->t, tile + part), 0);
        transform_patch(p, at, p->to + (tile - p->first) * all + p->c, high, wide);
    }
}

/* axes: the sizes, constants, so that the loops of each call are unrolled */
INLINE void transform_run_of(const patches *p, const run *r, int64_t tile, int64_t end, axis high,
                             const axis *axes)
{
    const int last = is_last_of_row(r->kind) ? p->t->last_w : 0;

    if (p->points == 6 && last == 3)
        transform_run(p, r, tile, end, high, axes[1]);
    else if (p->points == 6 && last == 2)
        transform_run(p, r, tile, end, high, axes[2]);
    else
        transform_run(p, r, tile, end, high, axes[0]);
}

/* The transformed patches of tiles [first, last). normed: whether x->norm is not NULL. */
INLINE void transform_patches(const winograd *t, const planes *x, int64_t first, int64_t last,
                              float *to, int64_t stride, const axis *axes, int points, bool normed)
{
    vec_norm n;
    patches p = {t, x, normed ? &n : NULL, to, 0, first, last, stride, points};

    for (; p.c < x->channels; p.c += W) {
        if (normed)
            n = norm_at(x->norm, p.c);
        for (int64_t tile = first, end; tile < last; tile = end) {
            const run r = run_at(t, tile);
            const int size = is_last_of_column(r.kind) ? t->last_h : 0;

            end = r.end < last ? r.end : last;
            if (points == 6 && size == 3)
                transform_run_of(&p, &r, tile, end, axes[1], axes);
            else if (points == 6 && size == 2)
                transform_run_of(&p, &r, tile, end, axes[2], axes);
            else
                transform_run_of(&p, &r, tile, end, axes[0], axes);
        }
    }
}

/* v[point][tile - first][C] of the tiles [first, last) */
static void transform_input(const winograd *t, int64_t first, int64_t last, float *v)
{
    const planes x = {t->in, t->in_c, t->in_h, t->in_w, t->step, t->padding, t->norm};

    if (!t->strided && t->norm)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_1, 6, true);
    else if (!t->strided)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_1, 6, false);
    else if (t->turned)
        transform_patches(t, &x, first, last, v, t->v_stride, spread_inputs_2, 9, false);
    else if (t->norm)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_2, 9, true);
    else
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_2, 9, false);
}

/* Writes W channels of a tile of out, from c on. */
INLINE void transform_tile_back(const winograd *t, place at, const float *from, int64_t c,
                                int points, axis high, axis wide)
{
    const int64_t h = at.h * t->tile, w = at.w * t->tile;
    float *to = t->out + (at.n * t->out_c + c) * t->out_h * t->out_w;
    vec x[9], y[8 * 9], z[8], bias = {0};

    if (t->bias)
        bias = *(const vec_at *)(t->bias + c);
    for (int j = wide.begin; j < wide.end; j++) {
        for (int i = high.begin; i < high.end; i++)
            x[i] = *(const vec *)(from + (i * points + j) * t->m_stride);
        high.f(z, x);
        for (int i = 0; i < high.pixels; i++)
            y[i * 9 + j] = z[i];
    }
    for (int i = 0; i < high.pixels && h + i < t->out_h; i++) {
        float *row = to + ((h + i) * t->out_w + w) * W;

        wide.f(z, y + i * 9);
        for (int j = 0; j < wide.pixels && w + j < t->out_w; j++)
            if (t->streams)
                stream(row + j * W, z[j] + bias);
            else
                *(vec_at *)(row + j * W) = z[j] + bias;
    }
}

/* from: m of point 0 and of this tile */
INLINE void transform_back_of(const winograd *t, const run *r, int64_t tile, const float *from,
                              int64_t c, int points, axis high, const axis *axes)
{
    const place at = place_in(t, r, tile);
    const int last = is_last_of_row(r->kind) ? t->last_w : 0;

    if (points == 6 && last == 3)
        transform_tile_back(t, at, from, c, points, high, axes[1]);
    else if (points == 6 && last == 2)
        transform_tile_back(t, at, from, c, points, high, axes[2]);
    else
        transform_tile_back(t, at, from, c, points, high, axes[0]);
}

/* Writes out's tiles [first, last) from m[point][tile - first][channels]. */
INLINE void transform_back(const winograd *t, int64_t first, int64_t last, channels of,
                           const float *m, const axis *axes, int points)
{
    for (int64_t c = of.from; c < of.to; c += W) {
        run r = run_at(t, first);

        for (int64_t tile = first; tile < last; tile++) {
            const float *from = m + (tile - first) * of.all + c - of.from;

            if (tile == r.end)
                r = run_at(t, tile);
            if (points == 6 && is_last_of_column(r.kind) && t->last_h == 3)
                transform_back_of(t, &r, tile, from, c, points, axes[1], axes);
            else if (points == 6 && is_last_of_column(r.kind) && t->last_h == 2)
                transform_back_of(t, &r, tile, from, c, points, axes[2], axes);
            else
                transform_back_of(t, &r, tile, from, c, points, axes[0], axes);
        }
    }
}

static void transform_output(const winograd *t, int64_t first, int64_t last, channels of,
                             const float *m)
{
    if (!t->strided)
        transform_back(t, first, last, of, m, outputs_1, 6);
    else if (t->turned)
        transform_back(t, first, last, of, m, spread_outputs_2, 9);
    else
        transform_back(t, first, last, of, m, outputs_2, 9);
    if (t->streams)
        streamed();
}

#endif
