/* autograd_products_f32.c -- matrix products of linear layers, of each instruction set that this CPU has, against sums in double.
 * SPDX-License-Identifier: MIT    timeout: 120
 *
 * y = x w^T + b, dx = dy w, dw = or += dy^T x for sizes about those of vectors, tiles, panels, strips and blocks, with NaN in the memory
 * to work in, which must not show, and around results, which must stay. The bits are those of one thread, and of any alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/isas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the norm of the differences, by that of the sums of magnitudes. */
#define TOLERANCE 3e-7

enum { AROUND = 32 }; /* numbers before and behind each matrix */

typedef struct sizes {
    int64_t R, K, M;
} sizes;

/* A matrix within a larger allocation, off a vector's alignment by `shift` numbers. */
typedef struct matrix {
    float *memory, *data;
    int64_t n;
} matrix;

typedef struct layer {
    sizes s;
    matrix x, w, b, dy, y, dx, dw;
} layer;

static uint64_t state = 1;

static float noise(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / 8388608.0 - 1.0);
}

static matrix matrix_new(int64_t n, int shift, bool fill)
{
    const size_t all = (size_t)n + 2 * AROUND + 16;
    matrix m = {.memory = aligned_alloc(64, (all * sizeof(float) + 63) / 64 * 64), .n = n};

    assert_non_null(m.memory);
    for (size_t i = 0; i < all; i++)
        m.memory[i] = NAN;
    m.data = m.memory + AROUND + shift;
    for (int64_t i = 0; fill && i < n; i++)
        m.data[i] = noise();
    return m;
}

static void check_around(const matrix *m)
{
    for (int i = 1; i <= AROUND; i++)
        assert_true(isnan(m->data[-i]) && (i > 16 || isnan(m->data[m->n + i - 1])));
}

static layer layer_new(sizes s, int shift)
{
    const uint64_t kept = state;
    const layer l = {.s = s,
                     .x = matrix_new(s.R * s.K, shift, true),
                     .w = matrix_new(s.M * s.K, shift, true),
                     .b = matrix_new(s.M, shift, true),
                     .dy = matrix_new(s.R * s.M, shift, true),
                     .y = matrix_new(s.R * s.M, shift, false),
                     .dx = matrix_new(s.R * s.K, shift, false),
                     .dw = matrix_new(s.M * s.K, shift, true)};

    state = kept; /* the same numbers in the next */
    return l;
}

static void layer_free(layer *l)
{
    const matrix *const all[] = {&l->x, &l->w, &l->b, &l->dy, &l->y, &l->dx, &l->dw};

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++) {
        check_around(all[i]);
        free(all[i]->memory);
    }
}

static tutti__product forward(const layer *l, bool bias)
{
    return (tutti__product){.rows = l->s.M,
                            .columns = l->s.R,
                            .inner = l->s.K,
                            .a = l->w.data,
                            .a_row = l->s.K,
                            .a_k = 1,
                            .b = l->x.data,
                            .b_k = 1,
                            .b_column = l->s.K,
                            .c = l->y.data,
                            .c_step = l->s.M,
                            .transposed = true,
                            .bias = bias ? l->b.data : NULL};
}

/* The same y without bias, as the contract allows it and no layer asks for it: b's columns are contiguous, and c's rows. */
static tutti__product forward_by_rows(const layer *l)
{
    return (tutti__product){.rows = l->s.R,
                            .columns = l->s.M,
                            .inner = l->s.K,
                            .a = l->x.data,
                            .a_row = l->s.K,
                            .a_k = 1,
                            .b = l->w.data,
                            .b_k = 1,
                            .b_column = l->s.K,
                            .c = l->y.data,
                            .c_step = l->s.M};
}

static tutti__product data_gradient(const layer *l)
{
    return (tutti__product){.rows = l->s.R,
                            .columns = l->s.K,
                            .inner = l->s.M,
                            .a = l->dy.data,
                            .a_row = l->s.M,
                            .a_k = 1,
                            .b = l->w.data,
                            .b_k = l->s.K,
                            .b_column = 1,
                            .c = l->dx.data,
                            .c_step = l->s.K};
}

static tutti__product weight_gradient(const layer *l, bool add)
{
    return (tutti__product){.rows = l->s.M,
                            .columns = l->s.K,
                            .inner = l->s.R,
                            .a = l->dy.data,
                            .a_row = 1,
                            .a_k = l->s.M,
                            .b = l->x.data,
                            .b_k = l->s.K,
                            .b_column = 1,
                            .c = l->dw.data,
                            .c_step = l->s.K,
                            .add = add};
}

/* With memory to work in that holds what the product before left there, or NaN. */
static void multiply(const tutti__isa *isa, tutti_ctx *cx, const tutti__product *p)
{
    static matrix work;
    const int64_t n = (int64_t)(isa->multiply_work(cx, p) / sizeof(float));

    if (work.n != n) {
        free(work.memory);
        work = matrix_new(n, 0, false);
    }
    isa->multiply(cx, p, work.data);
    check_around(&work);
}

