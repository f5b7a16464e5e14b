/* half_attention.c -- attention of BF16, by AVX-512's BF16 instructions, and AMX.   SPDX-License-Identifier: MIT
 *
 * As attention.c, whose jobs and blocks these are, with products by half_tile.h or amx_tile.h: sums, scores, the softmax, and the gradients while they
 * are added up are F32; probabilities and the gradients of scores are rounded to BF16 where they are factors of a product. Scores are
 * multiplied by scale * log2(e) after their sums, so queries are exact. */
#include "tensor/kernel/vector/isa/amx_tile.h"

#ifdef TUTTI__HAS_BF16

#include "tensor/kernel/vector/isa/attention_rows.h"

#define QUERIES ((int64_t)32)
#define KEYS    ((int64_t)128)
#define CHUNK   (8 * QUERIES)

/* ---- Memory of a thread ------------------------------------------------------------------------------------------ */

typedef struct half_work {
    const tutti__attention *a;
    tutti_ctx *cx;
    int64_t pairs, v_pairs;       /* of a head's numbers, the last one with 0 if it is odd */
    int64_t size, v_size;         /* a head's numbers, in whole panels */
    int32_t *k_panels, *v_panels; /* second factor of scores and of dp: [key panel][pair][PANEL] */
    int32_t *k_rows, *v_rows;     /* of dq and of y: [panel][KEYS / 2][PANEL] */
    int32_t *q_rows, *dy_rows;    /* of dk and of dv: [panel][QUERIES / 2][PANEL] */
    uint16_t *q, *dy;             /* [CHUNK][2 * pairs] */
    float *y;                     /* [CHUNK][v_size] */
    float *dq, *dk, *dv; /* [heads of a group][queries][size], [KEYS][size], [KEYS][v_size] */
    float *s, *dp;       /* [QUERIES][KEYS] */
    uint16_t *p;         /* the same as BF16: first factor of y and of dq */
    int32_t *
        p_pairs; /* pairs of queries, of dk and of dv: [QUERIES / 2][KEYS], or [KEYS][QUERIES / 2] for AMX */
    float *largest, *sum, *less; /* [CHUNK], [CHUNK], [heads of a group][queries] */
    float *factor;               /* [KEYS] */
    bool amx;
    int64_t begun; /* of amx_multiply */
} half_work;

typedef struct half_attention_jobs {
    const tutti__attention *a;
    tutti_ctx *cx;
    float *work;
    bool amx;
} half_attention_jobs;

INLINE int64_t panels(int64_t n)
{
    return (n + PANEL - 1) / PANEL * PANEL;
}

/* Divides `from`, NULL to count only; returns the number of floats. */
static int64_t divide(half_work *w, const tutti__attention *a, float *from)
{
    const int64_t size = panels(a->size), v_size = panels(a->v_size);
    const int64_t rows = a->dy ? a->heads / a->kv_heads * a->queries : 0;
    struct {
        void *p; /* of a pointer to any of these */
        int64_t n;
    } parts[] = {
        {&w->k_panels, KEYS / 2 * size},
        {&w->v_panels, KEYS / 2 * v_size},
        {&w->k_rows, KEYS / 2 * size},
        {&w->v_rows, KEYS / 2 * v_size},
        {&w->q_rows, QUERIES / 2 * size},
        {&w->dy_rows, QUERIES / 2 * v_size},
        {&w->q, CHUNK / 2 * size},
        {&w->dy, CHUNK / 2 * v_size},
        {&w->y, CHUNK * v_size},
        {&w->dq, rows * size},
        {&w->dk, KEYS * size},
        {&w->dv, KEYS * v_size},
        {&w->s, QUERIES * KEYS},
        {&w->dp, QUERIES * KEYS},
        {&w->p, QUERIES * KEYS / 2},
        {&w->p_pairs, QUERIES / 2 * KEYS},
        {&w->largest, CHUNK},
        {&w->sum, CHUNK},
        {&w->less, (rows + W - 1) / W * W},
        {&w->factor, KEYS},
    };
    int64_t used = 0;

    w->a = a;
    w->pairs = (a->size + 1) / 2;
    w->v_pairs = (a->v_size + 1) / 2;
    w->size = size;
    w->v_size = v_size;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = from ? from + used : NULL;

        memcpy(parts[i].p, &p, sizeof p);
        used += parts[i].n;
    }
    return used;
}

