/* sigmoid and tanh compared with exp and tanh in double precision: numbers of every magnitude, infinities and NaN; the same bits
 * at any position in a tensor.
 * SPDX-License-Identifier: MIT
 * devices: strict */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "harness/device.h"

#include <math.h>
#include <string.h>
#include <tutti/autograd.h>

/* Every 32749th number of either sign, including infinities and NaN, and edge cases. */
enum { EDGES = 12, STEP = 32749, SWEEP = 2 * (0x7f800000 / STEP + 100), N = SWEEP + EDGES };

static float x[N], y[N];

static void fill(void)
{
    static const float edges[EDGES] = {1e-3f, -1e-3f, 20,      -20,    20.001f, -INFINITY,
                                       88,    -88,    -103.9f, -104.f, -700.1f, INFINITY};

    for (uint32_t i = 0; i < SWEEP; i++) {
        const uint32_t bits = i / 2 * STEP | i % 2 << 31;

        memcpy(x + i, &bits, sizeof bits);
    }
    memcpy(x + SWEEP, edges, sizeof edges);
}

static void compute(const float *from, int64_t n, tutti_tensor *(*function)(tutti_tensor *))
{
    const tutti_array array = {from, TUTTI_SHAPE(n), TUTTI_F32};
    tutti_ctx *cx;

    assert_int_equal(tutti_ctx_new(&cx, test_device(), NULL), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    assert_int_equal(tutti_tensor_read(function(tutti_input(cx, array)), y), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Rounded once: within half of the distance to the next number, and a thousandth for the double's own rounding. */
static void compare(tutti_tensor *(*function)(tutti_tensor *), double (*truth)(double))
{
    compute(x, N, function);
    for (int i = 0; i < N; i++) {
        const double value = truth((double)x[i]);
        const float rounded = fabsf((float)value);

        if (isnan(x[i]) ? !isnan(y[i])
                        : fabs((double)y[i] - value) >
                              0.501 * (double)(nextafterf(rounded, INFINITY) - rounded))
            fail_msg("x = %.9g: %.9g, expected %.17g", (double)x[i], (double)y[i], value);
        assert_true(isnan(x[i]) || truth != tanh || !signbit(y[i]) == !signbit(x[i]));
    }
}

static void are_rounded_once(void **state)
{
    (void)state;
    compare(tutti_sigmoid, sigmoid);
    compare(tutti_tanh, tanh);
}

/* In the middle of a vector, and in the remainder after the last one. */
static void bits_do_not_depend_on_the_place(void **state)
{
    static tutti_tensor *(*const functions[])(tutti_tensor *) = {tutti_sigmoid, tutti_tanh};
    enum { SOME = 1000 };
    static float whole[SOME];
    const float *from = x + 0x3c000000 / STEP * 2;

    (void)state;
    for (size_t f = 0; f < TUTTI__COUNT_OF(functions); f++) {
        compute(from, SOME, functions[f]);
        memcpy(whole, y, sizeof whole);
        for (int64_t n = 1; n <= 40; n++)
            for (int64_t at = 0; at < 3; at++) {
                compute(from + at, n, functions[f]);
                assert_memory_equal(y, whole + at, (size_t)n * sizeof *y);
            }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_rounded_once),
        cmocka_unit_test(bits_do_not_depend_on_the_place),
    };

    fill();
    return cmocka_run_group_tests_name("autograd_sigmoid", tests, NULL, NULL);
}
