/* the learning-rate range test: when it ends, and what it suggests.   SPDX-License-Identifier: MIT */
#include "train/run/lr_find.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

/* A loss of 2 that falls around step `fall`, from there to 1, and grows from step `rise` on; with some noise. */
static double loss_at(int step, int fall, int rise)
{
    const double falls = 1 / (1 + exp((double)(step - fall) / 4));
    const double rises = step > rise ? exp((double)(step - rise) / 3) - 1 : 0;

    return 1 + falls + rises + 0.01 * sin(step * 12.9);
}

static size_t run(tutti__lr_find *find, int fall, int rise)
{
    *find = (tutti__lr_find){0};
    for (int i = 0; i < TUTTI__LR_FIND_STEPS; i++)
        if (tutti__lr_find_add(find, pow(10, -7 + i * 0.08), loss_at(i, fall, rise)))
            break;
    return find->n;
}

static void the_steepest_fall_is_suggested(void **state)
{
    double smoothed[TUTTI__LR_FIND_STEPS];
    tutti__lr_find find;

    (void)state;
    for (int fall = 20; fall <= 70; fall += 10) {
        run(&find, fall, 85);
        assert_true(fabs(log10(tutti__lr_find_suggest(&find, smoothed)) - (-7 + fall * 0.08)) <
                    0.25);
    }
}

static void it_ends_when_the_loss_diverges(void **state)
{
    double smoothed[TUTTI__LR_FIND_STEPS];
    tutti__lr_find find;

    (void)state;
    assert_int_equal(run(&find, 40, 1000), TUTTI__LR_FIND_STEPS);
    assert_in_range(run(&find, 40, 60), 62, 80);
    find = (tutti__lr_find){0};
    for (int i = 0; i < 40; i++)
        assert_false(tutti__lr_find_add(&find, pow(10, -7 + i * 0.08), loss_at(i, 25, 1000)));
    assert_true(tutti__lr_find_add(&find, 1, NAN));
    assert_int_equal(find.n, 41);
    assert_true(isfinite(tutti__lr_find_suggest(&find, smoothed)) && isnan(smoothed[40]));
}

static void nothing_is_suggested_without_a_fall(void **state)
{
    double smoothed[TUTTI__LR_FIND_STEPS];
    tutti__lr_find find = {0};

    (void)state;
    assert_true(isnan(tutti__lr_find_suggest(&find, smoothed)));
    for (int i = 0; i < 50; i++)
        assert_false(tutti__lr_find_add(&find, 0.01 * i, 1 + 0.01 * i)); /* it only grows */
    assert_true(isnan(tutti__lr_find_suggest(&find, smoothed)));
    find = (tutti__lr_find){0};
    for (int i = 0; i < 10; i++)
        assert_false(tutti__lr_find_add(&find, 0.01 * i, 2 - 0.1 * i));
    assert_true(isnan(tutti__lr_find_suggest(&find, smoothed))); /* too few */
    find = (tutti__lr_find){0};
    assert_true(tutti__lr_find_add(&find, 1e-7, INFINITY));
    assert_true(isnan(tutti__lr_find_suggest(&find, smoothed)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steepest_fall_is_suggested),
        cmocka_unit_test(it_ends_when_the_loss_diverges),
        cmocka_unit_test(nothing_is_suggested_without_a_fall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
