/* gelu compared with erfc and exp in double precision: values and derivatives of numbers of every magnitude, of infinities and NaN;
 * the same bits at any position in a tensor.
 * SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "harness/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/autograd.h>

/* Every 8513th number of either sign below 64, and edge cases. N is a power of two, so that means of N are exact. */
enum { N = 1 << 18, EDGES = 14, SWEEP = N - EDGES, STEP = 8513 };

static float x[N], y[N], dx[N];

static float of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void fill(void)
{
    static const float edges[EDGES] = {0,       -0.f,   13,     -13,   9.98f,  -9.98f, 13.5f,
                                       -13.01f, 10.01f, -10.5f, 1e10f, -1e10f, 200,    -200};

    for (uint32_t i = 0; i < SWEEP; i++)
        x[i] = of_bits(i / 2 * STEP | i % 2 << 31);
    memcpy(x + SWEEP, edges, sizeof edges);
}

/* y and dy/dx of the first n numbers from x on. */
static void compute(const float *from, int64_t n, tutti_gelu_form form)
{
    const tutti_array array = {from, TUTTI_SHAPE(n), TUTTI_F32};
    tutti_tensor *in, *out;
    tutti_ctx *cx;

    assert_int_equal(tutti_ctx_new(&cx, test_device(), NULL), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    in = tutti_input_with_grad(cx, array);
    out = tutti_gelu(in, form);
    assert_int_equal(tutti_tensor_read(out, y), TUTTI_OK);
    assert_int_equal(tutti_backward(tutti_mean(out)), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(in, dx), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
    for (int64_t i = 0; i < n; i++)
        dx[i] *= (float)n;
}

static void exact(double v, double *y_p, double *dx_p)
{
    const double p = erfc(-v / sqrt(2)) / 2;

    *y_p = v * p;
    *dx_p = p + v * exp(-v * v / 2) / sqrt(2 * acos(-1));
}

static void by_tanh(double v, double *y_p, double *dx_p)
{
    const double c = sqrt(2 / acos(-1)), e = exp(-2 * c * (v + 0.044715 * v * v * v));
    const double p = 1 / (1 + e);

    *y_p = v * p;
    *dx_p = p + (isinf(e) ? 0 : v * p * (e * p) * 2 * c * (1 + 3 * 0.044715 * v * v));
}

/* relative: of y, down to the smallest normal number; else of 1, or of |x| where that is more. */
static void compare(tutti_gelu_form form, void (*truth)(double, double *, double *),
                    double relative)
{
    double worst[3] = {0};

    compute(x, N, form);
    for (int i = 0; i < N; i++) {
        const double v = (double)x[i], size = fmax(1, fabs(v));
        double value, slope;

        truth(v, &value, &slope);
        worst[0] = fmax(worst[0], fabs((double)y[i] - value) / size);
        worst[1] = fmax(worst[1], fabs((double)dx[i] - slope));
        if (fabs(value) > 1e-36)
            worst[2] = fmax(worst[2], fabs((double)y[i] - value) / fabs(value));
        if (worst[0] > 1.5e-7 || worst[1] > 4e-7 || worst[2] > relative)
            fail_msg("x = %.9g: y %.9g, derivative %.9g; expected %.9g and %.9g", v, (double)y[i],
                     (double)dx[i], value, slope);
    }
    print_message("errors: %.3g of max(1, |x|), %.3g relative, %.3g of the derivative\n", worst[0],
                  worst[2], worst[1]);
}

static void exact_is_as_erfc_says(void **state)
{
    (void)state;
    compare(TUTTI_GELU_EXACT, exact, 7e-7);
}

static void by_tanh_is_as_its_formula_says(void **state)
{
    (void)state;
    compare(TUTTI_GELU_TANH, by_tanh, 2e-5); /* of an exponent of up to 87, rounded */
}

static void what_is_no_number_stays_so(void **state)
{
    const float odd[3] = {NAN, INFINITY, -NAN};

    (void)state;
    for (int form = 0; form < 2; form++) {
        compute(odd, 3, (tutti_gelu_form)form);
        assert_true(isnan(y[0]) && isnan(dx[0]) && isnan(y[2]) && isnan(dx[2]));
        assert_true(y[1] == INFINITY);
    }
}

/* In the middle of a vector, and in the remainder after the last one. */
static void bits_do_not_depend_on_the_place(void **state)
{
    enum { SOME = 1000 };
    static float whole[2][SOME];

    (void)state;
    for (int form = 0; form < 2; form++) {
        const float *from = x + SWEEP - SOME;

        compute(from, SOME, (tutti_gelu_form)form);
        memcpy(whole[0], y, sizeof whole[0]);
        for (int64_t n = 1; n <= 70; n++)
            for (int64_t at = 0; at < 3; at++) {
                compute(from + at, n, (tutti_gelu_form)form);
                assert_memory_equal(y, whole[0] + at, (size_t)n * sizeof *y);
            }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_is_as_erfc_says),
        cmocka_unit_test(by_tanh_is_as_its_formula_says),
        cmocka_unit_test(what_is_no_number_stays_so),
        cmocka_unit_test(bits_do_not_depend_on_the_place),
    };

    fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
