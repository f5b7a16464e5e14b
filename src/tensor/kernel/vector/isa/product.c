/* product.c -- matrix products in F32, as linear layers need them.   SPDX-License-Identifier: MIT
 *
 * The usual blocking (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). A tile of c, TILE_ROWS
 * rows by two vectors, stays in registers during the loop over the inner dimension: one value of a times two vectors of b,
 * for each row. Two vectors of eight rows are 16 independent chains of additions, enough to hide their latency, so it runs
 * at the CPU's peak if b's vectors are contiguous and in the cache. The rest of this file ensures that:
 *
 *     for columns of c: for inner: pack b                        PACKED values of it, into panels of two vectors
 *                                  for rows of c: pack a         a strip, INNER x STRIP, if it is transposed
 *                                                 for panels: for tiles of the strip: the tile += a b
 *
 * - A strip (16 KiB a tile) stays in the L1 cache while all panels are processed, the packed block (384 KiB) in the L2
 *   cache during all strips. A longer INNER reads and writes c less often, but then panels that are read in place do not stay in the
 *   L1 cache (512: 15 to 30 % slower with 32 rows, and not measurably faster where b is packed).
 * - Matrices larger than the caches, as those of a vocabulary's head, are read from memory once if possible: all of b is packed
 *   before, and TALL rows of a are multiplied by all of it, or all columns by a block of the inner dimension. A large c, such as a
 *   weight's gradient, is stored past the cache.
 * - Packing b costs a load and a store per element, and pays if many rows use it. FEW rows (dx of a small batch) read it
 *   in place, once; each panel prefetches the rows of the next.
 * - y = x w^T: b would be w^T, and transposing all of w costs more than multiplying by it for a small batch. So y^T = w
 *   x^T is computed: the batch is along the vectors, and x is transposed, W x W at a time in registers, and so is each tile
 *   of c.
 * - There a small batch would leave lanes empty, so rows of w are along the vectors, which are transposed, W x W at a time in registers,
 *   and not stored.
 *
 * Each element of c is summed along the inner dimension in one order, which follows from the length of that dimension alone; so neither
 * threads nor the other rows and columns change its bits. A sample has the same ones in a batch of any size. */
#include "tensor/kernel/vector/isa/pack.h"

#define STRIP    (TILE_ROWS == 8 ? 16 : 3 * W) /* whole tiles, and whole vectors */
#define INNER    256
#define PACKED   ((int64_t)96 << 10) /* floats of b in a block: 384 KiB */
#define WHOLE    ((int64_t)1 << 20)  /* floats of b that are packed once for all rows */
#define TALL     256                 /* rows that are multiplied by all of it at a time */
#define STREAMED ((int64_t)1 << 20)  /* floats of c: 4 MiB */
#define FEW      64                  /* rows */

#define AHEAD 16 /* rows of b that are requested before they are packed */

/* ---- Packing ------------------------------------------------------------------------------------------------- */

/* The width of a panel for n columns. */
INLINE int64_t width_of(int64_t n)
{
    return n > W ? PANEL : W;
}

/* Packs panels [k][width] of n columns of b, whose rows are b_k apart. */
static void pack_rows(float *to, const float *b, int64_t b_k, int64_t inner, int64_t n)
{
    const int64_t full = n / PANEL * PANEL, width = width_of(n - full);

    for (int64_t k = 0; k < inner; k++, b += b_k) {
        const float *ahead = k + AHEAD < inner ? b + AHEAD * b_k : b;

        for (int64_t j = 0; j < full; j += PANEL)
            for (int64_t i = 0; i < PANEL; i += W) {
                if (i * 4 % 64 == 0)
                    __builtin_prefetch(ahead + j + i);
                *(vec *)(to + j * inner + k * PANEL + i) = *(const vec_at *)(b + j + i);
            }
        for (int64_t i = 0; full < n && i < width; i += W)
            *(vec *)(to + full * inner + k * width + i) = some_of(b + full + i, n - full - i);
    }
}

/* strip[k][STRIP] from rows of a that are contiguous along the rows */
static void pack_strip(float *strip, const float *a, int64_t a_k, int64_t inner, int64_t rows)
{
    for (int64_t k = 0; k < inner; k++)
        for (int64_t r = 0; r < rows; r += W)
            *(vec *)(strip + k * STRIP + r) = some_of(a + k * a_k + r, rows - r);
}

/* ---- Blocks -------------------------------------------------------------------------------------------------- */

typedef struct block {
    const tutti__product *p;
    bool packs;   /* b; columns that fill no panel are packed in any case */
    bool streams; /* c, if each element is stored once */
    int64_t row, rows, column, columns, k, inner;
    float *packed, *strip;
} block;

