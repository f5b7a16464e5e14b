/* train_sums.c -- sums of an evaluation: the same in any order and division among ranks, over any range of sizes.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/session/exact_sum.h"

#include <math.h>
#include <string.h>

enum { N = 1000 };

/* Of both signs, from 1e-12 to 1e12. */
static double number(int i)
{
    return (i % 2 ? -1 : 1) * (1 + i * 0.37) * pow(10, i * 7 % 25 - 12);
}

static void sums_do_not_depend_on_order_and_division(void **state)
{
    int64_t forwards[TUTTI__SUM_WORDS] = {0}, parts[3][TUTTI__SUM_WORDS] = {{0}};

    (void)state;
    for (int i = 0; i < N; i++)
        tutti__sum_add(forwards, number(i));
    for (int i = N; i-- > 0;)
        tutti__sum_add(parts[i % 3], number(i));
    for (int k = 0; k < TUTTI__SUM_WORDS; k++)
        parts[0][k] += parts[1][k] + parts[2][k];
    assert_true(tutti__sum_value(forwards).hi == tutti__sum_value(parts[0]).hi);
}

static void large_addends_that_cancel_leave_the_small_ones(void **state)
{
    int64_t sum[TUTTI__SUM_WORDS] = {0};

    (void)state;
    tutti__sum_add(sum, 1e20);
    tutti__sum_add(sum, 0x1p-60);
    tutti__sum_add(sum, -1e20);
    tutti__sum_add(sum, -3);
    tutti__sum_add(sum, 3);
    assert_true(tutti__sum_value(sum).hi == 0x1p-60);
}

static void nan_and_infinity_stay(void **state)
{
    int64_t sum[TUTTI__SUM_WORDS] = {0};

    (void)state;
    tutti__sum_add(sum, -INFINITY);
    tutti__sum_add(sum, 1);
    assert_true(isinf(tutti__sum_value(sum).hi));
    tutti__sum_add(sum, NAN);
    assert_true(isnan(tutti__sum_value(sum).hi));
}

/* Numbers around 1e6 whose variance is 1/12: n sum(x^2) - sum(x)^2 cancels to its last digits in a double. */
static void the_spread_of_numbers_far_from_zero_is_accurate(void **state)
{
    int64_t sum[TUTTI__SUM_WORDS] = {0}, squares[TUTTI__SUM_WORDS] = {0};
    double exact;

    (void)state;
    for (int i = 0; i < N; i++) {
        const double x = 1e6 + i / 16.0; /* exact, as its square is */

        tutti__sum_add(sum, x);
        tutti__sum_add(squares, x * x);
    }
    exact = (double)N * N * ((double)N * N - 1) / 12 / 256;
    assert_true(fabs(tutti__wide_spread(N, tutti__sum_value(squares), tutti__sum_value(sum)) -
                     exact) <= 1e-12 * exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_order_and_division),
        cmocka_unit_test(large_addends_that_cancel_leave_the_small_ones),
        cmocka_unit_test(nan_and_infinity_stay),
        cmocka_unit_test(the_spread_of_numbers_far_from_zero_is_accurate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