static half_work work_of(const half_attention_jobs *t, int member)
{
    half_work w = {.cx = t->cx, .amx = t->amx};

    divide(&w, t->a, t->work + member * divide(&w, t->a, NULL));
    return w;
}

INLINE const uint16_t *half_at(const float *base, int64_t at)
{
    return (const uint16_t *)(const void *)base + at;
}

/* ---- Packing ----------------------------------------------------------------------------------------------------- */

/* to[rows][2 * pairs] = rows of n numbers, `step` apart, and a zero if n is odd */
static void copy_rows(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows, int64_t n)
{
    const int64_t whole_pairs = (n + 1) / 2 * 2;

    for (int64_t r = 0; r < rows; r++, from += step, to += whole_pairs) {
        to[whole_pairs - 1] = 0;
        memcpy(to, from, (size_t)n * sizeof *to);
    }
}

/* Rows as columns of panels [pair][PANEL], along a head's numbers */
BF16 static void pack_across(int32_t *to, const uint16_t *from, int64_t step, int64_t rows,
                             int64_t n)
{
    for (int64_t r = 0; r < rows; r += PANEL)
        pack_half_columns(to + r * ((n + 1) / 2), from + r * step, step, n, min(PANEL, rows - r),
                          false);
}

/* Rows as rows of panels [pair][PANEL], `most` / 2 pairs in each */
BF16 static void pack_along(int32_t *to, const uint16_t *from, int64_t step, int64_t rows,
                            int64_t n, int64_t most)
{
    for (int64_t d = 0; d < n; d += PANEL)
        pack_half_rows(to + d * (most / 2), from + d, step, rows, n - d, false);
}

