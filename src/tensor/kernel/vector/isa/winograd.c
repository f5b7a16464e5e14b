/* winograd.c -- 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3).
 * SPDX-License-Identifier: MIT
 *
 * A 4x4 tile of y needs a 6x6 patch of x. Patches and weights are transformed (6x6 = 36 points each), every point is one
 * matrix product over channels, and the products are transformed back: 36 multiplications where direct convolution has 144.
 *
 *     forward, data     m[point][tile][M] = v[point][tile][C] * u[point][C][M]        v = B'xB, u = GwG', y = A'mA
 *     weights           m[point][C][M]    = v[point][tile][C]' * e[point][tile][M]    e = AyA', dw = G'mG
 *
 * Tiles are taken in parts whose v and m stay in the cache. The interpolation points 0, +-5/8, +-3/2 and infinity keep
 * rounding near that of direct convolution (Barabasz et al. 2020 study the choice). A vector is W channels of a pixel. */
#include "tensor/kernel/vector/isa/vector.h"

#define P 36 /* points */
#if TUTTI__LANES == 16
#define TILE_ROWS    8 /* of a product's block in registers, with 2 vectors each */
#define CHANNEL_ROWS 8 /* the same for weight gradients; divides W */
#else
#define TILE_ROWS    6
#define CHANNEL_ROWS 4
#endif
#define MAX_ROWS 8
#define PART     48 /* tiles a part; a multiple of TILE_ROWS */

#define A1 0.625f
#define B1 1.5f
#define A2 (A1 * A1)
#define B2 (B1 * B1)
#define A3 (A1 * A2)
#define B3 (B1 * B2)
#define NA (1.0f / (2 * A2 * (A2 - B2)))
#define NB (1.0f / (2 * B2 * (B2 - A2)))

/* The convolution as this file sees it: `in` is x or dy, `out` is y or dx. */
typedef struct winograd {
    int64_t n, in_c, out_c, in_h, in_w, out_h, out_w;
    int64_t padding, tiles_h, tiles_w, tiles, part;
    int64_t v_stride, m_stride, u_stride; /* from point to point, in floats; not powers of two */
    const float *in, *w, *bias;           /* bias NULL: none */
    float *out, *u, *work;                /* work: v and m of each thread */
    int64_t work_size;
    bool flip; /* data gradient: the kernel turned round */
} winograd;

/* ---- One-dimensional transforms ---------------------------------------------------------------------------- */

/* Each reads in[k * step] and writes out[k]; they are applied to columns, then to rows. */
#define INPUT_1D(o, i, s)                                                                          \
    do {                                                                                           \
        const vec u_ = (i)[4 * (s)] - B2 * (i)[2 * (s)], u2_ = (i)[4 * (s)] - A2 * (i)[2 * (s)];   \
        const vec w_ = A1 * ((i)[3 * (s)] - B2 * (i)[1 * (s)]);                                    \
        const vec w2_ = B1 * ((i)[3 * (s)] - A2 * (i)[1 * (s)]);                                   \
        (o)[0] = A2 * B2 * (i)[0] - (A2 + B2) * (i)[2 * (s)] + (i)[4 * (s)];                       \
        (o)[1] = u_ + w_;                                                                          \
        (o)[2] = u_ - w_;                                                                          \
        (o)[3] = u2_ + w2_;                                                                        \
        (o)[4] = u2_ - w2_;                                                                        \
        (o)[5] = A2 * B2 * (i)[1 * (s)] - (A2 + B2) * (i)[3 * (s)] + (i)[5 * (s)];                 \
    } while (0)

#define OUTPUT_1D(o, i, s)                                                                         \
    do {                                                                                           \
        const vec s_ = (i)[1 * (s)] + (i)[2 * (s)], d_ = (i)[1 * (s)] - (i)[2 * (s)];              \
        const vec s2_ = (i)[3 * (s)] + (i)[4 * (s)], d2_ = (i)[3 * (s)] - (i)[4 * (s)];            \
        (o)[0] = (i)[0] + s_ + s2_;                                                                \
        (o)[1] = A1 * d_ + B1 * d2_;                                                               \
        (o)[2] = A2 * s_ + B2 * s2_;                                                               \
        (o)[3] = A3 * d_ + B3 * d2_ + (i)[5 * (s)];                                                \
    } while (0)

