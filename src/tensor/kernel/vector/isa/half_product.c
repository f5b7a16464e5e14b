/* half_product.c -- matrix products of BF16 whose sums are F32, by AVX-512's BF16 instructions or AMX.   SPDX-License-Identifier: MIT
 *
 * As product.c, with pairs along the inner dimension in place of numbers (half_tile.h, amx_tile.h). A job is a block of c, MOST x COLUMNS:
 *
 *     for inner: for ROWS of a: pack a         if its pairs are not contiguous, or a number is left over; else it is read in place
 *                               for panels: pack b, for the first ROWS; from F32 too, which is rounded there
 *                                           for tiles: the tile += a b; stored in c after the last part of the inner dimension
 *
 * - A panel, INNER by two vectors (32 KiB), stays in the L1 cache for ROWS rows; of a, a tile needs a quarter of that. ROWS of a, all
 *   panels, and the sums (in F32) of ROWS are in the L2 cache.
 * - If the inner dimension is one part, as in a weight's gradient of few rows, there are no sums in memory, and twice as many columns
 *   in a block: a is packed less often.
 * - A large c in F32, such as a weight's gradient, is stored past the cache.
 *
 * The bits do not depend on the number of threads, since each element of c belongs to one job, and is summed in one order. */
#include "tensor/kernel/vector/isa/amx_tile.h"

#ifdef TUTTI__HAS_BF16

#define ROWS           256
#define MOST           (4 * ROWS)
#define COLUMNS        192
#define INNER          512
#define STREAMED       ((int64_t)1 << 20) /* numbers of c: 4 MiB */
#define MOST_TILE_ROWS 32
#define WORK           (INNER / 2 * (COLUMNS + ROWS) + MOST * COLUMNS) /* words of a thread */

_Static_assert(INNER / 2 * (2 * COLUMNS + ROWS) <= WORK, "more columns fit if there are no sums");

typedef struct half_block {
    const tutti__half_product *p;
    int64_t row, rows, column, columns, k, inner;
    int32_t *packed; /* b: [panel][pair][PANEL] */
    int32_t *tiles;  /* ROWS of a: [tile][pair][HALF_ROWS] */
    float *sums;     /* [rows][COLUMNS] */
    bool whole;      /* the inner dimension is one part: no sums */
    bool streams, amx;
    int64_t begun; /* rows of the tiles for which AMX is set up; 0: none */
} half_block;

/* Rows of a tile; pairs of this part of the inner dimension, with those that are zeros. */
INLINE int64_t tile_rows(const half_block *q)
{
#ifdef TUTTI__HAS_AMX
    if (q->amx)
        return AMX_ROWS;
#endif
    return HALF_ROWS;
}

INLINE int64_t pairs_in(const half_block *q)
{
    const int64_t pairs = (q->inner + 1) / 2;

#ifdef TUTTI__HAS_AMX
    if (q->amx)
        return (pairs + AMX_PAIRS - 1) / AMX_PAIRS * AMX_PAIRS;
#endif
    return pairs;
}

/* ---- Packing a ----------------------------------------------------------------------------------------------- */

/* Up to 16 rows, which are contiguous, of pair k: two tiles */
BF16_INLINE void pack_two_tiles(int32_t *to, int64_t tile, const uint16_t *low,
                                const uint16_t *high, int64_t rows)
{
    union {
        halves all;
        half_vec half[2];
    } both = {pairs_of(low, high, rows, false)};

    *(half_vec *)to = both.half[0];
    if (rows > HALF_ROWS)
        *(half_vec *)(to + tile) = both.half[1];
}

