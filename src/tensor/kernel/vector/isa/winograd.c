/* winograd.c -- 3x3 convolutions of stride 1 and 2 by Winograd's minimal filtering.   SPDX-License-Identifier: MIT
 *
 * A 4x4 tile of y depends on a patch of x. Patches and weights are transformed to points, each point is one matrix product
 * over channels, and the products are transformed back. Stride 1: a patch of 6x6, 36 points: 36 multiplications instead of
 * the 144 of direct convolution; where an image ends, tiles of 3 or 2 pixels that need 5 or 4 of a dimension's points, which
 * is 121 of 144 for 7x7. Stride 2: a patch of 9x9, 81 points instead of 144; only 36 of them have weights of their own.
 *
 *     forward, data     m[point][tile][M] = v[point][tile][C] * u[point][C][M]        v = B'xB, u = GwG', y = A'mA
 *     weights           m[point][C][M]    = v[point][tile][C]' * e[point][tile][M]    e = AyA', dw = G'mG
 *
 * Tiles are processed in parts whose v and m stay in the cache, unless weights that do not are then moved too often; if there are fewer tiles than weights, then all tiles together, and
 * panels of 2 W channels of M in parts instead, so that u (or the weight gradient's m) stays in the cache, not v. Sums are the same.
 * A vector is W channels of a pixel. */
#include "tensor/kernel/vector/isa/tile.h"
#include "tensor/kernel/vector/isa/transforms.h"

#include <math.h>

#define OWN          36 /* points with weights of their own: 6 per dimension */
#define CHANNEL_ROWS (TILE_ROWS == 8 ? 8 : 4) /* of a tile of weight gradients: divides W */

#define BANDS 3 /* of tiles of different sizes, per dimension */

/* Tiles of one size that follow each other in one dimension. */
typedef struct band {
    int64_t pixel, tiles; /* the first's first pixel; how many */
    int axis;             /* 0, 1, 2: of 4 (or 8), 3, 2 pixels */
    int begin, end;       /* the dimension's points that they have: [begin, end) */
} band;