#define GRADIENT_1D(o, i, s)                                                                       \
    do {                                                                                           \
        const vec e_ = (i)[0] + A2 * (i)[2 * (s)], o_ = A1 * (i)[1 * (s)] + A3 * (i)[3 * (s)];     \
        const vec e2_ = (i)[0] + B2 * (i)[2 * (s)], o2_ = B1 * (i)[1 * (s)] + B3 * (i)[3 * (s)];   \
        (o)[0] = (i)[0];                                                                           \
        (o)[1] = e_ + o_;                                                                          \
        (o)[2] = e_ - o_;                                                                          \
        (o)[3] = e2_ + o2_;                                                                        \
        (o)[4] = e2_ - o2_;                                                                        \
        (o)[5] = (i)[3 * (s)];                                                                     \
    } while (0)

#define WEIGHTS_1D(o, i, s)                                                                        \
    do {                                                                                           \
        const vec e_ = (i)[0] + A2 * (i)[2 * (s)], e2_ = (i)[0] + B2 * (i)[2 * (s)];               \
        (o)[0] = (i)[0] * (1.0f / (A2 * B2));                                                      \
        (o)[1] = NA * (e_ + A1 * (i)[1 * (s)]);                                                    \
        (o)[2] = NA * (e_ - A1 * (i)[1 * (s)]);                                                    \
        (o)[3] = NB * (e2_ + B1 * (i)[1 * (s)]);                                                   \
        (o)[4] = NB * (e2_ - B1 * (i)[1 * (s)]);                                                   \
        (o)[5] = (i)[2 * (s)];                                                                     \
    } while (0)

#define WEIGHTS_GRADIENT_1D(o, i, s)                                                               \
    do {                                                                                           \
        const vec s_ = NA * ((i)[1 * (s)] + (i)[2 * (s)]),                                         \
                  d_ = NA * ((i)[1 * (s)] - (i)[2 * (s)]);                                         \
        const vec s2_ = NB * ((i)[3 * (s)] + (i)[4 * (s)]);                                        \
        const vec d2_ = NB * ((i)[3 * (s)] - (i)[4 * (s)]);                                        \
        (o)[0] = (i)[0] * (1.0f / (A2 * B2)) + s_ + s2_;                                           \
        (o)[1] = A1 * d_ + B1 * d2_;                                                               \
        (o)[2] = A2 * s_ + B2 * s2_ + (i)[5 * (s)];                                                \
    } while (0)

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

typedef struct place {
    int64_t n, h, w; /* of the tile's first pixel of y */
} place;

static inline place place_of(const winograd *t, int64_t tile)
{
    const int64_t of_image = tile % (t->tiles_h * t->tiles_w);

    return (place){tile / (t->tiles_h * t->tiles_w), of_image / t->tiles_w * 4,
                   of_image % t->tiles_w * 4};
}

/* patch = size x size pixels of an image plane from (h, w) on, zero outside */
static inline void load_patch(vec *patch, const float *plane, int64_t height, int64_t width,
                              int64_t h, int64_t w, int size)
{
    const bool inside = h >= 0 && w >= 0 && h + size <= height && w + size <= width;

    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            if (inside || (h + i >= 0 && h + i < height && w + j >= 0 && w + j < width))
                patch[i * size + j] = *(const vec_at *)(plane + ((h + i) * width + w + j) * W);
            else
                patch[i * size + j] = (vec){0};
}

/* v[point][tile - first][C] of the tiles [first, last) */
static void transform_input(const winograd *t, int64_t first, int64_t last, float *v)
{
    for (int64_t c = 0; c < t->in_c; c += W)
        for (int64_t tile = first; tile < last; tile++) {
            const place at = place_of(t, tile);
            float *to = v + (tile - first) * t->in_c + c;
            vec x[P], y[P], z[6];

            load_patch(x, t->in + (at.n * t->in_c + c) * t->in_h * t->in_w, t->in_h, t->in_w,
                       at.h - t->padding, at.w - t->padding, 6);
            for (int j = 0; j < 6; j++) {
                INPUT_1D(z, x + j, 6);
                for (int i = 0; i < 6; i++)
                    y[i * 6 + j] = z[i];
            }
            for (int i = 0; i < 6; i++) {
                INPUT_1D(z, y + i * 6, 1);
                for (int j = 0; j < 6; j++)
                    *(vec *)(to + (i * 6 + j) * t->v_stride) = z[j];
            }
        }
}