/* Of a whose rows are contiguous: lines of 32 rows. */
BF16 static void pack_tiles_of_columns(const half_block *q, const uint16_t *a, int64_t all)
{
    const int64_t a_k = q->p->a_k, tile = (q->inner + 1) / 2 * HALF_ROWS;

    for (int64_t r = 0; r < all; r += 32) {
        const int64_t rows = min(32, all - r);
        const uint16_t *low = a + r;
        int32_t *to = q->tiles + r / HALF_ROWS * tile;

        for (int64_t k = 0; k < q->inner; k += 2, low += 2 * a_k, to += HALF_ROWS) {
            const uint16_t *high = k + 1 < q->inner ? low + a_k : NULL;

            __builtin_prefetch(low + AHEAD * a_k);
            __builtin_prefetch(low + (AHEAD + 1) * a_k);
            pack_two_tiles(to, tile, low, high, rows);
            if (rows > 16)
                pack_two_tiles(to + 2 * tile, tile, low + 16, high ? high + 16 : NULL, rows - 16);
        }
    }
}

/* Of any other. */
static void pack_tiles(const half_block *q, const uint16_t *a, int64_t rows)
{
    const int64_t a_row = q->p->a_row, a_k = q->p->a_k, pairs = (q->inner + 1) / 2;

    for (int64_t r = 0; r < rows; r++) {
        int32_t *to = q->tiles + r / HALF_ROWS * HALF_ROWS * pairs + r % HALF_ROWS;

        for (int64_t k = 0; k < q->inner; k += 2) {
            const uint32_t low = a[r * a_row + k * a_k];
            const uint32_t high = k + 1 < q->inner ? a[r * a_row + (k + 1) * a_k] : 0;

            to[k / 2 * HALF_ROWS] = (int32_t)(low | high << 16);
        }
    }
}

#ifdef TUTTI__HAS_AMX
/* Packs `rows` rows of a, where number k of row r is at a[r * a_row + k * a_k] and one of the steps is 1, to [row][pairs], with zeros from `inner` on. */
AMX static void amx_pack(int32_t *to, const uint16_t *a, int64_t a_row, int64_t a_k, int64_t rows,
                         int64_t inner, int64_t pairs)
{
    for (int64_t r = 0; r < rows; r += 16)
        for (int64_t k = 0; k < 2 * pairs; k += 32) {
            vec lanes[W];
            const uint16_t *from = a + r * a_row + k * a_k;
            const int64_t n = min(16, rows - r), left = inner - k;

            if (a_k == 1) {
                for (int i = 0; i < n; i++)
                    lanes[i] = left > 0 ? along(from + i * a_row, min(32, left), false) : (vec){0};
            } else {
                for (int i = 0; i < 16; i++, from += 2 * a_k)
                    lanes[i] = (vec)pairs_of(2 * i < left ? from : NULL,
                                             2 * i + 1 < left ? from + a_k : NULL, n, false);
                transpose(lanes);
            }
            for (int i = 0; i < n; i++)
                *(vec *)(to + (r + i) * pairs + k / 2) = lanes[i];
        }
}
#endif

/* Packs `rows` rows of a if need be; returns a tile of it without b and c. *step_p: to the next tile, in numbers */
static half_tile tile_of(const half_block *q, int64_t row, int64_t rows, int64_t *step_p)
{
    const tutti__half_product *p = q->p;
    const uint16_t *a = p->a + (q->row + row) * p->a_row + q->k * p->a_k;
    half_tile t = {.a = a, .a_row = p->a_row, .a_pair = 2, .pairs = pairs_in(q)};

    *step_p = tile_rows(q) * p->a_row;
    if (p->a_k == 1 && q->inner == 2 * t.pairs)
        return t;
#ifdef TUTTI__HAS_AMX
    if (q->amx) {
        amx_pack(q->tiles, a, p->a_row, p->a_k, rows, q->inner, t.pairs);
        t.a = (const uint16_t *)q->tiles;
        t.a_row = 2 * t.pairs;
        *step_p = AMX_ROWS * t.a_row;
        return t;
    }
#endif
    (p->a_row == 1 ? pack_tiles_of_columns : pack_tiles)(q, a, rows);
    t.a = (const uint16_t *)q->tiles;
    t.a_row = 2;
    t.a_pair = 2 * HALF_ROWS;
    *step_p = 2 * HALF_ROWS * t.pairs;
    return t;
}

