/* attention.c -- attention by blocks of queries and keys; scores exist for one block at a time.   SPDX-License-Identifier: MIT
 *
 * Forward (Milakov and Gimelshein: Online normalizer calculation for softmax, 2018): blocks of keys are passed in order; each query
 * keeps its largest score so far and the sum of exponentials relative to it, and what y has so far is scaled when a larger one comes.
 * Backward (Dao et al.: FlashAttention, 2022) has a block's probabilities from its scores and the rows' kept lse; then five
 * products. In both, a block of keys and values is packed once for all queries of the job, and blocks that no query sees are left
 * out.
 *
 * All products are of blocks that stay in the L2 cache, by tile.h's tiles. Exponentials are powers of 2: queries are packed multiplied
 * by scale * log2(e), and so scores are in units of log 2.
 *
 * Bits do not depend on the number of threads: blocks depend on the shape only, and a job writes what no other writes. In forward it
 * is CHUNK queries of a head, in backward a head of keys with all queries that share it. */
#include "tensor/kernel/vector/isa/attention_rows.h"

#include <string.h>

#define QUERIES                                                                                    \
    ((int64_t)32)            /* of a block: few, since half of a block on the diagonal is in vain */
#define KEYS  ((int64_t)128) /* the same; whole panels */
#define CHUNK (8 * QUERIES)

/* ---- Memory of a thread ------------------------------------------------------------------------------------------ */

typedef struct attention_work {
    const tutti__attention *a;
    tutti_ctx *cx;
    int64_t size, v_size; /* of rows below: a head's, in whole vectors */
    float *k_panels,
        *v_panels;  /* a block of keys and of values as the second factor of scores and of dp */
    float *k, *v;   /* the same, [KEYS][size] */
    float *dk, *dv; /* [KEYS][size] */
    float *q, *y;   /* [CHUNK][size], q scaled; in backward y is dy */
    float *dq;      /* [QUERIES][size] */
    float *s, *dp;  /* [QUERIES][KEYS] */
    float *largest, *sum, *factor; /* [CHUNK], [CHUNK], [KEYS] */
} attention_work;

typedef struct attention_jobs {
    const tutti__attention *a;
    tutti_ctx *cx;
    float *work;
} attention_jobs;

/* Divides `from`, NULL to count only; returns the number of floats. */
static int64_t divide(attention_work *w, const tutti__attention *a, float *from)
{
    const int64_t size = whole(a->size), v_size = whole(a->v_size);
    const struct {
        float **p;
        int64_t n;
    } parts[] = {
        {&w->k_panels, KEYS * size},
        {&w->v_panels, KEYS * v_size},
        {&w->k, KEYS * size},
        {&w->v, KEYS * v_size},
        {&w->dk, KEYS * size},
        {&w->dv, KEYS * v_size},
        {&w->q, CHUNK * size},
        {&w->y, CHUNK * v_size},
        {&w->dq, QUERIES * size},
        {&w->s, QUERIES * KEYS},
        {&w->dp, QUERIES * KEYS},
        {&w->largest, CHUNK},
        {&w->sum, CHUNK},
        {&w->factor, KEYS},
    };
    int64_t used = 0;

    w->a = a;
    w->size = size;
    w->v_size = v_size;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].p = from ? from + used : NULL;
        used += parts[i].n;
    }
    return used;
}

static attention_work work_of(const attention_jobs *t, int member)
{
    attention_work w = {.cx = t->cx};

    divide(&w, t->a, t->work + member * divide(&w, t->a, NULL));
    return w;
}

size_t tutti__attention_work(const tutti_ctx *cx, const tutti__attention *a)
{
    attention_work w;

    return (size_t)(cx->threads * divide(&w, a, NULL)) * sizeof(float);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* to[rows][whole(n)] = factor * rows of n floats, `step` apart, and zeros */
static void pack(float *to, const float *from, int64_t step, int64_t rows, int64_t n, float factor)
{
    for (int64_t r = 0; r < rows; r++, from += step)
        for (int64_t i = 0; i < n; i += W, to += W)
            *(vec *)to = factor * some_of(from + i, n - i);
}

/* The same rows as columns of panels [n][PANEL] */
static void pack_panels(float *to, const float *from, int64_t step, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r += PANEL)
        pack_columns(to + r * n, from + r * step, step, n, min(PANEL, rows - r), PANEL);
}

/* to[rows][n], rows `step` apart, = or += factor * packed rows */
static void unpack(float *to, int64_t step, const float *from, int64_t rows, int64_t n,
                   float factor, bool add)
{
    for (int64_t r = 0; r < rows; r++, to += step)
        for (int64_t i = 0; i < n; i += W, from += W) {
            vec v = factor * *(const vec *)from;

            if (add)
                v += some_of(to + i, n - i);
            put_some(to + i, v, n - i);
        }
}

