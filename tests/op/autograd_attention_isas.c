/* autograd_attention_isas.c -- the attention kernel of each instruction set that this CPU has, against sums in double.
 * SPDX-License-Identifier: MIT    timeout: 120
 *
 * Results, the kept log-sum-exp and gradients for sizes about those of vectors, tiles and blocks, with NaN in the memory to work in,
 * which must not show, and between the rows of heads, which must stay. The bits are those of one thread. Rows that see no key are 0.
 * BF16: the same from rounded numbers, where this CPU multiplies them, to the error that rounding probabilities leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "op/isas.h"
#include "tensor/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLERANCE      2e-6 /* of the largest number of each result */
#define HALF_TOLERANCE 1e-2

enum { BATCH = 2, BETWEEN = 3 }; /* numbers between rows */

typedef struct sizes {
    int64_t heads, kv_heads, queries, keys, size, v_size;
    bool causal, lower_right, masked;
    float dropout;
} sizes;

static const sizes table[] = {
    {1, 1, 1, 1, 1, 1, .causal = true},
    {2, 2, 5, 7, 3, 9, .masked = true},
    {2, 1, 33, 129, 16, 32, .causal = true, .lower_right = true},
    {4, 2, 64, 128, 64, 64, .dropout = 0.3f},
    {1, 1, 257, 257, 20, 17, .causal = true, .dropout = 0.1f},
    {3, 3, 300, 70, 8, 40, .causal = true, .masked = true},
    {2, 2, 150, 40, 33, 5, .causal = true, .lower_right = true},
    {1, 1, 3, 700, 65, 66, .masked = true},
    {6, 2, 290, 400, 24, 24, .causal = true},
};

static uint64_t state;

static float noise(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / 8388608.0 - 1.0);
}

static float rounded(float x)
{
    return tutti__f32_of_bf16(tutti__bf16_of_f32(x));
}

/* ---- Matrices of heads ------------------------------------------------------------------------------------------- */

/* [batch][rows][heads][columns] of numbers that BF16 has, and numbers between the heads' rows. */
typedef struct matrix {
    float *data;
    int64_t rows, heads, columns;
    tutti__attention_at at;
} matrix;

static int64_t count(const matrix *m)
{
    return BATCH * m->at.batch;
}

static matrix matrix_new(int64_t rows, int64_t heads, int64_t columns, bool fill)
{
    matrix m = {.rows = rows, .heads = heads, .columns = columns};

    m.at.head = columns + BETWEEN;
    m.at.row = heads * m.at.head;
    m.at.batch = rows * m.at.row;
    m.data = malloc((size_t)count(&m) * sizeof *m.data);
    assert_non_null(m.data);
    for (int64_t i = 0; i < count(&m); i++)
        m.data[i] = fill && i % m.at.head < columns ? rounded(noise()) : NAN;
    return m;
}

/* The same numbers in BF16, to be given to from_halves. */
static void *halves_of(const matrix *m)
{
    uint16_t *p = malloc((size_t)count(m) * sizeof *p);

    assert_non_null(p);
    for (int64_t i = 0; i < count(m); i++)
        p[i] = tutti__bf16_of_f32(m->data[i]);
    return p;
}

static void from_halves(matrix *m, const void *halves)
{
    const uint16_t *p = halves;

    for (int64_t i = 0; i < count(m); i++)
        m->data[i] = tutti__f32_of_bf16(p[i]);
    free((void *)(uintptr_t)halves);
}

static float *row_of(const matrix *m, int64_t b, int64_t h, int64_t i)
{
    return m->data + b * m->at.batch + h * m->at.head + i * m->at.row;
}

/* ---- A case -------------------------------------------------------------------------------------------------------- */

typedef struct attention_case {
    const sizes *s;
    matrix q, k, v, y, dy, dq, dk, dv;
    float *mask, *lse;
    tutti__attention a;
} attention_case;