/* The convolution from this file's view: `in` is x or dy, `out` is y or dx. */
typedef struct winograd {
    int64_t n, in_c, out_c, in_h, in_w, out_h, out_w;
    int64_t w_c;          /* channels of x that have weights; the others are zeros */
    bool turned, strided; /* turned: from y to x; strided: of stride 2 */
    int points;           /* per dimension: 6 or 9 */
    int tile, step;       /* pixels of `out` of a whole tile, and of `in` from one to the next */
    int64_t padding, tiles, part;
    int n_high, n_wide;
    band high[BANDS], wide[BANDS]; /* of the image's height and width */
    /* Tiles in order: those of the first bands of all images, of high[0] and wide[1], ...; of a kind from begins[kind] on */
    int64_t begins[BANDS * BANDS + 1];
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

typedef void transform(vec *o, const vec *i);

/* In each dimension, weights i belong to the point i, or if i is 5 to all points from 5 on. */
static inline int points_end(const winograd *t, int i)
{
    return i == 5 ? t->points : i + 1;
}

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

typedef struct place {
    const band *high, *wide;
    int64_t n, h, w; /* the tile's image, and its first pixel */
} place;

/* Of one kind, among [first, last). */
typedef struct range {
    int64_t first, last;
} range;

static inline range of_kind(const winograd *t, int kind, int64_t first, int64_t last)
{
    const int64_t begin = t->begins[kind], end = t->begins[kind + 1];

    return (range){begin > first ? begin : first, end < last ? end : last};
}

static inline bool has_point(const winograd *t, int kind, int i, int j)
{
    const band *high = &t->high[kind / t->n_wide], *wide = &t->wide[kind % t->n_wide];

    return i >= high->begin && i < high->end && j >= wide->begin && j < wide->end;
}

static inline int kind_of(const winograd *t, int64_t tile)
{
    int kind = 0;

    while (tile >= t->begins[kind + 1])
        kind++;
    return kind;
}

static inline place place_of(const winograd *t, int64_t tile)
{
    const int kind = kind_of(t, tile);
    const band *high = &t->high[kind / t->n_wide], *wide = &t->wide[kind % t->n_wide];
    const int64_t number = tile - t->begins[kind], of_image = number % (high->tiles * wide->tiles);

    return (place){high, wide, number / (high->tiles * wide->tiles),
                   high->pixel + of_image / wide->tiles * t->tile,
                   wide->pixel + of_image % wide->tiles * t->tile};
}

/* An image's planes of W channels each, and the positions of tiles' patches in them. */
typedef struct planes {
    const float *data;
    int64_t channels, height, width;
    int64_t step, tile, padding;     /* step: pixels for `tile` of them of `out` */
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
    const float *from = plane_of(x, at.n, c) + (at.h * x->width + at.w) * x->step / x->tile * W;

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

/* A transform of one dimension, from a tile's patch to points or from points to its pixels. */
typedef struct axis {
    int pixels, begin, end; /* the points [begin, end) */
    transform *f;
} axis;

/* By band.axis: tiles of 4 (or 8) pixels, of 3, of 2. */
static const axis inputs_1[] = {
    {6, 0, 6, input_1}, {5, 1, 6, input_1_of_3}, {4, 1, 5, input_1_of_2}};
static const axis outputs_1[] = {
    {4, 0, 6, output_1}, {3, 1, 6, output_1_of_3}, {2, 1, 5, output_1_of_2}};
static const axis gradients_1[] = {
    {4, 0, 6, gradient_1}, {3, 1, 6, gradient_1_of_3}, {2, 1, 5, gradient_1_of_2}};
static const axis inputs_2[] = {{9, 0, 9, input_2}},
                  spread_inputs_2[] = {{5, 0, 9, spread_input_2}};
static const axis outputs_2[] = {{4, 0, 9, output_2}},
                  spread_outputs_2[] = {{8, 0, 9, spread_output_2}};
static const axis gradients_2[] = {{4, 0, 9, gradient_2}};

/* y[point * 9 + column] of `columns` columns of a patch, whose first pixel is (h, w) */
INLINE void columns_to_points(vec *y, const planes *x, const float *plane, int64_t h, int64_t w,
                              int columns, axis of, const vec_norm *n)
{
    vec column[9], z[9];

    for (int j = 0; j < columns; j++) {
        load_column(column, x, plane, h, w + j, of.pixels, n);
        of.f(z, column);
        for (int i = of.begin; i < of.end; i++)
            y[i * 9 + j] = z[i];
    }
}

/* to[point] of those: the points of height that `high` has */
INLINE void rows_to_points(const winograd *t, float *to, int64_t stride, const vec *y,
                           const band *high, axis of)
{
    vec z[9];

    for (int i = high->begin; i < high->end; i++) {
        of.f(z, y + i * 9);
        for (int j = of.begin; j < of.end; j++)
            *(vec *)(to + (i * t->points + j) * stride) = z[j];
    }
}

/* to[point][tile - first][channels] = the transformed patches of tiles [first, last). axes: inputs or gradients, `short_too`
 * if there are three. normed: whether x->norm is not NULL. */
INLINE void transform_patches(const winograd *t, const planes *x, int64_t first, int64_t last,
                              float *to, int64_t stride, const axis *axes, bool short_too,
                              bool normed)
{
    for (int64_t c = 0; c < x->channels; c += W) {
        const vec_norm n = normed ? norm_at(x->norm, c) : (vec_norm){0}, *norm = normed ? &n : NULL;

        for (int64_t tile = first; tile < last; tile++) {
            const place at = place_of(t, tile);
            const float *plane = plane_of(x, at.n, c);
            const int64_t h = at.h * x->step / x->tile - x->padding,
                          w = at.w * x->step / x->tile - x->padding;
            const int columns = axes[short_too ? at.wide->axis : 0].pixels;
            float *at_tile = to + (tile - first) * x->channels + c;
            vec y[9 * 9];

            if (c + W < x->channels)
                prefetch(x, at, c + W);
            else if (tile + last - first < t->tiles)
                prefetch(x, place_of(t, tile + last - first), 0);
            if (short_too && at.high->axis == 1)
                columns_to_points(y, x, plane, h, w, columns, axes[1], norm);
            else if (short_too && at.high->axis == 2)
                columns_to_points(y, x, plane, h, w, columns, axes[2], norm);
            else
                columns_to_points(y, x, plane, h, w, columns, axes[0], norm);
            if (short_too && at.wide->axis == 1)
                rows_to_points(t, at_tile, stride, y, at.high, axes[1]);
            else if (short_too && at.wide->axis == 2)
                rows_to_points(t, at_tile, stride, y, at.high, axes[2]);
            else
                rows_to_points(t, at_tile, stride, y, at.high, axes[0]);
        }
    }
}

/* v[point][tile - first][C] of the tiles [first, last) */
static void transform_input(const winograd *t, int64_t first, int64_t last, float *v)
{
    const planes x = {t->in, t->in_c, t->in_h, t->in_w, t->step, t->tile, t->padding, t->norm};

    if (!t->strided && t->norm)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_1, true, true);
    else if (!t->strided)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_1, true, false);
    else if (t->turned)
        transform_patches(t, &x, first, last, v, t->v_stride, spread_inputs_2, false, false);
    else if (t->norm)
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_2, false, true);
    else
        transform_patches(t, &x, first, last, v, t->v_stride, inputs_2, false, false);
}