/* Adds a buffer [rows][PANEL] to n columns of c from (row, column) on; the first block of the inner dimension sets c. */
static void put(const block *q, int64_t row, int64_t rows, int64_t column, int64_t n,
                const float *buffer)
{
    const tutti__product *p = q->p;
    float *c = p->c + row * p->c_step + column;

    for (int64_t r = 0; r < rows; r++, c += p->c_step)
        for (int64_t i = 0; i < n; i += W) {
            vec v = *(const vec *)(buffer + r * PANEL + i);

            if (p->add || q->k > 0)
                v += some_of(c + i, n - i);
            put_some(c + i, v, n - i);
        }
}

/* The same if c's columns are contiguous, by squares. */
static void put_transposed(const block *q, int64_t row, int64_t rows, int64_t column, int64_t n,
                           const float *buffer)
{
    const tutti__product *p = q->p;

    for (int64_t j = 0; j < n; j += W)
        for (int64_t r = 0; r < rows; r += W) {
            float *c = p->c + row + r + (column + j) * p->c_step;
            vec lanes[W];

            for (int i = 0; i < W; i++)
                lanes[i] = *(const vec *)(buffer + (r + i) * PANEL + j);
            transpose(lanes);
            for (int i = 0; i < W && j + i < n; i++, c += p->c_step) {
                if (q->k > 0)
                    lanes[i] += some_of(c, rows - r);
                else if (p->bias)
                    lanes[i] += some_of(p->bias + row + r, rows - r);
                put_some(c, lanes[i], rows - r);
            }
        }
}

/* Up to STRIP rows. */
static void multiply_strip(const block *q, int64_t row, int64_t rows)
{
    const tutti__product *p = q->p;
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const float *a = p->a + row * p->a_row + q->k * p->a_k;
    register_tile t = {.a_row = p->a_row, .a_k = p->a_k, .inner = q->inner};
    float buffer[STRIP * PANEL] __attribute__((aligned(64)));

    if (p->a_row == 1 && q->columns > 2 * PANEL) {
        pack_strip(q->strip, a, p->a_k, q->inner, rows);
        a = q->strip;
        t.a_k = STRIP;
    }
    for (int64_t j = 0; j < q->columns; j += PANEL) {
        const int64_t n = min(PANEL, q->columns - j), column = q->column + j;
        const bool direct = !p->transposed && n % W == 0;

        t.b = q->packs     ? q->packed + j * q->inner
              : n == PANEL ? p->b + q->k * p->b_k + column
                           : q->packed;
        t.b_k = q->packs || n < PANEL ? width_of(n) : p->b_k;
        t.c_row = direct ? p->c_step : PANEL;
        t.add = direct && (p->add || q->k > 0);
        t.streams = direct && q->streams && n % PANEL == 0;
        for (int64_t i = 0, from = 0, end; i < tiles; i++, from = end) {
            end = (i + 1) * rows / tiles; /* nearly as many rows in each */
            t.a = a + from * t.a_row;
            t.c = direct ? p->c + (row + from) * p->c_step + column : buffer + from * PANEL;
            multiply_rows[end - from - 1][n > W](&t);
        }
        if (p->transposed)
            put_transposed(q, row, rows, column, n, buffer);
        else if (!direct)
            put(q, row, rows, column, n, buffer);
    }
}

/* ---- Few columns ----------------------------------------------------------------------------------------------- */

/* n columns of c, whose rows are contiguous: W rows from `row` on. Prefetches the rows that follow. */
INLINE void multiply_few(const block *q, int64_t row, int n)
{
    const tutti__product *p = q->p;
    const float *a = p->a + row * p->a_row + q->k, *b = p->b + q->column * p->b_column + q->k;
    float *c = p->c + row + q->column * p->c_step;
    vec sum[TILE_ROWS], lanes[W];
    int64_t k = 0;

    EACH (j, n)
        sum[j] = (vec){0};
    for (; k + W <= q->inner; k += W) {
        for (int i = 0; i < W && k % 16 == 0; i++)
            __builtin_prefetch(a + (W + i) * p->a_row + k, 0, 2);
        load_transposed(lanes, a + k, p->a_row);
        EACH (i, W)
            EACH (j, n)
                sum[j] = axpy(b[j * p->b_column + k + i], lanes[i], sum[j]);
    }
    for (; k < q->inner; k++) {
        vec one;

        for (int i = 0; i < W; i++)
            one[i] = a[i * p->a_row + k];
        EACH (j, n)
            sum[j] = axpy(b[j * p->b_column + k], one, sum[j]);
    }
    EACH (j, n) {
        float *at = c + j * p->c_step;

        if (q->k > 0)
            sum[j] += *(const vec_at *)at;
        else if (p->bias)
            sum[j] += *(const vec_at *)(p->bias + row);
        *(vec_at *)at = sum[j];
    }
}

