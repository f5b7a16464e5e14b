/* half_product.c -- matrix products of BF16 whose sums are F32, by AVX-512's BF16 instructions.   SPDX-License-Identifier: MIT
 *
 * As product.c, with pairs along the inner dimension in place of numbers: an instruction adds two products to each of 16 sums. A job
 * is a block of c, ROWS x COLUMNS, whose sums stay in the L2 cache during the whole inner dimension; of that, INNER at a time, b is
 * packed into panels of two vectors of pairs, from F32 too, which is rounded there. a is read in place, if its pairs are
 * contiguous, else in strips. The bits do not depend on the number of threads, since each element of c belongs to one job. */
#include "tensor/kernel/vector/isa/pack.h"

#include <string.h>

#if defined __x86_64__ && TUTTI__LANES == 16 && !defined __clang__

#define BF16 __attribute__((target("avx512bf16,avx512bw,avx512vl")))

typedef short halves __attribute__((vector_size(64)));
typedef short half_vec __attribute__((vector_size(32)));
typedef uint16_t narrow __attribute__((vector_size(32)));
typedef uint32_t wide __attribute__((vector_size(64)));
typedef narrow narrow_at __attribute__((aligned(2), may_alias));
typedef halves halves_at __attribute__((aligned(2), may_alias));
typedef half_vec half_vec_at __attribute__((aligned(2), may_alias));
typedef int32_t pair_at __attribute__((aligned(2), may_alias));

#define ROWS    256
#define COLUMNS 192
#define INNER   1024
#define STRIP   16
#define TILE    8
#define WORK    (INNER / 2 * COLUMNS + ROWS * COLUMNS + INNER / 2 * STRIP) /* words of a thread */

typedef struct half_block {
    const tutti__half_product *p;
    int64_t row, rows, column, columns, k, inner;
    int32_t *packed; /* [panel][pair][PANEL] */
    float *sums;     /* [rows][COLUMNS] */
    int32_t *strip;  /* [pair][STRIP] */
} half_block;

/* ---- Packing ------------------------------------------------------------------------------------------------- */