/* y[pixel * 9 + point] of the points of width that `wide` has, from from[point] */
INLINE void points_to_columns(const winograd *t, vec *y, const float *from, const band *wide,
                              axis of)
{
    vec x[9], z[8];

    for (int j = wide->begin; j < wide->end; j++) {
        for (int i = of.begin; i < of.end; i++)
            x[i] = *(const vec *)(from + (i * t->points + j) * t->m_stride);
        of.f(z, x);
        for (int i = 0; i < of.pixels; i++)
            y[i * 9 + j] = z[i];
    }
}

/* `rows` rows of pixels of out, of which this tile may have more */
INLINE void points_to_rows(const winograd *t, float *to, int64_t rows, int64_t pixels, const vec *y,
                           vec bias, axis of)
{
    vec z[8];

    for (int64_t i = 0; i < rows; i++) {
        float *row = to + i * t->out_w * W;

        of.f(z, y + i * 9);
        for (int j = 0; j < of.pixels && j < pixels; j++)
            if (t->streams)
                stream(row + j * W, z[j] + bias);
            else
                *(vec_at *)(row + j * W) = z[j] + bias;
    }
}

/* Writes out's tiles [first, last) from m[point][tile - first][channels]. axes: outputs. */
INLINE void transform_back(const winograd *t, int64_t first, int64_t last, channels of,
                           const float *m, const axis *axes, bool short_too)
{
    for (int64_t c = of.from; c < of.to; c += W)
        for (int64_t tile = first; tile < last; tile++) {
            const place at = place_of(t, tile);
            const int size = axes[short_too ? at.high->axis : 0].pixels;
            const int64_t rows = at.h + size < t->out_h ? size : t->out_h - at.h,
                          pixels = t->out_w - at.w;
            const float *from = m + (tile - first) * of.all + c - of.from;
            float *to = t->out + ((at.n * t->out_c + c) * t->out_h * t->out_w) +
                        (at.h * t->out_w + at.w) * W;
            vec y[8 * 9], bias = {0};

            if (t->bias)
                bias = *(const vec_at *)(t->bias + c);
            if (short_too && at.high->axis == 1)
                points_to_columns(t, y, from, at.wide, axes[1]);
            else if (short_too && at.high->axis == 2)
                points_to_columns(t, y, from, at.wide, axes[2]);
            else
                points_to_columns(t, y, from, at.wide, axes[0]);
            if (short_too && at.wide->axis == 1)
                points_to_rows(t, to, rows, pixels, y, bias, axes[1]);
            else if (short_too && at.wide->axis == 2)
                points_to_rows(t, to, rows, pixels, y, bias, axes[2]);
            else
                points_to_rows(t, to, rows, pixels, y, bias, axes[0]);
        }
}