/* y's tiles [first, last) from m[point][tile - first][M] */
static void transform_output(const winograd *t, int64_t first, int64_t last, const float *m)
{
    for (int64_t c = 0; c < t->out_c; c += W)
        for (int64_t tile = first; tile < last; tile++) {
            const place at = place_of(t, tile);
            const float *from = m + (tile - first) * t->out_c + c;
            float *plane = t->out + (at.n * t->out_c + c) * t->out_h * t->out_w;
            vec x[6], y[4 * 6], z[4], bias = {0};

            if (t->bias)
                bias = *(const vec_at *)(t->bias + c);
            for (int j = 0; j < 6; j++) {
                for (int i = 0; i < 6; i++)
                    x[i] = *(const vec *)(from + (i * 6 + j) * t->m_stride);
                OUTPUT_1D(z, x, 1);
                for (int i = 0; i < 4; i++)
                    y[i * 6 + j] = z[i];
            }
            for (int i = 0; i < 4 && at.h + i < t->out_h; i++) {
                OUTPUT_1D(z, y + i * 6, 1);
                for (int j = 0; j < 4 && at.w + j < t->out_w; j++)
                    *(vec_at *)(plane + ((at.h + i) * t->out_w + at.w + j) * W) = z[j] + bias;
            }
        }
}

/* ---- Products ------------------------------------------------------------------------------------------------- */

typedef struct product {
    const float *a, *b;
    float *c;
    int64_t a_row, a_k, b_k, c_row, inner;
    bool add;
} product;

/* c[r][0 .. vectors * W) = or += sum over k of a[r * a_row + k * a_k] * b[k * b_k ..] for some rows, all in registers */
INLINE void product_block(const product *p, int rows, int vectors)
{
    vec sum[MAX_ROWS][2], y[2];
    const float *a = p->a, *b = p->b;

    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            sum[r][i] = p->add ? *(const vec *)(p->c + r * p->c_row + i * W) : (vec){0};
    for (int64_t k = 0; k < p->inner; k++, a += p->a_k, b += p->b_k) {
        for (int i = 0; i < vectors; i++)
            y[i] = *(const vec *)(b + i * W);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < vectors; i++)
                sum[r][i] += a[r * p->a_row] * y[i];
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            *(vec *)(p->c + r * p->c_row + i * W) = sum[r][i];
}

/* m = v u of one point: rows are tiles; u's panels are [C][2 W], the last may be [C][W] */
static void product_tiles(const winograd *t, const float *v, const float *u, float *m, int64_t rows)
{
    product p = {.a_row = t->in_c, .a_k = 1, .c_row = t->out_c, .inner = t->in_c};

    for (int64_t j = 0; j < t->out_c; j += 2 * W)
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            p.a = v + r * t->in_c;
            p.b = u + j * t->in_c;
            p.c = m + r * t->out_c + j;
            p.b_k = t->out_c - j >= 2 * W ? 2 * W : W;
            if (p.b_k == 2 * W)
                product_block(&p, TILE_ROWS, 2);
            else
                product_block(&p, TILE_ROWS, 1);
        }
}

/* m[C][M] = or += v' e of one point */
static void product_channels(const winograd *t, const float *v, const float *e, float *m,
                             int64_t tiles, bool add)
{
    product p = {
        .a_row = 1, .a_k = t->in_c, .b_k = t->out_c, .c_row = t->out_c, .inner = tiles, .add = add};

    for (int64_t j = 0; j < t->out_c; j += 2 * W)
        for (int64_t c = 0; c < t->in_c; c += CHANNEL_ROWS) {
            p.a = v + c;
            p.b = e + j;
            p.c = m + c * t->out_c + j;
            if (t->out_c - j >= 2 * W)
                product_block(&p, CHANNEL_ROWS, 2);
            else
                product_block(&p, CHANNEL_ROWS, 1);
        }
}

/* ---- Forward and data gradient ---------------------------------------------------------------------------------- */