/* c [rows][columns] = or += a b, in whole vectors; the panel of column j begins at t.b + j * b_column. */
static void multiply(register_tile t, int64_t b_column, int64_t rows, int64_t columns)
{
    const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const float *a = t.a, *b = t.b;
    float *c = t.c;

    for (int64_t j = 0; j < columns; j += PANEL) {
        t.b = b + j * b_column;
        for (int64_t i = 0, from = 0, end; i < tiles; i++, from = end) {
            end = (i + 1) * rows / tiles;
            t.a = a + from * t.a_row;
            t.c = c + from * t.c_row + j;
            multiply_rows[end - from - 1][columns - j > W](&t);
        }
    }
}

/* c [rows][KEYS] = a [rows][a_row] times n packed keys of `size` floats */
static void multiply_panels(float *c, const float *a, int64_t a_row, const float *panels,
                            int64_t rows, int64_t n, int64_t size)
{
    multiply((register_tile){.a = a,
                             .a_row = a_row,
                             .a_k = 1,
                             .b = panels,
                             .b_k = PANEL,
                             .c = c,
                             .c_row = KEYS,
                             .inner = size},
             size, rows, n);
}

/* c [rows][size] = or += scores [rows][n] times b [n][size] */
static void multiply_rows_of(float *c, const float *scores, const float *b, int64_t rows, int64_t n,
                             int64_t size, bool add)
{
    multiply((register_tile){.a = scores,
                             .a_row = KEYS,
                             .a_k = 1,
                             .b = b,
                             .b_k = size,
                             .c = c,
                             .c_row = size,
                             .inner = n,
                             .add = add},
             1, rows, size);
}

/* c [n][size] += scores [rows][n]^T times b [rows][size] */
static void multiply_columns_of(float *c, const float *scores, const float *b, int64_t rows,
                                int64_t n, int64_t size)
{
    multiply((register_tile){.a = scores,
                             .a_row = 1,
                             .a_k = KEYS,
                             .b = b,
                             .b_k = size,
                             .c = c,
                             .c_row = size,
                             .inner = rows,
                             .add = true},
             1, n, size);
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* Adds keys [j, j + n) to y of the `rows` queries from i on, the first of which is number `at` of the chunk; row: of i. */
static void forward_block(const attention_work *w, int64_t row, int64_t i, int64_t at, int64_t rows,
                          int64_t j, int64_t n)
{
    const tutti__attention *a = w->a;
    float *y = w->y + at * w->v_size;

    n = min(n, tutti__attention_keys(a, i + rows - 1) - j);
    if (n <= 0)
        return;
    multiply_panels(w->s, w->q + at * w->size, w->size, w->k_panels, rows, n, a->size);
    for (int64_t r = 0; r < rows; r++) {
        float *s = w->s + r * KEYS, less;

        mask_row(a, s, row + r, i + r, j, n);
        less = weigh_row(s, n, &w->largest[at + r], &w->sum[at + r]);
        for (int64_t d = 0; less != 1 && d < w->v_size; d += W)
            AT(y + r * w->v_size + d) *= less;
        if (a->dropout > 0) {
            tutti__attention_dropout(w->cx, a, row + r, j, w->factor, whole(n));
            multiply_row(s, w->factor, n);
        }
    }
    multiply_rows_of(y, w->s, w->v, rows, n, w->v_size, true);
}

/* y = the weighted sums divided by the sums of weights. */
static void finish_rows(const attention_work *w, float *y, int64_t row, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        const float sum = w->sum[r];

        unpack(y + r * w->a->y_at.row, 0, w->y + r * w->v_size, 1, w->a->v_size,
               sum == 0 ? 0 : 1 / sum, false);
        w->a->lse[row + r] = lse_of(w->largest[r], sum);
    }
}

static void forward_job(void *arg, int64_t number, int member)
{
    const attention_jobs *t = arg;
    const tutti__attention *a = t->a;
    const attention_work w = work_of(t, member);
    const int64_t heads = a->batch * a->heads, chunks = (a->queries + CHUNK - 1) / CHUNK;
    /* the last queries first, which see the most keys */
    const int64_t first = (chunks - 1 - number / heads) * CHUNK;
    const int64_t b = number % heads / a->heads, h = number % heads % a->heads;
    const int64_t kv = tutti__attention_kv(a, h), rows = min(CHUNK, a->queries - first);
    const int64_t keys = tutti__attention_keys(a, first + rows - 1);
    const int64_t row = tutti__attention_row(a, b, h, first);
    const float *k = a->k + b * a->k_at.batch + kv * a->k_at.head;
    const float *v = a->v + b * a->v_at.batch + kv * a->v_at.head;

    pack(w.q, a->q + b * a->q_at.batch + h * a->q_at.head + first * a->q_at.row, a->q_at.row, rows,
         a->size, a->scale * LOG2_E);
    memset(w.y, 0, (size_t)(rows * w.v_size) * sizeof *w.y);
    for (int64_t r = 0; r < rows; r++) {
        w.largest[r] = -INFINITY;
        w.sum[r] = 0;
    }
    for (int64_t j = 0; j < keys; j += KEYS) {
        const int64_t n = min(KEYS, keys - j);

        pack_panels(w.k_panels, k + j * a->k_at.row, a->k_at.row, n, a->size);
        pack(w.v, v + j * a->v_at.row, a->v_at.row, n, a->v_size, 1);
        for (int64_t i = 0; i < rows; i += QUERIES)
            forward_block(&w, row + i, first + i, i, min(QUERIES, rows - i), j, n);
    }
    finish_rows(&w, a->y + b * a->y_at.batch + h * a->y_at.head + first * a->y_at.row, row, rows);
}