/* ---- Panels of b --------------------------------------------------------------------------------------------- */

/* The panel of column j */
BF16 static void pack_half_panel(const half_block *q, int64_t j)
{
    const tutti__half_product *p = q->p;
    const char *b =
        (const char *)p->b + (q->k * p->b_k + (q->column + j) * p->b_column) * (p->b_f32 ? 4 : 2);
    int32_t *to = q->packed + j * pairs_in(q);
    const int64_t n = min(PANEL, q->columns - j), pairs = (q->inner + 1) / 2;

    memset(to + pairs * PANEL, 0, (size_t)((pairs_in(q) - pairs) * PANEL) * sizeof *to);

    if (p->b_column == 1 && p->b_f32)
        pack_half_rows(to, b, p->b_k, q->inner, n, true);
    else if (p->b_column == 1)
        pack_half_rows(to, b, p->b_k, q->inner, n, false);
    else if (p->b_f32)
        pack_half_columns(to, b, p->b_column, q->inner, n, true);
    else
        pack_half_columns(to, b, p->b_column, q->inner, n, false);
}

/* ---- Blocks -------------------------------------------------------------------------------------------------- */

/* c[row .. row + rows)[column .. column + n) = or += sums + bias, with at most PANEL columns */
BF16 static void put_half_tile(const half_block *q, int64_t row, int64_t rows, int64_t column,
                               int64_t n, const float *sums, int64_t step)
{
    const tutti__half_product *p = q->p;
    const vec zero = {0};
    const vec bias[2] = {p->bias ? some_of(p->bias + column, n) : zero,
                         p->bias && n > W ? some_of(p->bias + column + W, n - W) : zero};
    int64_t at = row * p->c_step + column;

    for (int64_t r = 0; r < rows; r++, at += p->c_step, sums += step) {
        const vec v[2] = {*(const vec *)sums + bias[0], *(const vec *)(sums + W) + bias[1]};
        float *c = (float *)p->c + at;

        if (!p->c_f32)
            put_halves((uint16_t *)p->c + at, v[0], v[1], n);
        else
            for (int i = 0; i < 2 && i * W < n; i++)
                if (q->streams)
                    stream(c + i * W, v[i]);
                else if (p->add)
                    put_some(c + i * W, v[i] + some_of(c + i * W, n - i * W), n - i * W);
                else
                    put_some(c + i * W, v[i], n - i * W);
    }
}

/* A tile of `rows` rows */
static void half_multiply(half_block *q, const half_tile *t, int64_t rows)
{
#ifdef TUTTI__HAS_AMX
    if (q->amx) {
        amx_multiply(t, rows, &q->begun);
        return;
    }
#endif
    (void)q;
    half_rows[rows - 1](t);
}

/* Multiplies rows [row, row + rows) of the block in this part of the inner dimension, for the first of which b is packed. `last`: c is
 * complete after it. */
static void multiply_half_rows(half_block *q, int64_t row, int64_t rows, bool last)
{
    float buffer[MOST_TILE_ROWS * PANEL] __attribute__((aligned(64)));
    const int64_t height = tile_rows(q), tiles = (rows + height - 1) / height;
    int64_t step;
    half_tile t = tile_of(q, row, rows, &step);
    const uint16_t *a = t.a;

    t.add = q->k > 0;
    t.c_row = q->whole ? PANEL : COLUMNS;
    for (int64_t j = 0; j < q->columns; j += PANEL) {
        if (row == 0)
            pack_half_panel(q, j);
        t.b = q->packed + j * t.pairs;
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t r = row + i * height, n = min(height, rows - i * height);

            t.a = a + i * step;
            t.c = q->whole ? buffer : q->sums + r * COLUMNS + j;
            half_multiply(q, &t, n);
            if (last)
                put_half_tile(q, q->row + r, n, q->column + j, min(PANEL, q->columns - j), t.c,
                              t.c_row);
        }
    }
}

