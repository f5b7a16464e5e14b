/* attention.cu -- attention (tensor/attention.h) by tiles: no matrix of queries by keys exists.   SPDX-License-Identifier: MIT
 *
 * A block has a tile of rows, and passes over the tiles of the other side in order: of queries over keys for y and dq, of keys over
 * queries for dk and dv. So every sum is one block's, in the same order each time. A tile of scores is a product of rows, whose inner
 * dimension comes through shared memory part by part; each warp has whole rows of it, so that their maximum and sum need no memory.
 * Wide heads are computed COLUMNS columns at a time, by blocks that have the scores in common. */
#include "base/real_f32.h"
#include "device/cuda/module/reduce.cuh"
#include "tensor/kernel/cuda/module/families.cuh"
#include "tensor/kernel/cuda/module/philox.cuh"

static constexpr int TILE = WARP, COLUMNS = 128;
static constexpr int WARPS = THREADS / WARP, ROWS = TILE / WARPS; /* of a thread */

/* A thread's part of a tile of scores: rows row_in(t, r), column t % WARP. */
struct Scores {
    float v[ROWS];
};
/* Of a tile of results: the same rows, columns t % WARP + c * WARP. */
struct Results {
    float v[ROWS][COLUMNS / WARP];
};
struct Sums {
    double v[ROWS];
};

DEVICE int row_in(int t, int r)
{
    return t / WARP + r * WARPS;
}

/* Some rows of an array. */
struct Matrix {
    const float *p;
    int64_t step, rows, columns;
};

DEVICE float in_matrix(const Matrix &m, int64_t row, int64_t column)
{
    return row < m.rows && column < m.columns ? m.p[row * m.step + column] : 0;
}

/* s = a b^T */
DEVICE void products(Own<Scores> &s, const Matrix &a, const Matrix &b)
{
    SHARED float left[TILE][TILE + 1], right[TILE][TILE + 1];

    EACH_THREAD(t)
    {
        for (int r = 0; r < ROWS; r++)
            s[t].v[r] = 0;
    }
    for (int64_t from = 0; from < a.columns; from += TILE) {
        block_barrier(); /* all have read what is overwritten */
        EACH_THREAD(t)
        {
            for (int r = 0; r < ROWS; r++) {
                left[row_in(t, r)][t % WARP] = in_matrix(a, row_in(t, r), from + t % WARP);
                right[row_in(t, r)][t % WARP] = in_matrix(b, row_in(t, r), from + t % WARP);
            }
        }
        block_barrier();
        EACH_THREAD(t)
        {
            for (int d = 0; d < TILE; d++)
                for (int r = 0; r < ROWS; r++)
                    s[t].v[r] += left[row_in(t, r)][d] * right[t % WARP][d];
        }
    }
}

/* y += weights b */
DEVICE void add_product(Own<Results> &y, const float (*weights)[TILE + 1], const Matrix &b)
{
    SHARED float right[TILE][COLUMNS];

    block_barrier();
    EACH_THREAD(t)
    {
        for (int i = t / WARP; i < TILE; i += WARPS)
            for (int c = t % WARP; c < COLUMNS; c += WARP)
                right[i][c] = in_matrix(b, i, c);
    }
    block_barrier();
    EACH_THREAD(t)
    {
        for (int i = 0; i < TILE; i++)
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < COLUMNS / WARP; c++)
                    y[t].v[r][c] += weights[row_in(t, r)][i] * right[i][t % WARP + c * WARP];
    }
}

DEVICE void clear(Own<Results> &y)
{
    EACH_THREAD(t)
    {
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS / WARP; c++)
                y[t].v[r][c] = 0;
    }
}

/* ---- Places -------------------------------------------------------------------------------------------------- */