static void transform_output(const winograd *t, int64_t first, int64_t last, channels of,
                             const float *m)
{
    if (!t->strided)
        transform_back(t, first, last, of, m, outputs_1, true);
    else if (t->turned)
        transform_back(t, first, last, of, m, spread_outputs_2, false);
    else
        transform_back(t, first, last, of, m, outputs_2, false);
    if (t->streams)
        streamed();
}

/* ---- Products ------------------------------------------------------------------------------------------------- */

/* m = v u of one point: rows are tiles; u's panels are [C][2 W], the last may be [C][W] */
static void product_tiles(const winograd *t, const float *v, const float *u, float *m, int64_t rows,
                          channels of)
{
    register_tile p = {.a_row = t->in_c, .a_k = 1, .c_row = of.all, .inner = t->in_c};

    for (int64_t j = of.from; j < of.to; j += 2 * W)
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            const int64_t left = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
            const int vectors = of.to - j >= 2 * W ? 2 : 1;

            p.a = v + r * t->in_c;
            p.b = u + (j - of.from) * t->in_c;
            p.c = m + r * of.all + j - of.from;
            p.b_k = vectors * W;
            multiply_rows[left - 1][vectors - 1](&p);
        }
}

/* CHANNEL_ROWS rows of c, whose sums continue those of the parts before. */
INLINE void product_channel_rows(const register_tile *t, int vectors)
{
    vec sum[TILE_ROWS][2];

    EACH (r, CHANNEL_ROWS)
        EACH (i, vectors)
            sum[r][i] = t->add ? *(const vec *)(t->c + r * t->c_row + i * W) : (vec){0};
    add_products(sum, t, CHANNEL_ROWS, vectors, false);
    EACH (r, CHANNEL_ROWS)
        EACH (i, vectors)
            *(vec *)(t->c + r * t->c_row + i * W) = sum[r][i];
}

/* m[C][channels] = or += v' e of one point */
static void product_channels(const winograd *t, const float *v, const float *e, float *m,
                             int64_t tiles, channels of, bool add)
{
    register_tile p = {
        .a_row = 1, .a_k = t->in_c, .b_k = t->out_c, .c_row = of.all, .inner = tiles, .add = add};

    for (int64_t j = of.from; j < of.to; j += 2 * W)
        for (int64_t c = 0; c < t->in_c; c += CHANNEL_ROWS) {
            p.a = v + c;
            p.b = e + j;
            p.c = m + c * of.all + j - of.from;
            if (of.to - j >= 2 * W)
                product_channel_rows(&p, 2);
            else
                product_channel_rows(&p, 1);
        }
}

/* ---- Weights ------------------------------------------------------------------------------------------------------ */

/* u's points for W weights of this convolution's out, [point][C][panel] */
INLINE void transform_kernel(float *to, int64_t stride, const vec *kernel, transform *f)
{
    vec x[3], y[6 * 3], z[6];

    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 3; i++)
            x[i] = kernel[i * 3 + j];
        f(z, x);
        for (int i = 0; i < 6; i++)
            y[i * 3 + j] = z[i];
    }
    for (int i = 0; i < 6; i++) {
        f(z, y + i * 3);
        for (int j = 0; j < 6; j++)
            *(vec *)(to + (i * 6 + j) * stride) = z[j];
    }
}

/* Those of a block of W channels of out; u: of the panel in which it is (product_tiles). */
static void transform_block(const winograd *t, int64_t block, float *u)
{
    const int64_t panel = block / 2 * 2 * W, width = t->out_c - panel >= 2 * W ? 2 * W : W;

    for (int64_t c = 0; c < t->in_c; c += W) {
        const int64_t of_x = t->turned ? block * W : c;
        vec square[9 * W], kernel[9];

        load_some(square, t->w + ((t->turned ? c : block * W) * t->w_c + of_x) * 9, t->w_c * 9,
                  t->w_c - of_x);
        if (t->turned)
            turn_square(square);
        for (int i = 0; i < W; i++) {
            float *to = u + (c + i) * width + block % 2 * W;

            for (int k = 0; k < 9; k++)
                kernel[t->turned ? 8 - k : k] = square[i * 9 + k];
            if (t->strided)
                transform_kernel(to, t->u_stride, kernel, weights_2);
            else
                transform_kernel(to, t->u_stride, kernel, weights_1);
        }
    }
}