/* Neighbours of `low` and `high` become pairs. */
INLINE halves interleave(halves both)
{
    return __builtin_shuffle(both, (halves){0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                            21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                            11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
}

/* 16 pairs from 16 numbers each at low and at high, of which n exist. NULL: zeros */
__attribute__((always_inline)) BF16 static inline halves pairs_of(const void *low, const void *high,
                                                                  int64_t n, bool f32)
{
    if (f32) {
        const vec x = low ? some_of(low, n) : (vec){0}, y = high ? some_of(high, n) : (vec){0};

        return interleave((halves)__builtin_ia32_cvtne2ps2bf16_v32hi(y, x));
    }
    if (n >= 16) {
        narrow x = {0}, y = {0};

        if (low)
            x = *(const narrow_at *)low;
        if (high)
            y = *(const narrow_at *)high;
        return (halves)(__builtin_convertvector(x, wide) | __builtin_convertvector(y, wide) << 16);
    }
    uint16_t both[32] __attribute__((aligned(64))) = {0};
    const size_t bytes = (size_t)min(n, 16) * 2;

    if (low)
        memcpy(both, low, bytes);
    if (high)
        memcpy(both + 16, high, bytes);
    return interleave(*(const halves_at *)both);
}

/* One panel of n columns that are contiguous. */
BF16 static void pack_half_rows(const half_block *q, int32_t *to, int64_t column, int64_t n)
{
    const tutti__half_product *p = q->p;
    const int64_t size = p->b_f32 ? 4 : 2;
    const char *b = (const char *)p->b + (q->k * p->b_k + column) * size;

    for (int64_t k = 0; k < q->inner; k += 2, to += PANEL, b += 2 * p->b_k * size)
        for (int64_t j = 0; j < PANEL; j += 16) {
            const char *low = j < n ? b + j * size : NULL;
            const char *high = j < n && k + 1 < q->inner ? low + p->b_k * size : NULL;

            *(halves *)(to + j) = pairs_of(low, high, n - j, p->b_f32);
        }
}

/* 32 numbers along the inner dimension, of which n exist, as pairs */
__attribute__((always_inline)) BF16 static inline vec along(const void *from, int64_t n, bool f32)
{
    if (f32) {
        const vec x = some_of(from, n);
        const vec y = n > 16 ? some_of((const float *)from + 16, n - 16) : (vec){0};

        return (vec)__builtin_ia32_cvtne2ps2bf16_v32hi(y, x);
    }
    if (n >= 32)
        return (vec) * (const halves_at *)from;
    uint16_t some[32] __attribute__((aligned(64))) = {0};

    memcpy(some, from, (size_t)n * 2);
    return (vec) * (const halves_at *)some;
}

/* One panel of n columns, each of which is contiguous. */
BF16 static void pack_half_columns(const half_block *q, int32_t *to, int64_t column, int64_t n)
{
    const tutti__half_product *p = q->p;
    const int64_t size = p->b_f32 ? 4 : 2, pairs = (q->inner + 1) / 2;
    const char *b = (const char *)p->b + (q->k + column * p->b_column) * size;

    for (int64_t j = 0; j < PANEL; j += 16)
        for (int64_t k = 0; k < pairs; k += 16) {
            vec lanes[W];

            for (int i = 0; i < W; i++)
                lanes[i] = j + i < n ? along(b + ((j + i) * p->b_column + 2 * k) * size,
                                             min(32, q->inner - 2 * k), p->b_f32)
                                     : (vec){0};
            transpose(lanes);
            for (int i = 0; i < W; i++)
                if (k + i < pairs)
                    *(vec *)(to + (k + i) * PANEL + j) = lanes[i];
        }
}

/* A strip of a, if its pairs are not contiguous, or a number is left over. */
BF16 static void pack_half_strip(const half_block *q, int64_t row, int64_t rows)
{
    const tutti__half_product *p = q->p;
    const uint16_t *a = p->a + row * p->a_row + q->k * p->a_k;

    for (int64_t k = 0; k < q->inner; k += 2, a += 2 * p->a_k) {
        const bool pair = k + 1 < q->inner;
        int32_t *to = q->strip + k / 2 * STRIP;

        if (p->a_row == 1) { /* of the strip after the next one, the lines */
            __builtin_prefetch(a + 2 * STRIP);
            __builtin_prefetch(a + p->a_k + 2 * STRIP);
        }
        if (p->a_row == 1)
            *(halves *)to = pairs_of(a, pair ? a + p->a_k : NULL, rows, false);
        else
            for (int64_t r = 0; r < rows; r++)
                to[r] = (int32_t)(a[r * p->a_row] |
                                  (pair ? (uint32_t)a[r * p->a_row + p->a_k] << 16 : 0));
    }
}

/* ---- Tiles --------------------------------------------------------------------------------------------------- */

typedef struct half_tile {
    const uint16_t *a;
    const int32_t *b;
    float *c;
    int64_t a_row, a_pair, pairs; /* steps of a in numbers */
    bool add;
} half_tile;

/* c[r][0 .. PANEL) = or += the sums of products */
__attribute__((always_inline)) BF16 static inline void multiply_half_tile(const half_tile *t,
                                                                          int rows)
{
    const uint16_t *a = t->a;
    const int32_t *b = t->b;
    const int64_t a_row = t->a_row, a_pair = t->a_pair;
    float *const c = t->c;
    vec sum[TILE][2];

    EACH (r, rows)
        EACH (i, 2)
            sum[r][i] = t->add ? *(const vec *)(c + r * COLUMNS + i * W) : (vec){0};
    for (int64_t k = t->pairs; k > 0; k--, a += a_pair, b += PANEL) {
        const halves y0 = *(const halves *)b, y1 = *(const halves *)(b + W);

        EACH (r, rows) {
            const veci x = *(const pair_at *)(a + r * a_row) - (veci){0};

            sum[r][0] = __builtin_ia32_dpbf16ps_v16sf(sum[r][0], (halves)x, y0);
            sum[r][1] = __builtin_ia32_dpbf16ps_v16sf(sum[r][1], (halves)x, y1);
        }
    }
    EACH (r, rows)
        EACH (i, 2)
            *(vec *)(c + r * COLUMNS + i * W) = sum[r][i];
}

#define HALF_TILE(rows)                                                                            \
    BF16 static __attribute__((noinline)) void half_##rows(const half_tile *t)                     \
    {                                                                                              \
        multiply_half_tile(t, rows);                                                               \
    }
#define HALF_NAME(rows) half_##rows,
#define EACH_HALF(f)    f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8)

EACH_HALF(HALF_TILE)
static void (*const half_rows[TILE])(const half_tile *t) = {EACH_HALF(HALF_NAME)};

/* ---- Blocks -------------------------------------------------------------------------------------------------- */

static void multiply_half_strip(const half_block *q, int64_t row, int64_t rows)
{
    const tutti__half_product *p = q->p;
    const bool packs = p->a_k != 1 || q->inner % 2 != 0;
    const int64_t pairs = (q->inner + 1) / 2;
    const uint16_t *a = packs ? (const uint16_t *)q->strip : p->a + row * p->a_row + q->k;
    half_tile t = {.a_row = packs ? 2 : p->a_row,
                   .a_pair = packs ? 2 * STRIP : 2,
                   .pairs = pairs,
                   .add = q->k > 0};

    if (packs)
        pack_half_strip(q, row, rows);
    for (int64_t j = 0; j < q->columns; j += PANEL)
        for (int64_t r = 0; r < rows; r += TILE) {
            t.a = a + r * t.a_row;
            t.b = q->packed + j * pairs;
            t.c = q->sums + (row - q->row + r) * COLUMNS + j;
            half_rows[min(TILE, rows - r) - 1](&t);
        }
}

/* Stores n of a row's sums. */
BF16 static void put_half_row(const tutti__half_product *p, int64_t row, int64_t column,
                              const float *sums, int64_t n)
{
    const int64_t at = row * p->c_step + column;

    for (int64_t j = 0; j < n; j += W) {
        vec v = *(const vec *)(sums + j);

        if (p->bias)
            v += some_of(p->bias + column + j, n - j);
        if (p->c_f32) {
            float *c = (float *)p->c + at + j;

            put_some(c, p->add ? v + some_of(c, n - j) : v, n - j);
        } else {
            const half_vec h = (half_vec)__builtin_ia32_cvtneps2bf16_v16sf(v);
            uint16_t *c = (uint16_t *)p->c + at + j;

            if (n - j >= W)
                *(half_vec_at *)c = h;
            else
                memcpy(c, &h, (size_t)(n - j) * 2);
        }
    }
}

static void multiply_half_block(half_block *q)
{
    const tutti__half_product *p = q->p;
    const int64_t n = (p->inner + INNER - 1) / INNER, inner = ((p->inner + n - 1) / n + 1) / 2 * 2;

    for (q->k = 0; q->k < p->inner; q->k += inner) {
        q->inner = min(inner, p->inner - q->k);
        for (int64_t j = 0; j < q->columns; j += PANEL)
            (p->b_column == 1 ? pack_half_rows : pack_half_columns)(
                q, q->packed + j * ((q->inner + 1) / 2), q->column + j, min(PANEL, q->columns - j));
        for (int64_t r = 0; r < q->rows; r += STRIP)
            multiply_half_strip(q, q->row + r, min(STRIP, q->rows - r));
    }
    for (int64_t r = 0; r < q->rows; r++)
        put_half_row(p, q->row + r, q->column, q->sums + r * COLUMNS, q->columns);
}

typedef struct half_jobs {
    const tutti__half_product *p;
    int64_t across; /* blocks of columns */
    int32_t *work;
} half_jobs;

static void half_job(void *arg, int64_t i, int member)
{
    const half_jobs *h = arg;
    int32_t *work = h->work + member * WORK;
    half_block q = {.p = h->p,
                    .row = i / h->across * ROWS,
                    .column = i % h->across * COLUMNS,
                    .packed = work,
                    .sums = (float *)(work + INNER / 2 * COLUMNS)};

    q.strip = (int32_t *)(q.sums + ROWS * COLUMNS);
    q.rows = min(ROWS, h->p->rows - q.row);
    q.columns = min(COLUMNS, h->p->columns - q.column);
    multiply_half_block(&q);
}

size_t tutti__multiply_half_work(const tutti_ctx *cx)
{
    return (size_t)(cx->threads * WORK) * sizeof(int32_t);
}

bool tutti__multiply_half(tutti_ctx *cx, const tutti__half_product *p, void *work)
{
    half_jobs h = {p, (p->columns + COLUMNS - 1) / COLUMNS, work};

    if (!__builtin_cpu_supports("avx512bf16"))
        return false;
    tutti__parallel(cx, half_job, &h, h.across * ((p->rows + ROWS - 1) / ROWS));
    return true;
}

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