BOTH int64_t parts_of(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

/* What block_index() is: of `heads` heads with tiles of `rows` rows and of `columns` columns. */
struct Block {
    int64_t b, h, row, column;
};

DEVICE Block block_of(int64_t heads, int64_t rows, int64_t columns)
{
    const int64_t tiles = parts_of(rows, TILE), chunks = parts_of(columns, COLUMNS);
    const int64_t head = block_index() / chunks / tiles;

    return {head / heads, head % heads, block_index() / chunks % tiles * TILE,
            block_index() % chunks * COLUMNS};
}

static int64_t blocks_of_heads(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    return batch * heads * parts_of(rows, TILE) * parts_of(columns, COLUMNS);
}

DEVICE int64_t at_least_0(int64_t n)
{
    return n > 0 ? n : 0;
}

/* Rows from `row` on of head h of sample b, at most a tile of them; columns from `column` on. */
DEVICE Matrix matrix_of(const float *p, const tutti__attention_at &at, int64_t b, int64_t h,
                        int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    return {p + b * at.batch + h * at.head + row * at.row + column, at.row, at_least_0(rows - row),
            at_least_0(columns - column)};
}

DEVICE void store(float *p, const tutti__attention_at &at, const Block &k, int64_t rows,
                  int64_t columns, Own<Results> &y)
{
    EACH_THREAD(t)
    {
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS / WARP; c++) {
                const int64_t row = k.row + row_in(t, r), column = k.column + t % WARP + c * WARP;

                if (row < rows && column < columns)
                    p[k.b * at.batch + k.h * at.head + row * at.row + column] = y[t].v[r][c];
            }
    }
}

/* ---- Scores -------------------------------------------------------------------------------------------------- */

/* The score of query i and key j of a product; -infinity: the key takes no part. */
DEVICE float score_of(const tutti__attention &c, int64_t b, int64_t h, int64_t i, int64_t j,
                      float product)
{
    const float *mask;

    if (i >= c.queries || j >= tutti__attention_keys(&c, i))
        return -INFINITY;
    mask = tutti__attention_mask(&c, tutti__attention_row(&c, b, h, i));
    return c.scale * product + (mask ? mask[j * c.mask_step] : 0);
}

/* Dropout's factor (tutti__attention_dropout). */
DEVICE float factor_of(const tutti__attention &c, const tutti__cuda_mask &mask, int64_t row,
                       int64_t j)
{
    uint32_t word[4];

    if (c.dropout == 0)
        return 1;
    philox(mask, (uint32_t)(tutti__attention_whole_row(&c, row) * ((c.keys + 3) / 4) + j / 4),
           word);
    return drops(word[j % 4], c.dropout) ? 0 : c.dropout < 1 ? 1 / (1 - c.dropout) : 0;
}

/* ---- Forward ------------------------------------------------------------------------------------------------- */

/* The weights of a tile of scores, exp(score - the largest so far) in place of them; what was summed up before is multiplied by what the
 * largest has changed. */
DEVICE void weigh(Own<Scores> &s, Own<Scores> &largest, Own<Sums> &sum, Own<Results> &y)
{
    Own<float> x;

    for (int r = 0; r < ROWS; r++) {
        EACH_THREAD(t)
        {
            x[t] = s[t].v[r];
        }
        reduce<WARP>(x, Max());
        EACH_THREAD(t)
        {
            const float before = largest[t].v[r], now = x[t] > before ? x[t] : before;
            const float less = before == -INFINITY ? 0 : tutti__exp_f32(before - now);

            s[t].v[r] = s[t].v[r] == -INFINITY ? 0 : tutti__exp_f32(s[t].v[r] - now);
            for (int c = 0; c < COLUMNS / WARP; c++)
                y[t].v[r][c] *= less;
            sum[t].v[r] *= (double)less;
            largest[t].v[r] = now;
            x[t] = s[t].v[r];
        }
        reduce<WARP>(x, Sum());
        EACH_THREAD(t)
        {
            sum[t].v[r] += (double)x[t];
        }
    }
}