static attention_case case_new(const sizes *s)
{
    const int64_t rows = BATCH * s->heads * s->queries, scores = BATCH * s->queries * s->keys;
    attention_case c = {.s = s};

    state = 1;
    c.q = matrix_new(s->queries, s->heads, s->size, true);
    c.k = matrix_new(s->keys, s->kv_heads, s->size, true);
    c.v = matrix_new(s->keys, s->kv_heads, s->v_size, true);
    c.dy = matrix_new(s->queries, s->heads, s->v_size, true);
    c.y = matrix_new(s->queries, s->heads, s->v_size, false);
    c.dq = matrix_new(s->queries, s->heads, s->size, false);
    c.dk = matrix_new(s->keys, s->kv_heads, s->size, false);
    c.dv = matrix_new(s->keys, s->kv_heads, s->v_size, false);
    c.lse = malloc((size_t)rows * sizeof *c.lse);
    c.mask = malloc((size_t)scores * sizeof *c.mask);
    assert_true(c.lse && c.mask);
    /* the first queries see nothing */
    for (int64_t i = 0; i < scores; i++)
        c.mask[i] = i < s->keys || noise() < -0.5f ? -INFINITY : noise();
    c.a = (tutti__attention){
        .batch = BATCH,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .queries = s->queries,
        .keys = s->keys,
        .size = s->size,
        .v_size = s->v_size,
        .q_at = c.q.at,
        .k_at = c.k.at,
        .v_at = c.v.at,
        .y_at = c.y.at,
        .q = c.q.data,
        .k = c.k.data,
        .v = c.v.data,
        .y = c.y.data,
        .dy = c.dy.data,
        .dq = c.dq.data,
        .dk = c.dk.data,
        .dv = c.dv.data,
        .lse = c.lse,
        .scale = 0.7f,
        .causal = s->causal,
        .diagonal = s->lower_right ? s->keys - s->queries : 0,
        .dropout = s->dropout,
        .call = 5,
    };
    if (s->masked) {
        c.a.mask = c.mask;
        c.a.mask_step = 1;
        c.a.mask_at = tutti__broadcast_of(TUTTI_SHAPE(BATCH, 1, s->queries, s->keys),
                                          TUTTI_SHAPE(BATCH, s->heads, s->queries, s->keys));
    }
    return c;
}

static void case_free(attention_case *c)
{
    free(c->q.data);
    free(c->k.data);
    free(c->v.data);
    free(c->dy.data);
    free(c->y.data);
    free(c->dq.data);
    free(c->dk.data);
    free(c->dv.data);
    free(c->mask);
    free(c->lse);
}

/* ---- In double ----------------------------------------------------------------------------------------------------- */

/* What is expected: a number for each of the matrix's elements. */
typedef struct expected {
    double *y, *dq, *dk, *dv;
} expected;

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static int64_t offset(const matrix *m, int64_t b, int64_t h, int64_t i)
{
    return row_of(m, b, h, i) - m->data;
}

/* p of row (b, h, i), and what dropout makes of each; returns log sum exp. */
static double probabilities(const attention_case *c, tutti_ctx *cx, int64_t b, int64_t h, int64_t i,
                            double *p, float *factor)
{
    const tutti__attention *a = &c->a;
    const int64_t row = tutti__attention_row(a, b, h, i), kv = h / (a->heads / a->kv_heads);
    const int64_t end = tutti__attention_keys(a, i);
    const float *mask = tutti__attention_mask(a, row);
    double sum = 0;

    for (int64_t j = 0; j < a->keys; j++) {
        const double score = 0.7f * dot(row_of(&c->q, b, h, i), row_of(&c->k, b, kv, j), a->size);

        p[j] = j < end ? exp(score + (mask ? (double)mask[j] : 0)) : 0;
        sum += p[j];
        factor[j] = 1;
    }
    for (int64_t j = 0; j < a->keys && sum > 0; j++)
        p[j] /= sum;
    if (a->dropout > 0)
        tutti__attention_dropout(cx, a, row, 0, factor, a->keys);
    return sum > 0 ? log(sum) : INFINITY;
}

static void expect_row(const attention_case *c, tutti_ctx *cx, int64_t b, int64_t h, int64_t i,
                       const expected *e)
{
    const tutti__attention *a = &c->a;
    const int64_t kv = h / (a->heads / a->kv_heads);
    const float *dy = row_of(&c->dy, b, h, i), *q = row_of(&c->q, b, h, i);
    double *p = malloc((size_t)a->keys * sizeof *p), *y = e->y + offset(&c->y, b, h, i), sum = 0;
    float *factor = malloc((size_t)a->keys * sizeof *factor);
    const double lse = probabilities(c, cx, b, h, i, p, factor);
    const double got = (double)c->lse[tutti__attention_row(a, b, h, i)];

    assert_true(isinf(lse) ? isinf(got) && got > 0 : fabs(got - lse) < 2e-6 * (1 + fabs(lse)));
    for (int64_t j = 0; j < a->keys; j++)
        for (int64_t d = 0; d < a->v_size; d++)
            y[d] += p[j] * (double)factor[j] * (double)row_of(&c->v, b, kv, j)[d];
    for (int64_t d = 0; d < a->v_size; d++)
        sum += y[d] * (double)dy[d];
    for (int64_t j = 0; j < a->keys; j++) {
        const double f = (double)factor[j], dp = f * dot(dy, row_of(&c->v, b, kv, j), a->v_size);
        const double ds = (double)0.7f * p[j] * (dp - sum);

        for (int64_t d = 0; d < a->v_size; d++)
            e->dv[offset(&c->dv, b, kv, j) + d] += p[j] * f * (double)dy[d];
        for (int64_t d = 0; d < a->size; d++) {
            e->dq[offset(&c->dq, b, h, i) + d] += ds * (double)row_of(&c->k, b, kv, j)[d];
            e->dk[offset(&c->dk, b, kv, j) + d] += ds * (double)q[d];
        }
    }
    free(p);
    free(factor);
}