static void transform_weights(void *arg, int64_t block, int member)
{
    const winograd *t = arg;

    (void)member;
    transform_block(t, block, t->u + block / 2 * 2 * W * t->in_c);
}

/* ---- Forward and data gradient ---------------------------------------------------------------------------------- */

/* m = v u of point (i, j) and tiles [first, last), those that have it */
static void product_point(const winograd *t, int i, int j, const float *v, const float *u, float *m,
                          int64_t first, int64_t last, channels of)
{
    const int64_t point = i * t->points + j;

    for (int kind = 0; kind < t->n_high * t->n_wide; kind++) {
        const range r = of_kind(t, kind, first, last);

        if (r.first < r.last && has_point(t, kind, i, j))
            product_tiles(t, v + point * t->v_stride + (r.first - first) * t->in_c, u,
                          m + point * t->m_stride + (r.first - first) * of.all, r.last - r.first,
                          of);
    }
}

/* The same of all points */
static void products(const winograd *t, const float *v, const float *u, float *m, int64_t first,
                     int64_t last, channels of)
{
    for (int own = 0; own < OWN; own++)
        for (int i = own / 6; i < points_end(t, own / 6); i++)
            for (int j = own % 6; j < points_end(t, own % 6); j++)
                product_point(t, i, j, v, u + own * t->u_stride, m, first, last, of);
}

static void convolve_part(void *arg, int64_t part, int member)
{
    const winograd *t = arg;
    const int64_t first = part * t->part;
    const int64_t last = first + t->part < t->tiles ? first + t->part : t->tiles;
    float *v = t->work + member * t->work_size, *m = v + t->points * t->points * t->v_stride;

    transform_input(t, first, last, v);
    products(t, v, t->u, m, first, last, all_channels(t));
    transform_output(t, first, last, all_channels(t), m);
}

#define SLICE 8 /* tiles per job */

static void input_slice(void *arg, int64_t i, int member)
{
    const winograd *t = arg;
    const int64_t first = i * SLICE, last = first + SLICE < t->tiles ? first + SLICE : t->tiles;

    (void)member;
    transform_input(t, first, last, t->v + first * t->in_c);
}

static void convolve_panel(void *arg, int64_t i, int member)
{
    const winograd *t = arg;
    const channels of = panel_at(t, i);
    float *m = t->work + member * t->work_size, *u = m + t->points * t->points * t->m_stride;

    for (int64_t c = of.from; c < of.to; c += W)
        transform_block(t, c / W, u);
    products(t, t->v, u, m, 0, t->tiles, of);
    transform_output(t, 0, t->tiles, of, m);
}

/* Tiles per part: v and m are about this many bytes. */
#define PART_BYTES ((int64_t)1536 << 10)

static int64_t part_of(const winograd *t)
{
    const int64_t tile = t->points * t->points * (t->in_c + t->out_c) * (int64_t)sizeof(float);
    const int64_t part = PART_BYTES / tile / TILE_ROWS * TILE_ROWS;
    const int64_t least = t->strided ? 2 * TILE_ROWS : 4 * TILE_ROWS;

    return part < least ? least : part;
}

/* Bytes of u, or of the weight gradient's m, that do not stay in a cache beside a part's v and m. */
#define LARGE_WEIGHTS ((int64_t)4 << 20)

/* Tiles of a part where the weights are large, and read again for each part, or added to: so many that v and m, which then leave the cache,
 * too, are about as much to move, twice as much for sums, which are both read and written. Measured on 256 channels of 7 x 7. */
static int64_t large_part_of(const winograd *t, bool gradient)
{
    const int64_t product = t->in_c * t->out_c, sum = t->in_c + t->out_c;
    const int64_t tiles = (gradient ? 4 : 1) * product / sum / t->part * t->part;

    return OWN * product * (int64_t)sizeof(float) <= LARGE_WEIGHTS || tiles < t->part ? t->part
                                                                                      : tiles;
}

/* Whether to compute by panels: v is at most half of u. */
static bool pays_by_panels(const winograd *t)
{
    return t->tiles * t->points * t->points * 2 <= OWN * t->out_c && t->out_c >= 4 * W;
}