#define MULTIPLY_FEW(n)                                                                            \
    static __attribute__((noinline)) void multiply_few_##n(const block *q, int64_t row)            \
    {                                                                                              \
        multiply_few(q, row, n);                                                                   \
    }
#define FEW_NAMES(n) multiply_few_##n,

EACH_ROWS(MULTIPLY_FEW)
static void (*const multiply_columns[TILE_ROWS])(const block *q,
                                                 int64_t row) = {EACH_ROWS(FEW_NAMES)};

/* ---- Strips ----------------------------------------------------------------------------------------------------- */

static void pack_block(const block *q)
{
    const tutti__product *p = q->p;
    const float *b = p->b + q->k * p->b_k + q->column * p->b_column;
    const int64_t full = q->packs ? 0 : q->columns / PANEL * PANEL;

    if (p->b_column == 1)
        pack_rows(q->packed, b + full, p->b_k, q->inner, q->columns - full);
    else
        for (int64_t j = 0; j < q->columns; j += PANEL)
            pack_columns(q->packed + j * q->inner, b + j * p->b_column, p->b_column, q->inner,
                         min(PANEL, q->columns - j), width_of(min(PANEL, q->columns - j)));
}

static void multiply_strips(const block *q)
{
    int64_t r = 0;

    for (; q->p->transposed && q->columns <= TILE_ROWS && r + W <= q->rows; r += W)
        multiply_columns[q->columns - 1](q, q->row + r);
    for (; r < q->rows; r += STRIP)
        multiply_strip(q, q->row + r, min(STRIP, q->rows - r));
}

/* ---- The whole product ----------------------------------------------------------------------------------------- */

#define PART_PRODUCTS ((int64_t)1 << 19) /* multiplications per part, at least */
#define PART_SIDE     (4 * STRIP) /* rows or columns per part, at least: each packs separately */

typedef struct parts {
    const tutti__product *p;
    bool packs, by_rows;
    int64_t size;               /* rows or columns of each but the last */
    int64_t n;                  /* of one product */
    int64_t products, together; /* with a c of their own; products per job, if each is one part */
    int64_t sums;               /* products that are added up in each c */
    int64_t each;               /* floats of work per thread: a strip, then what is packed */
    float *work;
} parts;

/* Product `number` of those with a c of their own, or of those added up in it: moves to its matrices. */
static void find_product(tutti__product *p, int64_t number, bool summed)
{
    for (int i = p->n_batch - 1; i >= 0; i--) {
        const int64_t at = number % p->batch[i];

        if ((p->c_batch[i] == 0) != summed)
            continue;
        p->a += at * p->a_batch[i];
        p->b += at * p->b_batch[i];
        p->c += at * p->c_batch[i];
        number /= p->batch[i];
    }
}

/* The inner dimension in nearly equal blocks. By its length alone: sums depend on it. */
static int64_t inner_of_block(const parts *t)
{
    const int64_t n = (t->p->inner + INNER - 1) / INNER;

    return (t->p->inner + n - 1) / n;
}

#define STRIPS (INNER * STRIP) /* floats of a strip, at most */

static int64_t whole_panels(int64_t columns)
{
    return (columns + PANEL - 1) / PANEL * PANEL;
}

/* Whether a part of that many rows and columns packs all of its b at once. */
static bool is_tall(const parts *t, int64_t rows, int64_t columns)
{
    return t->packs && rows > TALL && whole_panels(columns) * t->p->inner <= WHOLE;
}

/* Floats of b that such a part packs at a time. */
static int64_t packed_by(const parts *t, int64_t rows, int64_t columns)
{
    const int64_t inner = inner_of_block(t);

    if (is_tall(t, rows, columns))
        return whole_panels(columns) * t->p->inner;
    return t->packs ? min(PACKED, whole_panels(columns) * inner) : PANEL * inner;
}

/* What a part multiplies, in blocks of at most `inner` and `columns`. */
typedef struct span {
    int64_t inner, column, column_end, columns;
} span;

static void set_columns(block *q, const span *s, int64_t column)
{
    q->column = column;
    q->columns = min(s->columns, s->column_end - column);
}

static void set_inner(block *q, const span *s, int64_t k)
{
    q->k = k;
    q->inner = min(s->inner, q->p->inner - k);
}

static int64_t packed_size(const block *q)
{
    return (q->columns + PANEL - 1) / PANEL * PANEL * q->inner;
}

/* All of b is packed first, so that each row of a is read from memory once. */
static void multiply_tall(block q, const span *s)
{
    const int64_t row = q.row, row_end = q.row + q.rows;
    float *const packed = q.packed;

    for (int64_t r = row; r < row_end; r += TALL) {
        q.row = r;
        q.rows = min(TALL, row_end - r);
        q.packed = packed;
        for (int64_t c = s->column; c < s->column_end; c += s->columns)
            for (int64_t k = 0; k < q.p->inner; k += s->inner) {
                set_columns(&q, s, c);
                set_inner(&q, s, k);
                if (r == row)
                    pack_block(&q);
                multiply_strips(&q);
                q.packed += packed_size(&q);
            }
    }
}