/* to[rows][n], rows `step` apart, = factor * rows of F32, from_step apart */
BF16 static void round_rows(uint16_t *to, int64_t step, const float *from, int64_t from_step,
                            int64_t rows, int64_t n, float factor)
{
    for (int64_t r = 0; r < rows; r++, to += step, from += from_step)
        for (int64_t d = 0; d < n; d += PANEL)
            put_halves(to + d, factor * AT(from + d), factor * AT(from + d + W), n - d);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static void end_work(half_work *w)
{
#ifdef TUTTI__HAS_AMX
    amx_end(&w->begun);
#else
    (void)w;
#endif
}

/* Rows of a tile: AMX, where it is, needs a row by row and whole sixteens of pairs. */
static int64_t rows_of_tile(const half_work *w, const half_tile *t)
{
#ifdef TUTTI__HAS_AMX
    if (w->amx && t->a_pair == 2 && t->pairs % AMX_PAIRS == 0)
        return AMX_ROWS;
#endif
    (void)w;
    (void)t;
    return HALF_ROWS;
}

static void multiply_one(half_work *w, const half_tile *t, int64_t most, int64_t rows)
{
#ifdef TUTTI__HAS_AMX
    if (most == AMX_ROWS) {
        amx_multiply(t, min(most, rows), &w->begun);
        return;
    }
#endif
    (void)w;
    half_rows[min(most, rows) - 1](t);
}

/* c [rows][columns] = or += a b, in whole panels; the panel of column j begins at t.b + j * b_column. */
static void multiply_halves(half_work *w, half_tile t, int64_t b_column, int64_t rows,
                            int64_t columns)
{
    const uint16_t *a = t.a;
    const int32_t *b = t.b;
    float *c = t.c;
    const int64_t most = rows_of_tile(w, &t);

    for (int64_t j = 0; j < columns; j += PANEL) {
        t.b = b + j * b_column;
        for (int64_t r = 0; r < rows; r += most) {
            t.a = a + r * t.a_row;
            t.c = c + r * t.c_row + j;
            multiply_one(w, &t, most, rows - r);
        }
    }
}

/* c [rows][KEYS] = rows of `pairs` pairs times n packed keys */
static void multiply_across(half_work *w, float *c, const uint16_t *a, const int32_t *b,
                            int64_t pairs, int64_t rows, int64_t n)
{
    multiply_halves(
        w,
        (half_tile){
            .a = a, .a_row = 2 * pairs, .a_pair = 2, .b = b, .c = c, .c_row = KEYS, .pairs = pairs},
        pairs, rows, n);
}

/* c [rows][size] += p [rows][n] times b, n rows of `size` numbers */
static void multiply_along(half_work *w, float *c, const uint16_t *p, const int32_t *b,
                           int64_t rows, int64_t n, int64_t size)
{
    multiply_halves(w,
                    (half_tile){.a = p,
                                .a_row = KEYS,
                                .a_pair = 2,
                                .b = b,
                                .c = c,
                                .c_row = size,
                                .pairs = (n + 1) / 2,
                                .add = true},
                    KEYS / 2, rows, size);
}

/* Whether p_pairs is for AMX. */
static bool pairs_by_row(const half_work *w, int64_t rows)
{
    return w->amx && rows == QUERIES;
}

/* c [n][size] += p [rows][n]^T times b, `rows` rows of `size` numbers */
static void multiply_pairs(half_work *w, float *c, const int32_t *b, int64_t rows, int64_t n,
                           int64_t size)
{
    const bool by_row = pairs_by_row(w, rows);

    multiply_halves(w,
                    (half_tile){.a = (const uint16_t *)w->p_pairs,
                                .a_row = by_row ? QUERIES : 2,
                                .a_pair = by_row ? 2 : 2 * KEYS,
                                .b = b,
                                .c = c,
                                .c_row = size,
                                .pairs = (rows + 1) / 2,
                                .add = true},
                    QUERIES / 2, n, size);
}

/* ---- Rows of scores ---------------------------------------------------------------------------------------------- */

/* Scores in units of log 2, from products of queries and keys, for n keys in whole vectors */
static void scale_row(float *s, int64_t n, float factor)
{
    for (int64_t k = 0; k < n; k += W)
        AT(s + k) *= factor;
}

/* p [rows][KEYS] = s as BF16, for n keys */
BF16 static void round_scores(uint16_t *p, const float *s, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < n; k += 2 * W)
            *(halves *)(p + r * KEYS + k) =
                round_both(AT(s + r * KEYS + k), AT(s + r * KEYS + k + W));
}