static void choose_strides(winograd *t, bool gradient)
{
    const int64_t points = t->points * t->points;
    const int64_t own_c = t->by_panels ? 2 * W : t->out_c; /* of out, of a job */

    t->sums = t->part;
    t->part = t->by_panels ? t->tiles : large_part_of(t, gradient);
    t->v_stride = t->part * t->in_c + W;
    t->m_stride = t->part * (gradient ? t->out_c : own_c) + W;
    t->u_stride = t->in_c * own_c + W;
    if (!t->by_panels)
        t->work_size = points * (t->v_stride + t->m_stride);
    else
        t->work_size = OWN * t->u_stride + (gradient ? 0 : points * t->m_stride);
}

static int add_band(band *bands, int n, int64_t pixel, int64_t tiles, band shape)
{
    if (tiles == 0)
        return n;
    bands[n] = shape;
    bands[n].pixel = pixel;
    bands[n].tiles = tiles;
    return n + 1;
}

/* Of `out` pixels of a dimension; returns how many. Of stride 1, tiles of 4, and for the rest one of 3, one of 2, or both instead of the
 * last of 4; one of 2 for a single pixel. Else tiles of one size, of which the last may extend beyond the image. */
static int make_bands(const winograd *t, band *bands, int64_t out)
{
    const band whole = {.axis = 0, .begin = 0, .end = t->points},
               three = {.axis = 1, .begin = 1, .end = 6}, two = {.axis = 2, .begin = 1, .end = 5};
    const int64_t rest = t->strided ? 0 : out % 4,
                  fours = rest == 1 && out > 4 ? out / 4 - 1 : out / 4;
    int n;

    if (t->strided)
        return add_band(bands, 0, 0, (out + t->tile - 1) / t->tile, whole);
    n = add_band(bands, 0, 0, fours, whole);
    n = add_band(bands, n, fours * 4, rest == 3 || (rest == 1 && out > 4), three);
    return add_band(bands, n, rest == 3 ? out : out - (out > 1 ? 2 : 1), rest == 1 || rest == 2,
                    two);
}

/* `direction`: from y to x if backward to data. */
static winograd winograd_of(const tutti__conv_shape *s, tutti__direction direction)
{
    const bool turned = direction == TUTTI__BACKWARD_DATA;
    const bool strided = s->stride == 2;
    winograd t = {.n = s->n,
                  .in_c = turned ? s->out_c : s->in_c,
                  .out_c = turned ? s->in_c : s->out_c,
                  .in_h = turned ? s->out_h : s->in_h,
                  .in_w = turned ? s->out_w : s->in_w,
                  .out_h = turned ? s->in_h : s->out_h,
                  .out_w = turned ? s->in_w : s->out_w,
                  .w_c = s->own_in_c ? s->own_in_c : s->in_c,
                  .turned = turned,
                  .strided = strided,
                  .points = strided ? 9 : 6,
                  .tile = strided && turned ? 8 : 4,
                  .step = strided && !turned ? 8 : 4,
                  .padding = !turned   ? s->padding
                             : strided ? 0
                                       : 2 - s->padding};

    t.n_high = make_bands(&t, t.high, t.out_h);
    t.n_wide = make_bands(&t, t.wide, t.out_w);
    for (int kind = 0; kind < t.n_high * t.n_wide; kind++)
        t.begins[kind + 1] =
            t.begins[kind] + t.n * t.high[kind / t.n_wide].tiles * t.wide[kind % t.n_wide].tiles;
    t.tiles = t.begins[t.n_high * t.n_wide];
    t.part = part_of(&t);
    t.by_panels = pays_by_panels(&t);
    choose_strides(&t, direction == TUTTI__BACKWARD_WEIGHTS);
    return t;
}

size_t tutti__winograd_work(const tutti_ctx *cx, const tutti__conv_shape *s,
                            tutti__direction direction)
{
    const winograd t = winograd_of(s, direction);
    const bool gradient = direction == TUTTI__BACKWARD_WEIGHTS;
    const int64_t points = t.points * t.points, members = gradient ? 1 : cx->threads;

    if (t.by_panels)
        return (size_t)(points * (t.v_stride + (gradient ? t.m_stride : 0)) +
                        cx->threads * t.work_size) *
               sizeof(float);
    return (size_t)(OWN * t.u_stride + members * t.work_size) * sizeof(float);
}