void tutti__attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    const int64_t chunks = (a->queries + CHUNK - 1) / CHUNK;

    tutti__parallel(cx, forward_job, &(attention_jobs){a, cx, work}, a->batch * a->heads * chunks);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

static float product_of_rows(const float *a, const float *b, int64_t n)
{
    vec sum = {0};

    for (int64_t d = 0; d < n; d += W)
        sum = multiply_add(some_of(a + d, n - d), some_of(b + d, n - d), sum);
    ACROSS(sum, plus);
    return sum[0];
}

/* Adds what the queries [i, i + rows) of head h and the keys [j, j + n) give to the gradients. */
static void backward_block(const attention_work *w, int64_t b, int64_t h, int64_t i, int64_t rows,
                           int64_t j, int64_t n)
{
    const tutti__attention *a = w->a;
    const int64_t q_at = b * a->q_at.batch + h * a->q_at.head + i * a->q_at.row;
    const int64_t y_at = b * a->y_at.batch + h * a->y_at.head + i * a->y_at.row;
    const int64_t row = tutti__attention_row(a, b, h, i);

    n = min(n, tutti__attention_keys(a, i + rows - 1) - j);
    pack(w->q, a->q + q_at, a->q_at.row, rows, a->size, a->scale * LOG2_E);
    pack(w->y, a->dy + y_at, a->y_at.row, rows, a->v_size, 1);
    multiply_panels(w->s, w->q, w->size, w->k_panels, rows, n, a->size);
    multiply_panels(w->dp, w->y, w->v_size, w->v_panels, rows, n, a->v_size);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = y_at + r * a->y_at.row;
        float *s = w->s + r * KEYS;

        mask_row(a, s, row + r, i + r, j, n);
        if (a->dropout > 0)
            tutti__attention_dropout(w->cx, a, row + r, j, w->factor, whole(n));
        backward_row(s, w->dp + r * KEYS, n, a->lse[row + r],
                     product_of_rows(a->dy + at, a->y + at, a->v_size),
                     a->dropout > 0 ? w->factor : NULL);
    }
    if (a->dv)
        multiply_columns_of(w->dv, w->s, w->y, rows, n, w->v_size);
    if (a->dk)
        multiply_columns_of(w->dk, w->dp, w->q, rows, n, w->size);
    if (a->dq) {
        multiply_rows_of(w->dq, w->dp, w->k, rows, n, w->size, false);
        unpack(a->dq + q_at, a->q_at.row, w->dq, rows, a->size, a->scale, true);
    }
}

static void zero_dq(const tutti__attention *a, int64_t b, int64_t h)
{
    float *dq = a->dq + b * a->q_at.batch + h * a->q_at.head;

    for (int64_t i = 0; i < a->queries; i++)
        memset(dq + i * a->q_at.row, 0, (size_t)a->size * sizeof *dq);
}

static void backward_job(void *arg, int64_t number, int member)
{
    const attention_jobs *t = arg;
    const tutti__attention *a = t->a;
    const attention_work w = work_of(t, member);
    const int64_t b = number / a->kv_heads, kv = number % a->kv_heads;
    const int64_t group = a->heads / a->kv_heads, end = (kv + 1) * group;
    const int64_t k_at = b * a->k_at.batch + kv * a->k_at.head;
    const int64_t v_at = b * a->v_at.batch + kv * a->v_at.head;

    for (int64_t h = kv * group; a->dq && h < end; h++)
        zero_dq(a, b, h);
    for (int64_t j = 0; j < a->keys; j += KEYS) {
        const int64_t n = min(KEYS, a->keys - j), k_j = k_at + j * a->k_at.row,
                      v_j = v_at + j * a->v_at.row;
        const int64_t first = a->causal && j > a->diagonal ? j - a->diagonal : 0;

        pack_panels(w.k_panels, a->k + k_j, a->k_at.row, n, a->size);
        pack_panels(w.v_panels, a->v + v_j, a->v_at.row, n, a->v_size);
        pack(w.k, a->k + k_j, a->k_at.row, n, a->size, 1);
        memset(w.dk, 0, (size_t)(n * w.size) * sizeof *w.dk);
        memset(w.dv, 0, (size_t)(n * w.v_size) * sizeof *w.dv);
        for (int64_t h = kv * group; h < end; h++)
            for (int64_t i = first; i < a->queries; i += QUERIES)
                backward_block(&w, b, h, i, min(QUERIES, a->queries - i), j, n);
        if (a->dk)
            unpack(a->dk + k_j, a->k_at.row, w.dk, n, a->size, 1 / LOG2_E, false);
        if (a->dv)
            unpack(a->dv + v_j, a->v_at.row, w.dv, n, a->v_size, 1, false);
    }
}

void tutti__attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    tutti__parallel(cx, backward_job, &(attention_jobs){a, cx, work}, a->batch * a->kv_heads);
}