/* Blocks of weights are [out/W][in/W] of the forward convolution, each [3][3][W in][W out] of this one; one job a block of W
 * out. u: see product_tiles. */
static void transform_weights(void *arg, int64_t block, int member)
{
    const winograd *t = arg;
    const int64_t panel = block / 2 * 2 * W, width = t->out_c - panel >= 2 * W ? 2 * W : W;

    (void)member;
    for (int64_t c = 0; c < t->in_c; c++) {
        const int64_t of = t->flip ? c / W * (t->out_c / W) + block : block * (t->in_c / W) + c / W;
        const float *w = t->w + of * 9 * W * W + c % W * W;
        float *to = t->u + panel * t->in_c + c * width + block % 2 * W;
        vec x[9], y[6 * 3], z[6];

        for (int k = 0; k < 9; k++)
            x[t->flip ? 8 - k : k] = *(const vec *)(w + k * W * W);
        for (int j = 0; j < 3; j++) {
            WEIGHTS_1D(z, x + j, 3);
            for (int i = 0; i < 6; i++)
                y[i * 3 + j] = z[i];
        }
        for (int i = 0; i < 6; i++) {
            WEIGHTS_1D(z, y + i * 3, 1);
            for (int j = 0; j < 6; j++)
                *(vec *)(to + (i * 6 + j) * t->u_stride) = z[j];
        }
    }
}