KERNEL void attention_kernel(const tutti__attention c, const tutti__cuda_mask mask)
{
    SHARED float weights[TILE][TILE + 1];
    const Block k = block_of(c.heads, c.queries, c.v_size);
    const int64_t kv = tutti__attention_kv(&c, k.h), last = k.row + TILE - 1;
    const int64_t end = tutti__attention_keys(&c, last < c.queries ? last : c.queries - 1);
    const Matrix q = matrix_of(c.q, c.q_at, k.b, k.h, k.row, c.queries, 0, c.size);
    Own<Scores> s, largest;
    Own<Sums> sum;
    Own<Results> y;

    clear(y);
    EACH_THREAD(t)
    {
        for (int r = 0; r < ROWS; r++) {
            largest[t].v[r] = -INFINITY;
            sum[t].v[r] = 0;
        }
    }
    for (int64_t key = 0; key < end; key += TILE) {
        products(s, q, matrix_of(c.k, c.k_at, k.b, kv, key, c.keys, 0, c.size));
        EACH_THREAD(t)
        {
            for (int r = 0; r < ROWS; r++)
                s[t].v[r] = score_of(c, k.b, k.h, k.row + row_in(t, r), key + t % WARP, s[t].v[r]);
        }
        weigh(s, largest, sum, y);
        EACH_THREAD(t)
        {
            for (int r = 0; r < ROWS; r++) {
                const int64_t row = tutti__attention_row(&c, k.b, k.h, k.row + row_in(t, r));

                weights[row_in(t, r)][t % WARP] =
                    s[t].v[r] * factor_of(c, mask, row, key + t % WARP);
            }
        }
        add_product(y, weights, matrix_of(c.v, c.v_at, k.b, kv, key, c.keys, k.column, c.v_size));
    }
    EACH_THREAD(t)
    {
        for (int r = 0; r < ROWS; r++) {
            const int64_t i = k.row + row_in(t, r);
            const double all = sum[t].v[r];

            for (int n = 0; n < COLUMNS / WARP; n++)
                y[t].v[r][n] = all == 0 ? 0 : (float)((double)y[t].v[r][n] / all);
            if (i < c.queries && t % WARP == 0 && k.column == 0)
                c.lse[tutti__attention_row(&c, k.b, k.h, i)] =
                    all == 0 ? INFINITY : (float)((double)largest[t].v[r] + tutti__log_normal(all));
        }
    }
    store(c.y, c.y_at, k, c.queries, c.v_size, y);
}

tutti_status tutti__own_attention(int device, void *stream, const tutti__attention *c,
                                  const tutti__cuda_mask *mask)
{
    return launch(device, stream, blocks_of_heads(c->batch, c->heads, c->queries, c->v_size),
                  attention_kernel, *c, *mask);
}

/* ---- Backward: p = exp(s - lse), ds = p (f dy v^T - sum(dy y)) ------------------------------------------------- */

/* sum(dy y) of each row. */
KERNEL void attention_sums_kernel(const tutti__attention c, float *sums)
{
    Own<float> x;

    EACH_THREAD(t)
    {
        const int64_t row = block_index() * WARPS + t / WARP, i = row % c.queries;
        const int64_t h = row / c.queries % c.heads, b = row / c.queries / c.heads;
        const int64_t at = b * c.y_at.batch + h * c.y_at.head + i * c.y_at.row;

        x[t] = 0;
        if (b < c.batch)
            for (int64_t d = t % WARP; d < c.v_size; d += WARP)
                x[t] += c.dy[at + d] * c.y[at + d];
    }
    reduce<WARP>(x, Sum());
    EACH_THREAD(t)
    {
        const int64_t row = block_index() * WARPS + t / WARP;

        if (t % WARP == 0 && row < c.batch * c.heads * c.queries)
            sums[row] = x[t];
    }
}

/* Of query i and key j: p f, which meets dy, and the gradient of the score. */
struct Pair {
    float p, ds;
};

DEVICE Pair pair_of(const tutti__attention &c, const tutti__cuda_mask &mask, const float *sums,
                    int64_t b, int64_t h, int64_t i, int64_t j, float product, float dp)
{
    const float s = score_of(c, b, h, i, j, product);
    int64_t row;
    float p, f;

    if (s == -INFINITY)
        return {0, 0};
    row = tutti__attention_row(&c, b, h, i);
    if (c.lse[row] == INFINITY)
        return {0, 0};
    p = tutti__exp_f32(s - c.lse[row]);
    f = factor_of(c, mask, row, j);
    return {p * f, p * (f * dp - sums[row])};
}

