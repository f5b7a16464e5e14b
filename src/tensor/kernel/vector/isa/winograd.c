/* winograd.c -- 3x3 convolutions of stride 1 and 2 by Winograd's minimal filtering.   SPDX-License-Identifier: MIT
 *
 * A 4x4 tile of y depends on a patch of x. Patches and weights are transformed to points, each point is one matrix product
 * over channels, and the products are transformed back. Stride 1: a patch of 6x6, 36 points: 36 multiplications instead of
 * the 144 of direct convolution; the last tile of a row or column may have 3 or 2 pixels, for 5 or 4 of a dimension's points,
 * which is 121 of 144 for an image of 7x7. Stride 2: a patch of 9x9, 81 points instead of 144; only 36 of them have weights
 * of their own.
 *
 *     forward, data     m[point][tile][M] = v[point][tile][C] * u[point][C][M]        v = B'xB, u = GwG', y = A'mA
 *     weights           m[point][C][M]    = v[point][tile][C]' * e[point][tile][M]    e = AyA', dw = G'mG
 *
 * Tiles are processed in parts whose v and m stay in the cache, unless weights that do not are then moved too often; if there
 * are fewer tiles than weights, then all tiles together, and panels of 2 W channels of M in parts instead, so that u (or the
 * weight gradient's m) stays in the cache, not v. Sums are the same.
 * A vector is W channels of a pixel. */
#include "tensor/kernel/vector/isa/tile.h"
#include "tensor/kernel/vector/isa/winograd_tiles.h"

#define OWN          36 /* points with weights of their own: 6 per dimension */
#define CHANNEL_ROWS (TILE_ROWS == 8 ? 8 : 4) /* of a tile of weight gradients: divides W */

/* In each dimension, weights i belong to the point i, or if i is 5 to all points from 5 on. */
static inline int points_end(const winograd *t, int i)
{
    return i == 5 ? t->points : i + 1;
}

/* ---- Products ------------------------------------------------------------------------------------------------- */