/* Each element as expected, and NaN between the rows still there; frees what is expected. */
static void check(const char *what, const matrix *m, double *wanted, double tolerance)
{
    double largest = 1e-3, error = 0;

    for (int64_t i = 0; i < count(m); i++)
        if (i % m->at.head < m->columns) {
            largest = fmax(largest, fabs(wanted[i]));
            error =
                fmax(error, isnan(m->data[i]) ? INFINITY : fabs((double)m->data[i] - wanted[i]));
        } else {
            assert_true(isnan(m->data[i]));
        }
    if (!(error <= tolerance * largest))
        fail_msg("%s is off by %g of %g", what, error, largest);
    free(wanted);
}

static double *zeros(const matrix *m)
{
    double *p = calloc((size_t)count(m), sizeof *p);

    assert_non_null(p);
    return p;
}

/* ---- The test ------------------------------------------------------------------------------------------------------ */

static void compare_all(const attention_case *c, tutti_ctx *cx, double tolerance)
{
    const expected e = {zeros(&c->y), zeros(&c->dq), zeros(&c->dk), zeros(&c->dv)};

    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t h = 0; h < c->a.heads; h++)
            for (int64_t i = 0; i < c->a.queries; i++)
                expect_row(c, cx, b, h, i, &e);
    check("y", &c->y, e.y, tolerance);
    check("dq", &c->dq, e.dq, tolerance);
    check("dk", &c->dk, e.dk, tolerance);
    check("dv", &c->dv, e.dv, tolerance);
}

static float *work_of(size_t bytes)
{
    float *work = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(work);
    for (size_t i = 0; i < bytes / sizeof *work; i++)
        work[i] = NAN;
    return work;
}

static void both_passes(const tutti__isa *isa, tutti_ctx *cx, tutti__attention a)
{
    const bool half = a.dtype == TUTTI_BF16;
    const float *const dy = a.dy;
    float *work;

    a.dy = NULL;
    work = work_of((half ? isa->half_attention_work : isa->attention_work)(cx, &a));
    (half ? isa->half_attention_forward : isa->attention_forward)(cx, &a, work);
    free(work);
    a.dy = dy;
    work = work_of((half ? isa->half_attention_work : isa->attention_work)(cx, &a));
    (half ? isa->half_attention_backward : isa->attention_backward)(cx, &a, work);
    free(work);
}

/* Both passes with copies in BF16, from which the results become F32. */
static void half_passes(const tutti__isa *isa, tutti_ctx *cx, attention_case *c)
{
    matrix *const all[] = {&c->q, &c->k, &c->v, &c->dy, &c->y, &c->dq, &c->dk, &c->dv};
    tutti__attention a = c->a;
    void *p[TUTTI__COUNT_OF(all)];

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        p[i] = halves_of(all[i]);
    a.dtype = TUTTI_BF16;
    a.q = p[0];
    a.k = p[1];
    a.v = p[2];
    a.dy = p[3];
    a.y = p[4];
    a.dq = p[5];
    a.dk = p[6];
    a.dv = p[7];
    both_passes(isa, cx, a);
    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        from_halves(all[i], p[i]);
}

/* false: not in this dtype */
static bool run(const tutti__isa *isa, attention_case *c, int threads, bool half, bool compare)
{
    tutti_ctx *cx;
    bool can;

    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                                   &(tutti_ctx_opts){.seed = 3, .threads = threads}),
                     TUTTI_OK);
    can = !half || isa->half_attention_work(cx, &c->a) > 0;
    if (can && half)
        half_passes(isa, cx, c);
    else if (can)
        both_passes(isa, cx, c->a);
    if (can && compare)
        compare_all(c, cx, half ? HALF_TOLERANCE : TOLERANCE);
    tutti_ctx_free(cx);
    return can;
}

static void assert_same(const matrix *a, const matrix *b)
{
    assert_memory_equal(a->data, b->data, (size_t)count(a) * sizeof(float));
}

static void check_size(const tutti__isa *isa, const sizes *s, bool half)
{
    attention_case one = case_new(s), several = case_new(s);

    if (run(isa, &one, 1, half, true)) {
        print_message("%s%s: %lld queries, %lld keys of %lld\n", isa->name, half ? " BF16" : "",
                      (long long)s->queries, (long long)s->keys, (long long)s->size);
        run(isa, &several, 3, half, false);
        assert_same(&one.y, &several.y);
        assert_same(&one.dq, &several.dq);
        assert_same(&one.dk, &several.dk);
        assert_same(&one.dv, &several.dv);
    }
    case_free(&one);
    case_free(&several);
}

static void check_isa(const tutti__isa *isa)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(table); i++) {
        check_size(isa, &table[i], false);
        check_size(isa, &table[i], true);
    }
}

ISA_TESTS_BF16(check_isa)