KERNEL void attention_dq_kernel(const tutti__attention c, const tutti__cuda_mask mask,
                                const float *sums)
{
    SHARED float weights[TILE][TILE + 1];
    const Block k = block_of(c.heads, c.queries, c.size);
    const int64_t kv = tutti__attention_kv(&c, k.h), last = k.row + TILE - 1;
    const int64_t end =
        c.dscores ? c.keys : tutti__attention_keys(&c, last < c.queries ? last : c.queries - 1);
    const Matrix q = matrix_of(c.q, c.q_at, k.b, k.h, k.row, c.queries, 0, c.size);
    const Matrix dy = matrix_of(c.dy, c.y_at, k.b, k.h, k.row, c.queries, 0, c.v_size);
    Own<Scores> s, dp;
    Own<Results> dq;

    clear(dq);
    for (int64_t key = 0; key < end; key += TILE) {
        products(s, q, matrix_of(c.k, c.k_at, k.b, kv, key, c.keys, 0, c.size));
        products(dp, dy, matrix_of(c.v, c.v_at, k.b, kv, key, c.keys, 0, c.v_size));
        EACH_THREAD(t)
        {
            for (int r = 0; r < ROWS; r++) {
                const int64_t i = k.row + row_in(t, r), j = key + t % WARP;
                const Pair of = pair_of(c, mask, sums, k.b, k.h, i, j, s[t].v[r], dp[t].v[r]);

                weights[row_in(t, r)][t % WARP] = c.scale * of.ds;
                if (c.dscores && i < c.queries && j < c.keys)
                    c.dscores[tutti__attention_row(&c, k.b, k.h, i) * c.keys + j] = of.ds;
            }
        }
        add_product(dq, weights, matrix_of(c.k, c.k_at, k.b, kv, key, c.keys, k.column, c.size));
    }
    if (c.dq)
        store(c.dq, c.q_at, k, c.queries, c.size, dq);
}

/* The first query that sees key j. */
DEVICE int64_t first_query(const tutti__attention &c, int64_t j)
{
    return c.causal ? at_least_0(j - c.diagonal) / TILE * TILE : 0;
}

KERNEL void attention_dkv_kernel(const tutti__attention c, const tutti__cuda_mask mask,
                                 const float *sums)
{
    SHARED float weights[TILE][TILE + 1], slopes[TILE][TILE + 1];
    const Block n = block_of(c.kv_heads, c.keys, c.size > c.v_size ? c.size : c.v_size);
    const Matrix k = matrix_of(c.k, c.k_at, n.b, n.h, n.row, c.keys, 0, c.size);
    const Matrix v = matrix_of(c.v, c.v_at, n.b, n.h, n.row, c.keys, 0, c.v_size);
    const int64_t group = c.heads / c.kv_heads;
    Own<Scores> s, dp;
    Own<Results> dk, dv;

    clear(dk);
    clear(dv);
    for (int64_t h = n.h * group; h < (n.h + 1) * group; h++)
        for (int64_t i = first_query(c, n.row); i < c.queries; i += TILE) {
            products(s, k, matrix_of(c.q, c.q_at, n.b, h, i, c.queries, 0, c.size));
            products(dp, v, matrix_of(c.dy, c.y_at, n.b, h, i, c.queries, 0, c.v_size));
            block_barrier(); /* all have read the weights */
            EACH_THREAD(t)
            {
                for (int r = 0; r < ROWS; r++) {
                    const Pair of = pair_of(c, mask, sums, n.b, h, i + t % WARP,
                                            n.row + row_in(t, r), s[t].v[r], dp[t].v[r]);

                    weights[row_in(t, r)][t % WARP] = of.p;
                    slopes[row_in(t, r)][t % WARP] = c.scale * of.ds;
                }
            }
            add_product(dv, weights,
                        matrix_of(c.dy, c.y_at, n.b, h, i, c.queries, n.column, c.v_size));
            add_product(dk, slopes, matrix_of(c.q, c.q_at, n.b, h, i, c.queries, n.column, c.size));
        }
    if (c.dk)
        store(c.dk, c.k_at, n, c.keys, c.size, dk);
    if (c.dv)
        store(c.dv, c.v_at, n, c.keys, c.v_size, dv);
}

tutti_status tutti__own_attention_backward(int device, void *stream, const tutti__attention *c,
                                           const tutti__cuda_mask *mask, float *scratch)
{
    const int64_t rows = c->batch * c->heads * c->queries;
    tutti_status status =
        launch(device, stream, blocks_of(rows, WARPS), attention_sums_kernel, *c, scratch);

    if (status == TUTTI_OK && (c->dq || c->dscores))
        status = launch(device, stream, blocks_of_heads(c->batch, c->heads, c->queries, c->size),
                        attention_dq_kernel, *c, *mask, (const float *)scratch);
    if (status == TUTTI_OK && (c->dk || c->dv))
        status = launch(device, stream,
                        blocks_of_heads(c->batch, c->kv_heads, c->keys,
                                        c->size > c->v_size ? c->size : c->v_size),
                        attention_dkv_kernel, *c, *mask, (const float *)scratch);
    return status;
}