/* Bytes of `out` from which it is stored non-temporally: it is read only when it is complete, and v, m and u need the
 * cache till then. */
#define STREAM_BYTES ((int64_t)512 << 10)

static bool should_stream(const winograd *t)
{
    const int64_t bytes = t->n * t->out_c * t->out_h * t->out_w * (int64_t)sizeof(float);

    return bytes >= STREAM_BYTES && (uintptr_t)t->out % sizeof(vec) == 0;
}

static void convolve(tutti_ctx *cx, winograd *t, void *work)
{
    t->streams = should_stream(t);
    if (t->by_panels) {
        t->v = work;
        t->work = t->v + t->points * t->points * t->v_stride;
        tutti__parallel(cx, input_slice, t, (t->tiles + SLICE - 1) / SLICE);
        tutti__parallel(cx, convolve_panel, t, panels_of(t));
        return;
    }
    t->u = work;
    t->work = t->u + OWN * t->u_stride;
    tutti__parallel(cx, transform_weights, t, t->out_c / W);
    tutti__parallel(cx, convolve_part, t, (t->tiles + t->part - 1) / t->part);
}

void tutti__winograd_forward(tutti_ctx *cx, const tutti__conv_shape *s, float *y, const float *x,
                             const tutti__channel_norm *norm, const float *w, const float *bias,
                             void *work)
{
    winograd t = winograd_of(s, TUTTI__FORWARD);

    t.in = x;
    t.norm = norm;
    t.w = w;
    t.bias = bias;
    t.out = y;
    convolve(cx, &t, work);
}

void tutti__winograd_data(tutti_ctx *cx, const tutti__conv_shape *s, float *dx, const float *dy,
                          const float *w, void *work)
{
    winograd t = winograd_of(s, TUTTI__BACKWARD_DATA);

    t.in = dy;
    t.w = w;
    t.out = dx;
    convolve(cx, &t, work);
}

/* ---- Weight gradient ---------------------------------------------------------------------------------------------- */

typedef struct gradient {
    winograd t; /* in is x */
    const float *dy;
    int64_t first, last;
    float *v, *e, *m, *dw;
    bool accumulate;
} gradient;

static void transform_slice(void *arg, int64_t i, int member)
{
    const gradient *g = arg;
    const winograd *t = &g->t;
    const planes dy = {g->dy, t->out_c, t->out_h, t->out_w, 4, 4, 0, NULL};
    const int64_t first = g->first + i * SLICE;
    const int64_t last = first + SLICE < g->last ? first + SLICE : g->last;
    float *e = g->e + i * SLICE * t->out_c;

    (void)member;
    transform_input(t, first, last, g->v + i * SLICE * t->in_c);
    if (t->strided)
        transform_patches(t, &dy, first, last, e, t->m_stride, gradients_2, false, false);
    else
        transform_patches(t, &dy, first, last, e, t->m_stride, gradients_1, true, false);
}

/* m = or += v' e of point (i, j) and tiles [first, last); of those that lack it, zeros. */
static void sum_point(const gradient *g, int i, int j, int64_t first, int64_t last, float *m,
                      channels of, bool add)
{
    const winograd *t = &g->t;
    const float *v = g->v + (i * t->points + j) * t->v_stride,
                *e = g->e + (i * t->points + j) * t->m_stride;

    for (int kind = 0; kind < t->n_high * t->n_wide; kind++) {
        const range r = of_kind(t, kind, first, last);
        const int64_t tiles = has_point(t, kind, i, j) ? r.last - r.first : 0;

        if (r.first >= r.last || (tiles == 0 && add))
            continue;
        product_channels(t, v + (r.first - g->first) * t->in_c, e + (r.first - g->first) * t->out_c,
                         m, tiles, of, add);
        add = true;
    }
}