static void multiply_half_block(half_block *q)
{
    const tutti__half_product *p = q->p;
    const int64_t n = (p->inner + INNER - 1) / INNER, step = 2 * (q->amx ? 16 : 1),
                  inner = ((p->inner + n - 1) / n + step - 1) / step * step;

    for (q->k = 0; q->k < p->inner; q->k += inner) {
        q->inner = min(inner, p->inner - q->k);
        for (int64_t r = 0; r < q->rows; r += ROWS)
            multiply_half_rows(q, r, min(ROWS, q->rows - r), q->k + inner >= p->inner);
    }
}

/* ---- The whole product --------------------------------------------------------------------------------------- */

typedef struct half_jobs {
    const tutti__half_product *p;
    int64_t rows, columns, across; /* of a block; blocks of columns */
    bool streams, amx;
    int32_t *work;
} half_jobs;

static void half_job(void *arg, int64_t i, int member)
{
    const half_jobs *h = arg;
    half_block q = {.p = h->p,
                    .row = i / h->across * h->rows,
                    .column = i % h->across * h->columns,
                    .tiles = h->work + member * WORK,
                    .whole = h->p->inner <= INNER,
                    .streams = h->streams,
                    .amx = h->amx};

    q.rows = min(h->rows, h->p->rows - q.row);
    q.columns = min(h->columns, h->p->columns - q.column);
    q.packed = q.tiles + INNER / 2 * ROWS;
    q.sums = (float *)(q.packed + INNER / 2 * COLUMNS);
    multiply_half_block(&q);
#ifdef TUTTI__HAS_AMX
    amx_end(&q.begun);
#endif
    if (q.streams)
        streamed();
}

/* Blocks for so many columns, of fewer rows where there would be too few for all threads. */
static int64_t set_blocks(half_jobs *h, int64_t columns, int threads)
{
    const tutti__half_product *p = h->p;

    h->columns = columns;
    h->across = (p->columns + columns - 1) / columns;
    for (h->rows = MOST; h->rows > ROWS; h->rows /= 2)
        if (h->across * ((p->rows + h->rows - 1) / h->rows) >= 4 * threads)
            break;
    return h->across * ((p->rows + h->rows - 1) / h->rows);
}

/* Whether c goes past the cache. */
static bool streams(const tutti__half_product *p)
{
    return p->c_f32 && !p->add && p->rows * p->columns >= STREAMED && p->columns % W == 0 &&
           (uintptr_t)p->c % (W * sizeof(float)) == 0 && p->c_step % W == 0;
}

size_t tutti__multiply_half_work(const tutti_ctx *cx)
{
    return (size_t)(cx->threads * WORK) * sizeof(int32_t);
}

static void multiply_all(tutti_ctx *cx, half_jobs *h)
{
    const int threads = cx->threads > 1 ? cx->threads : 0;
    int64_t n = set_blocks(h, h->p->inner > INNER ? COLUMNS : 2 * COLUMNS, threads);

    if (n < 4 * threads)
        n = set_blocks(h, COLUMNS, threads);
    tutti__parallel(cx, half_job, h, n);
}

bool tutti__multiply_half(tutti_ctx *cx, const tutti__half_product *p, void *work)
{
    if (!__builtin_cpu_supports("avx512bf16"))
        return false;
    multiply_all(cx, &(half_jobs){.p = p, .streams = streams(p), .work = work});
    return true;
}

#ifdef TUTTI__HAS_AMX
bool tutti__multiply_half_amx(tutti_ctx *cx, const tutti__half_product *p, void *work)
{
    multiply_all(cx, &(half_jobs){.p = p, .streams = streams(p), .amx = true, .work = work});
    return true;
}
#endif

#else

size_t tutti__multiply_half_work(const tutti_ctx *cx)
{
    (void)cx;
    return 64;
}

bool tutti__multiply_half(tutti_ctx *cx, const tutti__half_product *p, void *work)
{
    (void)cx;
    (void)p;
    (void)work;
    return false;
}

#endif