/* c as it was before, where the product adds to it; else NULL. */
static double error_of(const tutti__product *p, const float *before)
{
    double difference = 0, norm = 0;

    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t j = 0; j < p->columns; j++) {
            const int64_t at = p->transposed ? r + j * p->c_step : r * p->c_step + j;
            double sum = before ? (double)before[at] : p->bias ? (double)p->bias[r] : 0;
            double size = fabs(sum);

            for (int64_t k = 0; k < p->inner; k++) {
                const double term = (double)p->a[r * p->a_row + k * p->a_k] *
                                    (double)p->b[k * p->b_k + j * p->b_column];

                sum += term;
                size += fabs(term);
            }
            difference += ((double)p->c[at] - sum) * ((double)p->c[at] - sum);
            norm += size * size;
        }
    return sqrt(difference / norm);
}

static void check_error(const tutti__isa *isa, const char *what, sizes s, double error)
{
    if (!(error < TOLERANCE))
        print_message("%s, x %dx%d, w %dx%d: %s is off by %g\n", isa->name, (int)s.R, (int)s.K,
                      (int)s.M, (int)s.K, what, error);
    assert_true(error < TOLERANCE);
}

/* Everything of a layer, in place. */
static void run(const tutti__isa *isa, tutti_ctx *cx, layer *l, bool check)
{
    const tutti__product y = forward(l, true), bare = forward(l, false), dx = data_gradient(l);
    const tutti__product by_rows = forward_by_rows(l);
    const tutti__product more = weight_gradient(l, true), dw = weight_gradient(l, false);
    matrix before = matrix_new(l->dw.n, 0, false);

    multiply(isa, cx, &by_rows);
    if (check)
        check_error(isa, "y by rows", l->s, error_of(&by_rows, NULL));
    multiply(isa, cx, &bare);
    if (check)
        check_error(isa, "y without bias", l->s, error_of(&bare, NULL));
    multiply(isa, cx, &y);
    if (check)
        check_error(isa, "y", l->s, error_of(&y, NULL));
    multiply(isa, cx, &dx);
    if (check)
        check_error(isa, "dx", l->s, error_of(&dx, NULL));
    multiply(isa, cx, &dw);
    if (check)
        check_error(isa, "dw", l->s, error_of(&dw, NULL));
    memcpy(before.data, l->dw.data, (size_t)l->dw.n * sizeof(float));
    multiply(isa, cx, &more);
    if (check)
        check_error(isa, "dw added to", l->s, error_of(&more, before.data));
    free(before.memory);
}

static void same_bits(const matrix *a, const matrix *b)
{
    assert_memory_equal(a->data, b->data, (size_t)a->n * sizeof(float));
}

static void check_sizes(const tutti__isa *isa, tutti_ctx *const cx[2], sizes s)
{
    layer one = layer_new(s, 0), other = layer_new(s, 1);

    run(isa, cx[0], &one, true);
    run(isa, cx[1], &other, false);
    same_bits(&one.y, &other.y);
    same_bits(&one.dx, &other.dx);
    same_bits(&one.dw, &other.dw);
    layer_free(&one);
    layer_free(&other);
}

/* One NaN or infinity in x or w reaches all that it is multiplied into, and nothing else. */
static void check_propagation(const tutti__isa *isa, tutti_ctx *cx, sizes s)
{
    layer l = layer_new(s, 0);
    const int64_t r = s.R - 1, m = s.M / 2, k = s.K - 1;
    const tutti__product y = forward(&l, true), dx = data_gradient(&l);

    l.x.data[r * s.K + k] = NAN;
    l.w.data[m * s.K + k] = INFINITY;
    multiply(isa, cx, &y);
    multiply(isa, cx, &dx);
    for (int64_t i = 0; i < s.R; i++)
        for (int64_t j = 0; j < s.M; j++)
            assert_true(i == r ? isnan(l.y.data[i * s.M + j])
                               : isfinite(l.y.data[i * s.M + j]) == (j != m));
    for (int64_t i = 0; i < s.R; i++)
        for (int64_t j = 0; j < s.K; j++)
            assert_true(isfinite(l.dx.data[i * s.K + j]) == (j != k));
    l.x.data[r * s.K + k] = 0; /* by infinity is not a number */
    multiply(isa, cx, &y);
    assert_true(isnan(l.y.data[r * s.M + m]));
    layer_free(&l);
}

static const int64_t some[] = {1, 3, 8, 17, 31, 33, 65};
static const sizes larger[] = {{1, 784, 70},     {2, 500, 33},    {8, 784, 130},   {32, 520, 10},
                               {20, 700, 7},     {100, 97, 65},   {513, 33, 40},   {64, 64, 300},
                               {66, 260, 120},   {7, 40, 1030},   {128, 530, 528}, {300, 1030, 258},
                               {40, 1024, 1056}, {260, 40, 4200}, {600, 520, 330}};

static void check_isa(const tutti__isa *isa)
{
    const size_t n = TUTTI__COUNT_OF(some);
    tutti_ctx *cx[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(tutti_ctx_new(&cx[i], (tutti_device){TUTTI_CPU, 0},
                                       &(tutti_ctx_opts){.threads = i ? 3 : 1}),
                         TUTTI_OK);
    for (size_t i = 0; i < n * n * n; i++) {
        const sizes s = {some[i % n], some[i / n % n], some[i / n / n]};

        check_sizes(isa, cx, s);
        check_propagation(isa, cx[0], s);
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(larger); i++) {
        check_sizes(isa, cx, larger[i]);
        check_propagation(isa, cx[1], larger[i]);
    }
    for (int i = 0; i < 2; i++)
        tutti_ctx_free(cx[i]);
}

ISA_TESTS(check_isa)