/* Of the tiles [first, last). Points that share weights add to the same sums, one after another. */
static void product_own(const gradient *g, int own, int64_t first, int64_t last, float *m,
                        channels of)
{
    const winograd *t = &g->t;
    bool add = first > 0;

    for (int i = own / 6; i < points_end(t, own / 6); i++)
        for (int j = own % 6; j < points_end(t, own % 6); j++, add = true)
            sum_point(g, i, j, first, last, m + own * t->u_stride, of, add);
}

static void product_own_point(void *arg, int64_t own, int member)
{
    const gradient *g = arg;

    (void)member;
    for (int64_t first = g->first; first < g->last; first += g->t.sums)
        product_own(g, (int)own, first, first + g->t.sums < g->last ? first + g->t.sums : g->last,
                    g->m, all_channels(&g->t));
}

INLINE void transform_kernel_back(vec *kernel, const float *from, int64_t stride, transform *f)
{
    vec x[6], y[3 * 6], z[3];

    for (int j = 0; j < 6; j++) {
        for (int i = 0; i < 6; i++)
            x[i] = *(const vec *)(from + (i * 6 + j) * stride);
        f(z, x);
        for (int i = 0; i < 3; i++)
            y[i * 6 + j] = z[i];
    }
    for (int i = 0; i < 3; i++) {
        f(z, y + i * 6);
        for (int j = 0; j < 3; j++)
            kernel[i * 3 + j] = z[j];
    }
}

/* Of a block of W outputs. */
static void transform_back_block(const gradient *g, int64_t block, const float *m, channels of)
{
    const winograd *t = &g->t;

    for (int64_t c = 0; c < t->in_c; c += W) {
        vec square[9 * W];

        for (int i = 0; i < W; i++) {
            const float *from = m + (c + i) * of.all + block * W - of.from;

            if (t->strided)
                transform_kernel_back(square + i * 9, from, t->u_stride, weights_gradient_2);
            else
                transform_kernel_back(square + i * 9, from, t->u_stride, weights_gradient_1);
        }
        store_some(g->dw + (block * W * t->w_c + c) * 9, t->w_c * 9, square, g->accumulate,
                   t->w_c - c);
    }
}

static void transform_dw(void *arg, int64_t block, int member)
{
    const gradient *g = arg;

    (void)member;
    transform_back_block(g, block, g->m, all_channels(&g->t));
}

static void gradient_panel(void *arg, int64_t i, int member)
{
    const gradient *g = arg;
    const channels of = panel_at(&g->t, i);
    float *m = g->m + member * g->t.work_size;

    for (int own = 0; own < OWN; own++)
        for (int64_t first = 0; first < g->last; first += g->t.sums)
            product_own(g, own, first, first + g->t.sums < g->last ? first + g->t.sums : g->last, m,
                        of);
    for (int64_t c = of.from; c < of.to; c += W)
        transform_back_block(g, c / W, m, of);
}

void tutti__winograd_weights(tutti_ctx *cx, const tutti__conv_shape *s, float *dw, bool accumulate,
                             const float *dy, const float *x, const tutti__channel_norm *norm,
                             void *work)
{
    gradient g = {
        .t = winograd_of(s, TUTTI__BACKWARD_WEIGHTS), .dy = dy, .dw = dw, .accumulate = accumulate};
    winograd *t = &g.t;

    t->in = x;
    t->norm = norm;
    g.v = work;
    g.e = g.v + t->points * t->points * t->v_stride;
    g.m = g.e + t->points * t->points * t->m_stride;
    if (t->by_panels) {
        g.last = t->tiles;
        tutti__parallel(cx, transform_slice, &g, (t->tiles + SLICE - 1) / SLICE);
        tutti__parallel(cx, gradient_panel, &g, panels_of(t));
        return;
    }
    for (; g.first < t->tiles; g.first = g.last) {
        g.last = g.first + t->part < t->tiles ? g.first + t->part : t->tiles;
        tutti__parallel(cx, transform_slice, &g, (g.last - g.first + SLICE - 1) / SLICE);
        tutti__parallel(cx, product_own_point, &g, OWN);
    }
    tutti__parallel(cx, transform_dw, &g, t->out_c / W);
}