static void multiply_one(block *q, const span *s, int64_t column, int64_t k)
{
    set_columns(q, s, column);
    set_inner(q, s, k);
    pack_block(q);
    multiply_strips(q);
}

/* Whichever of a and c is large is read once: a by all columns of a block of the inner dimension, or c by all of that. */
static void multiply_blocks(block q, const span *s)
{
    const int64_t inner = q.p->inner, columns = s->column_end - s->column;

    if (q.rows * inner > WHOLE && columns < inner / 4)
        for (int64_t k = 0; k < inner; k += s->inner)
            for (int64_t c = s->column; c < s->column_end; c += s->columns)
                multiply_one(&q, s, c, k);
    else
        for (int64_t c = s->column; c < s->column_end; c += s->columns)
            for (int64_t k = 0; k < inner; k += s->inner)
                multiply_one(&q, s, c, k);
}

/* Whether c goes past the cache: large, like a weight's gradient, which the optimizer reads when all are computed. */
static bool streams(const tutti__product *p, int64_t inner)
{
    return !p->add && !p->transposed && inner == p->inner && p->rows * p->columns >= STREAMED &&
           (uintptr_t)p->c % (W * sizeof(float)) == 0 && p->c_step % W == 0;
}

static void multiply_part(const parts *t, const tutti__product *p, int64_t number, float *work)
{
    const int64_t first = number * t->size;
    const int64_t end = min(first + t->size, t->by_rows ? p->rows : p->columns);
    const int64_t inner = inner_of_block(t);
    const span s = {.inner = inner,
                    .column = t->by_rows ? 0 : first,
                    .column_end = t->by_rows ? p->columns : end,
                    .columns = t->packs ? PACKED / inner / PANEL * PANEL : p->columns};
    const block q = {.p = p,
                     .packs = t->packs,
                     .streams = streams(p, inner),
                     .row = t->by_rows ? first : 0,
                     .rows = t->by_rows ? end - first : p->rows,
                     .packed = work + STRIPS,
                     .strip = work};

    if (is_tall(t, q.rows, s.column_end - s.column))
        multiply_tall(q, &s);
    else
        multiply_blocks(q, &s);
    if (q.streams)
        streamed();
}

static void multiply_job(void *arg, int64_t number, int member)
{
    const parts *t = arg;
    const int64_t first = number / t->n * t->together;

    for (int64_t i = first; i < min(first + t->together, t->products); i++) {
        tutti__product of = *t->p;

        find_product(&of, i, false);
        for (int64_t k = 0; k < t->sums; k++) {
            tutti__product p = of;

            find_product(&p, k, true);
            p.add = p.add || k > 0;
            multiply_part(t, &p, number % t->n, t->work + member * t->each);
        }
    }
}

/* All but the work. */
static parts parts_of(const tutti_ctx *cx, const tutti__product *p)
{
    const int64_t all = p->rows * p->columns * p->inner;
    parts t = {.p = p, .packs = p->b_column != 1 || p->rows > FEW, .products = 1, .sums = 1};
    int64_t of, n, last;

    for (int i = 0; i < p->n_batch; i++)
        *(p->c_batch[i] ? &t.products : &t.sums) *= p->batch[i];
    t.by_rows = p->rows > p->columns;
    of = t.by_rows ? p->rows : p->columns;
    n = cx->threads < 2 || t.products >= 4 * cx->threads
            ? 1
            : min(4 * cx->threads, all * t.sums / PART_PRODUCTS);
    t.size = n < 2 ? of : ((of + n - 1) / n + PART_SIDE - 1) / PART_SIDE * PART_SIDE;
    t.n = (of + t.size - 1) / t.size;
    t.together = t.n > 1 ? 1 : min(t.products, PART_PRODUCTS / (all * t.sums) + 1);
    last = of - (t.n - 1) * t.size;
    t.each = t.by_rows ? packed_by(&t, min(t.size, of), p->columns)
                       : packed_by(&t, p->rows, min(t.size, of));
    n = t.by_rows ? packed_by(&t, last, p->columns) : packed_by(&t, p->rows, last);
    t.each = STRIPS + (n > t.each ? n : t.each);
    return t;
}

size_t tutti__multiply_work(const tutti_ctx *cx, const tutti__product *p)
{
    return (size_t)(cx->threads * parts_of(cx, p).each) * sizeof(float);
}

void tutti__multiply(tutti_ctx *cx, const tutti__product *p, void *work)
{
    parts t = parts_of(cx, p);

    t.work = work;
    tutti__parallel(cx, multiply_job, &t, (t.products + t.together - 1) / t.together * t.n);
}
