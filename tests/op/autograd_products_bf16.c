/* autograd_products_bf16.c -- matrix products of BF16 by our own code, against sums in double of the same rounded numbers.
 * SPDX-License-Identifier: MIT    timeout: 120
 *
 * For sizes about those of pairs, vectors, tiles, strips and blocks, each way in which linear layers store a and b; with NaN in the
 * memory to work in, which must not show. Results in BF16 are rounded once. Any number of threads gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "op/isas.h"

#include <math.h>
#include <stdlib.h>

typedef struct sizes {
    int64_t rows, columns, inner;
} sizes;

/* How a and b lie in memory, what b's numbers are, and what becomes of c. */
typedef struct form {
    bool a_transposed, b_transposed, b_f32, c_f32, add;
} form;

static const sizes all_sizes[] = {{1, 1, 1},      {3, 5, 2},      {8, 32, 31},     {9, 33, 33},
                                  {17, 40, 7},    {16, 200, 65},  {40, 191, 300},  {257, 193, 48},
                                  {31, 15, 1023}, {24, 70, 2051}, {300, 400, 512}, {1030, 70, 600},
                                  {1100, 960, 3}};
static const form forms[] = {{.b_transposed = true, .b_f32 = true},
                             {.b_f32 = true},
                             {.a_transposed = true, .c_f32 = true},
                             {.a_transposed = true, .c_f32 = true, .add = true},
                             {.b_transposed = true}};

static float value_of(int64_t i)
{
    return (float)((i * 7919 + 13) % 2003) / 1001 - 1;
}

static double rounded(float x)
{
    return (double)tutti__f32_of_bf16(tutti__bf16_of_f32(x));
}

static void fill(void *to, int64_t n, int64_t seed, bool f32)
{
    for (int64_t i = 0; i < n; i++)
        if (f32)
            ((float *)to)[i] = value_of(i + seed);
        else
            ((uint16_t *)to)[i] = tutti__bf16_of_f32(value_of(i + seed));
}

static void *memory(int64_t n)
{
    void *p = aligned_alloc(64, (size_t)(n * 4 + 64 + 63) / 64 * 64);

    assert_non_null(p);
    return p;
}

static bool multiply(const tutti__isa *isa, int threads, const tutti__half_product *p)
{
    tutti_ctx *cx;
    size_t bytes;
    void *work;
    bool can;

    assert_int_equal(
        tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = threads}),
        TUTTI_OK);
    bytes = isa->multiply_half_work(cx);
    work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(work);
    memset(work, 0xff, bytes); /* NaN */
    can = isa->multiply_half(cx, p, work);
    free(work);
    tutti_ctx_free(cx);
    return can;
}

static float element(const tutti__half_product *p, int64_t i)
{
    return p->c_f32 ? ((const float *)p->c)[i] : tutti__f32_of_bf16(((const uint16_t *)p->c)[i]);
}

static void compare(const sizes *s, const form *f, const tutti__half_product *p)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) {
            double sum = p->bias ? (double)p->bias[j] : 0, magnitude = 1, apart;

            for (int64_t k = 0; k < s->inner; k++) {
                const double product = rounded(value_of(i * p->a_row + k * p->a_k)) *
                                       rounded(value_of(k * p->b_k + j * p->b_column + 5));

                sum += product;
                magnitude += fabs(product);
            }
            if (f->add)
                sum += (double)value_of(i * p->c_step + j + 3);
            apart = fabs((double)element(p, i * p->c_step + j) - sum);
            if (!(apart <= 1e-6 * magnitude + (f->c_f32 ? 0 : fabs(sum) / 256)))
                fail_msg("%d x %d x %d, form %d: (%d,%d) is %g, expected %g", (int)s->rows,
                         (int)s->columns, (int)s->inner, (int)(f - forms), (int)i, (int)j,
                         (double)element(p, i * p->c_step + j), sum);
        }
}

static bool check_one(const tutti__isa *isa, const sizes *s, const form *f)
{
    static float bias[960];
    const int64_t count = s->rows * s->columns;
    void *a = memory(s->rows * s->inner), *b = memory(s->columns * s->inner), *c = memory(count),
         *again = memory(count);
    tutti__half_product p = {.rows = s->rows,
                             .columns = s->columns,
                             .inner = s->inner,
                             .a = a,
                             .b = b,
                             .c = c,
                             .b_f32 = f->b_f32,
                             .c_f32 = f->c_f32,
                             .add = f->add,
                             .a_row = f->a_transposed ? 1 : s->inner,
                             .a_k = f->a_transposed ? s->rows : 1,
                             .b_k = f->b_transposed ? 1 : s->columns,
                             .b_column = f->b_transposed ? s->inner : 1,
                             .c_step = s->columns,
                             .bias = f->c_f32 ? NULL : bias};
    bool can;

    for (int i = 0; i < 960; i++)
        bias[i] = value_of(i + 100);
    fill(a, s->rows * s->inner, 0, false);
    fill(b, s->columns * s->inner, 5, f->b_f32);
    fill(c, count, 3, f->c_f32);
    fill(again, count, 3, f->c_f32);
    can = multiply(isa, 1, &p);
    if (can) {
        compare(s, f, &p);
        p.c = again;
        assert_true(multiply(isa, 3, &p));
        assert_memory_equal(c, again, (size_t)count * (f->c_f32 ? 4 : 2));
    }
    free(a);
    free(b);
    free(c);
    free(again);
    return can;
}

static void check(const tutti__isa *isa)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(all_sizes); i++)
        for (size_t k = 0; k < TUTTI__COUNT_OF(forms); k++)
            if (!check_one(isa, &all_sizes[i], &forms[k])) {
                print_message("no products of BF16 with this set, or on this CPU\n");
                skip();
            }
}

ISA_TESTS_BF16(check)