/* p_pairs = s as pairs of rows, for n keys */
BF16 static void pair_scores(const half_work *w, const float *s, int64_t rows, int64_t n)
{
    int32_t *p = w->p_pairs;

    if (pairs_by_row(w, rows)) {
        for (int64_t k = 0; k < n; k += W) {
            vec lanes[W];

            for (int64_t i = 0; i < W; i++)
                lanes[i] = (vec)interleave(
                    round_both(AT(s + 2 * i * KEYS + k), AT(s + (2 * i + 1) * KEYS + k)));
            transpose(lanes);
            for (int64_t i = 0; i < W; i++)
                AT(p + (k + i) * (QUERIES / 2)) = lanes[i];
        }
        return;
    }
    for (int64_t r = 0; r < rows; r += 2)
        for (int64_t k = 0; k < n; k += W) {
            const vec low = AT(s + r * KEYS + k);
            const vec high = r + 1 < rows ? AT(s + (r + 1) * KEYS + k) : (vec){0};

            *(halves *)(p + r / 2 * KEYS + k) = interleave(round_both(low, high));
        }
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* Adds keys [j, j + n) to y of the `rows` queries from i on, the first of which is number `at` of the chunk; row: of i. */
static void half_forward_block(half_work *w, int64_t row, int64_t i, int64_t at, int64_t rows,
                               int64_t j, int64_t n)
{
    const tutti__attention *a = w->a;
    float *y = w->y + at * w->v_size;

    n = min(n, tutti__attention_keys(a, i + rows - 1) - j);
    if (n <= 0)
        return;
    multiply_across(w, w->s, w->q + at * 2 * w->pairs, w->k_panels, w->pairs, rows, n);
    for (int64_t r = 0; r < rows; r++) {
        float *s = w->s + r * KEYS, less;

        scale_row(s, n, a->scale * LOG2_E);
        mask_row(a, s, row + r, i + r, j, n);
        less = weigh_row(s, n, &w->largest[at + r], &w->sum[at + r]);
        for (int64_t d = 0; less != 1 && d < w->v_size; d += W)
            AT(y + r * w->v_size + d) *= less;
        if (a->dropout > 0) {
            tutti__attention_dropout(w->cx, a, row + r, j, w->factor, whole(n));
            multiply_row(s, w->factor, n);
        }
    }
    round_scores(w->p, w->s, rows, n);
    multiply_along(w, y, w->p, w->v_rows, rows, n, w->v_size);
}

/* y = the weighted sums divided by the sums of weights. */
static void finish_half_rows(const half_work *w, uint16_t *y, int64_t row, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        const float sum = w->sum[r];

        round_rows(y + r * w->a->y_at.row, 0, w->y + r * w->v_size, 0, 1, w->a->v_size,
                   sum == 0 ? 0 : 1 / sum);
        w->a->lse[row + r] = lse_of(w->largest[r], sum);
    }
}