static void convolve_part(void *arg, int64_t part, int member)
{
    const winograd *t = arg;
    const int64_t first = part * t->part;
    const int64_t last = first + t->part < t->tiles ? first + t->part : t->tiles;
    const int64_t rows =
        (last - first + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; /* the rest of v: whatever it is */
    float *v = t->work + member * t->work_size, *m = v + P * t->v_stride;

    transform_input(t, first, last, v);
    for (int p = 0; p < P; p++)
        product_tiles(t, v + p * t->v_stride, t->u + p * t->u_stride, m + p * t->m_stride, rows);
    transform_output(t, first, last, m);
}

/* `turned`: from y to x. */
static winograd winograd_of(const tutti__conv_shape *s, bool turned, int64_t part)
{
    winograd t = {.n = s->n,
                  .in_c = turned ? s->out_c : s->in_c,
                  .out_c = turned ? s->in_c : s->out_c,
                  .in_h = turned ? s->out_h : s->in_h,
                  .in_w = turned ? s->out_w : s->in_w,
                  .out_h = turned ? s->in_h : s->out_h,
                  .out_w = turned ? s->in_w : s->out_w,
                  .padding = turned ? 2 - s->padding : s->padding,
                  .part = part,
                  .flip = turned};

    t.tiles_h = (t.out_h + 3) / 4;
    t.tiles_w = (t.out_w + 3) / 4;
    t.tiles = t.n * t.tiles_h * t.tiles_w;
    t.v_stride = part * t.in_c + W;
    t.m_stride = part * t.out_c + W;
    t.u_stride = t.in_c * t.out_c + W;
    t.work_size = P * (t.v_stride + t.m_stride);
    return t;
}

/* Threads meet twice a part of the weight gradient: larger ones for them. The order of the sums, and so the bits, are the same. */
static int64_t weights_part(const tutti_ctx *cx)
{
    return cx->threads > 1 ? PART * 4 * cx->threads : PART;
}

size_t tutti__winograd_work(const tutti_ctx *cx, const tutti__conv_shape *s,
                            tutti__direction direction)
{
    const bool weights = direction == TUTTI__BACKWARD_WEIGHTS;
    const winograd t =
        winograd_of(s, direction == TUTTI__BACKWARD_DATA, weights ? weights_part(cx) : PART);

    return (size_t)(P * t.u_stride + (weights ? 1 : cx->threads) * t.work_size) * sizeof(float);
}

static void convolve(tutti_ctx *cx, winograd *t, void *work)
{
    t->u = work;
    t->work = t->u + P * t->u_stride;
    tutti__parallel(cx, transform_weights, t, t->out_c / W);
    tutti__parallel(cx, convolve_part, t, (t->tiles + t->part - 1) / t->part);
}

void tutti__winograd_forward(tutti_ctx *cx, const tutti__conv_shape *s, float *y, const float *x,
                             const float *w, const float *bias, void *work)
{
    winograd t = winograd_of(s, false, PART);

    t.in = x;
    t.w = w;
    t.bias = bias;
    t.out = y;
    convolve(cx, &t, work);
}

void tutti__winograd_data(tutti_ctx *cx, const tutti__conv_shape *s, float *dx, const float *dy,
                          const float *w, void *work)
{
    winograd t = winograd_of(s, true, PART);

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
} gradient;

#define SLICE 8 /* tiles a job */

/* e[point][tile - first][M] of the tiles [first, last) of dy */
static void transform_gradient(const winograd *t, const float *dy, int64_t first, int64_t last,
                               float *e)
{
    for (int64_t c = 0; c < t->out_c; c += W)
        for (int64_t tile = first; tile < last; tile++) {
            const place at = place_of(t, tile);
            float *to = e + (tile - first) * t->out_c + c;
            vec x[16], y[6 * 4], z[6];

            load_patch(x, dy + (at.n * t->out_c + c) * t->out_h * t->out_w, t->out_h, t->out_w,
                       at.h, at.w, 4);
            for (int j = 0; j < 4; j++) {
                GRADIENT_1D(z, x + j, 4);
                for (int i = 0; i < 6; i++)
                    y[i * 4 + j] = z[i];
            }
            for (int i = 0; i < 6; i++) {
                GRADIENT_1D(z, y + i * 4, 1);
                for (int j = 0; j < 6; j++)
                    *(vec *)(to + (i * 6 + j) * t->m_stride) = z[j];
            }
        }
}

static void transform_slice(void *arg, int64_t i, int member)
{
    const gradient *g = arg;
    const int64_t first = g->first + i * SLICE;
    const int64_t last = first + SLICE < g->last ? first + SLICE : g->last;

    (void)member;
    transform_input(&g->t, first, last, g->v + i * SLICE * g->t.in_c);
    transform_gradient(&g->t, g->dy, first, last, g->e + i * SLICE * g->t.out_c);
}

static void product_point(void *arg, int64_t p, int member)
{
    const gradient *g = arg;

    (void)member;
    product_channels(&g->t, g->v + p * g->t.v_stride, g->e + p * g->t.m_stride,
                     g->m + p * g->t.u_stride, g->last - g->first, g->first > 0);
}

/* dw [M/W][C/W][3][3][W C][W M] from m; one job a block of W M */
static void transform_dw(void *arg, int64_t block, int member)
{
    const gradient *g = arg;
    const winograd *t = &g->t;

    (void)member;
    for (int64_t c = 0; c < t->in_c; c++) {
        const float *from = g->m + c * t->out_c + block * W;
        float *to = g->dw + (block * (t->in_c / W) + c / W) * 9 * W * W + c % W * W;
        vec x[6], y[3 * 6], z[3];

        for (int j = 0; j < 6; j++) {
            for (int i = 0; i < 6; i++)
                x[i] = *(const vec *)(from + (i * 6 + j) * t->u_stride);
            WEIGHTS_GRADIENT_1D(z, x, 1);
            for (int i = 0; i < 3; i++)
                y[i * 6 + j] = z[i];
        }
        for (int i = 0; i < 3; i++) {
            WEIGHTS_GRADIENT_1D(z, y + i * 6, 1);
            for (int j = 0; j < 3; j++)
                *(vec *)(to + (i * 3 + j) * W * W) = z[j];
        }
    }
}

void tutti__winograd_weights(tutti_ctx *cx, const tutti__conv_shape *s, float *dw, const float *dy,
                             const float *x, void *work)
{
    gradient g = {.t = winograd_of(s, false, weights_part(cx)), .dy = dy, .dw = dw};

    g.t.in = x;
    g.v = work;
    g.e = g.v + P * g.t.v_stride;
    g.m = g.e + P * g.t.m_stride;
    for (; g.first < g.t.tiles; g.first = g.last) {
        g.last = g.first + g.t.part < g.t.tiles ? g.first + g.t.part : g.t.tiles;
        tutti__parallel(cx, transform_slice, &g, (g.last - g.first + SLICE - 1) / SLICE);
        tutti__parallel(cx, product_point, &g, P);
    }
    tutti__parallel(cx, transform_dw, &g, g.t.out_c / W);
}