/* m = v u of point (i, j), and tiles [first, last) of those that have it: rows. u's panels are [C][2 W], the last may be [C][W]. */
static void product_tiles(const winograd *t, int i, int j, const float *v, const float *u, float *m,
                          int64_t first, int64_t last, channels of)
{
    register_tile p = {.a_row = t->in_c, .a_k = 1, .c_row = of.all, .inner = t->in_c};

    for (int64_t c = of.from; c < of.to; c += 2 * W) {
        const int vectors = of.to - c >= 2 * W ? 2 : 1;

        p.b = u + (c - of.from) * t->in_c;
        p.b_k = vectors * W;
        for (int64_t tile = first, next; tile < last; tile = next) {
            const range r = having(t, i, j, tile, last);

            next = r.next;
            for (int64_t row = r.begin; row < r.end; row += TILE_ROWS) {
                const int64_t left = r.end - row < TILE_ROWS ? r.end - row : TILE_ROWS;

                p.a = v + (row - first) * t->in_c;
                p.c = m + (row - first) * of.all + c - of.from;
                multiply_rows[left - 1][vectors - 1](&p);
            }
        }
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

/* m = v u of all points */
static void products(const winograd *t, const float *v, const float *u, float *m, int64_t first,
                     int64_t last, channels of)
{
    for (int own = 0; own < OWN; own++)
        for (int i = own / 6; i < points_end(t, own / 6); i++)
            for (int j = own % 6; j < points_end(t, own % 6); j++)
                product_tiles(t, i, j, v + (i * t->points + j) * t->v_stride, u + own * t->u_stride,
                              m + (i * t->points + j) * t->m_stride, first, last, of);
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

/* Tiles of a job that only transforms: 16 jobs a part, for several threads, but up to 32 tiles, as patches of one job overlap in the
 * cache. */
static int64_t slice_of(const winograd *t)
{
    const int64_t tiles = t->part / 16 / 8 * 8;

    return tiles < 8 ? 8 : tiles > 32 ? 32 : tiles;
}

static void input_slice(void *arg, int64_t i, int member)
{
    const winograd *t = arg;
    const int64_t slice = slice_of(t), first = i * slice;
    const int64_t last = first + slice < t->tiles ? first + slice : t->tiles;

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

/* Pixels of the last tile of n, if it can be a shorter one. */
static int last_of(int64_t n)
{
    return n % 4 == 0 ? 0 : n % 4 == 3 ? 3 : 2;
}

/* Into tiles and parts. Tiles are of one size for stride 2, and where an image is more than a part: few of them are last ones. */
static void divide(winograd *t)
{
    const int64_t high = (t->out_h + t->tile - 1) / t->tile,
                  wide = (t->out_w + t->tile - 1) / t->tile;

    t->tiles = t->n * high * wide;
    t->part = part_of(t);
    t->group = t->n;
    if (!t->strided && high * wide <= t->part) {
        t->last_h = last_of(t->out_h);
        t->last_w = last_of(t->out_w);
        t->group = t->part / (high * wide);
        t->part = t->group * high * wide;
    }
    t->whole_h = t->last_h ? high - 1 : high;
    t->whole_w = t->last_w ? wide - 1 : wide;
    t->kinds[NOT_LAST] = t->whole_h * (wide - t->whole_w);
    t->kinds[LAST_OF_COLUMN] = t->whole_h * wide;
    t->kinds[LAST_OF_BOTH] = t->whole_h * wide + (high - t->whole_h) * t->whole_w;
    t->kinds[KINDS] = high * wide;
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

    divide(&t);
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
        tutti__parallel(cx, input_slice, t, (t->tiles + slice_of(t) - 1) / slice_of(t));
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
    const planes dy = {g->dy, t->out_c, t->out_h, t->out_w, 4, 0, NULL};
    const int64_t slice = slice_of(t), first = g->first + i * slice;
    const int64_t last = first + slice < g->last ? first + slice : g->last;
    float *e = g->e + i * slice * t->out_c;

    (void)member;
    transform_input(t, first, last, g->v + i * slice * t->in_c);
    if (t->strided)
        transform_patches(t, &dy, first, last, e, t->m_stride, gradients_2, 9, false);
    else
        transform_patches(t, &dy, first, last, e, t->m_stride, gradients_1, 6, false);
}

/* Of the tiles [first, last). Points that share weights add to the same sums, one after another. Sums of no tiles are zeros. */
static void product_own(const gradient *g, int own, int64_t first, int64_t last, float *m,
                        channels of)
{
    const winograd *t = &g->t;
    bool add = first > 0;

    for (int i = own / 6; i < points_end(t, own / 6); i++)
        for (int j = own % 6; j < points_end(t, own % 6); j++) {
            const float *v = g->v + (i * t->points + j) * t->v_stride;
            const float *e = g->e + (i * t->points + j) * t->m_stride;

            for (int64_t tile = first, next; tile < last; tile = next, add = true) {
                const range r = having(t, i, j, tile, last);
                const int64_t tiles = r.end > r.begin ? r.end - r.begin : 0;

                next = r.next;
                if (tiles > 0 || !add)
                    product_channels(t, v + (r.begin - g->first) * t->in_c,
                                     e + (r.begin - g->first) * t->out_c, m + own * t->u_stride,
                                     tiles, of, add);
            }
        }
}

static void product_point(void *arg, int64_t own, int member)
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
    const int64_t slice = slice_of(t);

    t->in = x;
    t->norm = norm;
    g.v = work;
    g.e = g.v + t->points * t->points * t->v_stride;
    g.m = g.e + t->points * t->points * t->m_stride;
    if (t->by_panels) {
        g.last = t->tiles;
        tutti__parallel(cx, transform_slice, &g, (t->tiles + slice - 1) / slice);
        tutti__parallel(cx, gradient_panel, &g, panels_of(t));
        return;
    }
    for (; g.first < t->tiles; g.first = g.last) {
        g.last = g.first + t->part < t->tiles ? g.first + t->part : t->tiles;
        tutti__parallel(cx, transform_slice, &g, (g.last - g.first + slice - 1) / slice);
        tutti__parallel(cx, product_point, &g, OWN);
    }
    tutti__parallel(cx, transform_dw, &g, t->out_c / W);
}