static void half_forward_job(void *arg, int64_t number, int member)
{
    const half_attention_jobs *t = arg;
    const tutti__attention *a = t->a;
    half_work w = work_of(t, member);
    const int64_t heads = a->batch * a->heads, chunks = (a->queries + CHUNK - 1) / CHUNK;
    /* the last queries first, which see the most keys */
    const int64_t first = (chunks - 1 - number / heads) * CHUNK;
    const int64_t b = number % heads / a->heads, h = number % heads % a->heads;
    const int64_t kv = tutti__attention_kv(a, h), rows = min(CHUNK, a->queries - first);
    const int64_t keys = tutti__attention_keys(a, first + rows - 1);
    const int64_t row = tutti__attention_row(a, b, h, first);
    const int64_t y_at = b * a->y_at.batch + h * a->y_at.head + first * a->y_at.row;
    const uint16_t *k = half_at(a->k, b * a->k_at.batch + kv * a->k_at.head);
    const uint16_t *v = half_at(a->v, b * a->v_at.batch + kv * a->v_at.head);

    copy_rows(w.q, half_at(a->q, b * a->q_at.batch + h * a->q_at.head + first * a->q_at.row),
              a->q_at.row, rows, a->size);
    memset(w.y, 0, (size_t)(rows * w.v_size) * sizeof *w.y);
    for (int64_t r = 0; r < rows; r++) {
        w.largest[r] = -INFINITY;
        w.sum[r] = 0;
    }
    for (int64_t j = 0; j < keys; j += KEYS) {
        const int64_t n = min(KEYS, keys - j);

        pack_across(w.k_panels, k + j * a->k_at.row, a->k_at.row, n, a->size);
        pack_along(w.v_rows, v + j * a->v_at.row, a->v_at.row, n, a->v_size, KEYS);
        for (int64_t i = 0; i < rows; i += QUERIES)
            half_forward_block(&w, row + i, first + i, i, min(QUERIES, rows - i), j, n);
    }
    end_work(&w);
    finish_half_rows(&w, (uint16_t *)(void *)a->y + y_at, row, rows);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

static float product_of_halves(const uint16_t *a, const uint16_t *b, int64_t n)
{
    vec sum = {0};

    for (int64_t d = 0; d < n; d += W) {
        narrow x = {0}, y = {0};

        memcpy(&x, a + d, (size_t)min(W, n - d) * sizeof *a);
        memcpy(&y, b + d, (size_t)min(W, n - d) * sizeof *b);
        sum = multiply_add((vec)(__builtin_convertvector(x, wide) << 16),
                           (vec)(__builtin_convertvector(y, wide) << 16), sum);
    }
    ACROSS(sum, plus);
    return sum[0];
}

/* The group's query `number`, counted through its heads, begins at this number of q (or y). */
static int64_t query_at(const tutti__attention *a, const tutti__attention_at *at, int64_t b,
                        int64_t kv, int64_t number)
{
    const int64_t h = kv * (a->heads / a->kv_heads) + number / a->queries;

    return b * at->batch + h * at->head + number % a->queries * at->row;
}

/* Adds what `rows` queries of a head, from the group's query `number` on, and the keys [j, j + n) give to the gradients. */
static void half_backward_block(half_work *w, int64_t b, int64_t kv, int64_t number, int64_t rows,
                                int64_t j, int64_t n)
{
    const tutti__attention *a = w->a;
    const int64_t i = number % a->queries;
    const int64_t h = kv * (a->heads / a->kv_heads) + number / a->queries;
    const uint16_t *q = half_at(a->q, query_at(a, &a->q_at, b, kv, number));
    const uint16_t *dy = half_at(a->dy, query_at(a, &a->y_at, b, kv, number));
    const int64_t row = tutti__attention_row(a, b, h, i);

    n = min(n, tutti__attention_keys(a, i + rows - 1) - j);
    copy_rows(w->q, q, a->q_at.row, rows, a->size);
    copy_rows(w->dy, dy, a->y_at.row, rows, a->v_size);
    multiply_across(w, w->s, w->q, w->k_panels, w->pairs, rows, n);
    multiply_across(w, w->dp, w->dy, w->v_panels, w->v_pairs, rows, n);
    for (int64_t r = 0; r < rows; r++) {
        float *s = w->s + r * KEYS;

        scale_row(s, n, a->scale * LOG2_E);
        mask_row(a, s, row + r, i + r, j, n);
        if (a->dropout > 0)
            tutti__attention_dropout(w->cx, a, row + r, j, w->factor, whole(n));
        backward_row(s, w->dp + r * KEYS, n, a->lse[row + r], w->less[number + r],
                     a->dropout > 0 ? w->factor : NULL);
    }
    if (a->dv) {
        pack_along(w->dy_rows, dy, a->y_at.row, rows, a->v_size, QUERIES);
        pair_scores(w, w->s, rows, n);
        multiply_pairs(w, w->dv, w->dy_rows, rows, n, w->v_size);
    }
    if (a->dk) {
        pack_along(w->q_rows, q, a->q_at.row, rows, a->size, QUERIES);
        pair_scores(w, w->dp, rows, n);
        multiply_pairs(w, w->dk, w->q_rows, rows, n, w->size);
    }
    if (a->dq) {
        round_scores(w->p, w->dp, rows, n);
        multiply_along(w, w->dq + number * w->size, w->p, w->k_rows, rows, n, w->size);
    }
}

/* The sums over dy y of each query of a group, and zeros in dq. */
static void begin_group(const half_work *w, int64_t b, int64_t kv, int64_t queries)
{
    const tutti__attention *a = w->a;

    memset(w->dq, 0, (size_t)(queries * w->size) * sizeof *w->dq);
    for (int64_t i = 0; i < queries; i++) {
        const int64_t at = query_at(a, &a->y_at, b, kv, i);

        w->less[i] = product_of_halves(half_at(a->dy, at), half_at(a->y, at), a->v_size);
    }
}

static void half_backward_keys(half_work *w, int64_t b, int64_t kv, int64_t j)
{
    const tutti__attention *a = w->a;
    const int64_t n = min(KEYS, a->keys - j), group = a->heads / a->kv_heads;
    const int64_t k_at = b * a->k_at.batch + kv * a->k_at.head + j * a->k_at.row;
    const int64_t v_at = b * a->v_at.batch + kv * a->v_at.head + j * a->v_at.row;
    const int64_t first = a->causal && j > a->diagonal ? j - a->diagonal : 0;

    pack_across(w->k_panels, half_at(a->k, k_at), a->k_at.row, n, a->size);
    pack_across(w->v_panels, half_at(a->v, v_at), a->v_at.row, n, a->v_size);
    pack_along(w->k_rows, half_at(a->k, k_at), a->k_at.row, n, a->size, KEYS);
    memset(w->dk, 0, (size_t)(n * w->size) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(n * w->v_size) * sizeof *w->dv);
    for (int64_t h = 0; h < group; h++)
        for (int64_t i = first; i < a->queries; i += QUERIES)
            half_backward_block(w, b, kv, h * a->queries + i, min(QUERIES, a->queries - i), j, n);
    if (a->dk)
        round_rows((uint16_t *)(void *)a->dk + k_at, a->k_at.row, w->dk, w->size, n, a->size,
                   a->scale);
    if (a->dv)
        round_rows((uint16_t *)(void *)a->dv + v_at, a->v_at.row, w->dv, w->v_size, n, a->v_size,
                   1);
}

static void half_backward_job(void *arg, int64_t number, int member)
{
    const half_attention_jobs *t = arg;
    const tutti__attention *a = t->a;
    half_work w = work_of(t, member);
    const int64_t b = number / a->kv_heads, kv = number % a->kv_heads;
    const int64_t group = a->heads / a->kv_heads;

    begin_group(&w, b, kv, group * a->queries);
    for (int64_t j = 0; j < a->keys; j += KEYS)
        half_backward_keys(&w, b, kv, j);
    end_work(&w);
    for (int64_t h = 0; a->dq && h < group; h++)
        round_rows((uint16_t *)(void *)a->dq + query_at(a, &a->q_at, b, kv, h * a->queries),
                   a->q_at.row, w.dq + h * a->queries * w.size, w.size, a->queries, a->size,
                   a->scale);
}

/* ---- The table's functions --------------------------------------------------------------------------------------- */

size_t tutti__half_attention_work(const tutti_ctx *cx, const tutti__attention *a)
{
    half_work w;

    if (!__builtin_cpu_supports("avx512bf16"))
        return 0;
    return (size_t)(cx->threads * divide(&w, a, NULL)) * sizeof(float);
}

static void forward(const half_attention_jobs *t)
{
    const tutti__attention *a = t->a;
    const int64_t chunks = (a->queries + CHUNK - 1) / CHUNK;

    tutti__parallel(t->cx, half_forward_job, (void *)t, a->batch * a->heads * chunks);
}

static void backward(const half_attention_jobs *t)
{
    tutti__parallel(t->cx, half_backward_job, (void *)t, t->a->batch * t->a->kv_heads);
}

void tutti__half_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    forward(&(half_attention_jobs){.a = a, .cx = cx, .work = work});
}

void tutti__half_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    backward(&(half_attention_jobs){.a = a, .cx = cx, .work = work});
}

#ifdef TUTTI__HAS_AMX
void tutti__half_attention_forward_amx(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    forward(&(half_attention_jobs){.a = a, .cx = cx, .work = work, .amx = true});
}

void tutti__half_attention_backward_amx(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    backward(&(half_attention_jobs){.a = a, .cx = cx, .work = work, .amx = true});
}
#endif

#else

size_t tutti__half_attention_work(const tutti_ctx *cx, const tutti__attention *a)
{
    (void)cx;
    (void)a;
    return 0;
}

void tutti__half_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    (void)cx;
    (void)a;
    (void)work;
}

void tutti__half_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    (void)cx;
    (void)a;
    (void)work;
}

#endif
