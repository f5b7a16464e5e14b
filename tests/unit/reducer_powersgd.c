/* reducer: PowerSGD's state, converted to another number of ranks.   SPDX-License-Identifier: MIT */
#include "reducer/reducer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* The saved format: step and number of buckets; of each bucket the lengths of q and of the errors, and whether q is warm; then
 * q and errors of each, padded to words. */
typedef struct saved {
    uint64_t step, n, first[3], second[3];
    float q1[2], e1[4];
    float q2[2];
} saved;

static const saved one = {7, 2, {2, 3, 1}, {1, 0, 0}, {1, 2}, {3, -6, 9}, {5}};

static void errors_are_averaged_and_all_else_stays(void **state)
{
    saved mean = one, other = one;

    (void)state;
    other.e1[0] = 0;
    other.e1[2] = -9;
    assert_int_equal(tutti__powersgd_mean(&mean, &other, sizeof mean, 2), TUTTI_OK);
    other.e1[1] = 3;
    assert_int_equal(tutti__powersgd_mean(&mean, &other, sizeof mean, 3), TUTTI_OK);
    assert_true(mean.e1[0] == 1.0f && mean.e1[1] == -3.0f && mean.e1[2] == -3.0f);
    memcpy(mean.e1, one.e1, sizeof mean.e1);
    assert_memory_equal(&mean, &one, sizeof one);
}

static void what_does_not_fit_is_refused(void **state)
{
    saved mean = one, other = one;

    (void)state;
    other.first[1] = 4;
    assert_int_equal(tutti__powersgd_mean(&mean, &other, sizeof mean, 2), TUTTI_ERR_FORMAT);
    other = one;
    other.n = UINT64_MAX;
    assert_int_equal(tutti__powersgd_mean(&mean, &other, sizeof mean, 2), TUTTI_ERR_FORMAT);
    assert_int_equal(tutti__powersgd_mean(&mean, &one, sizeof mean - 8, 2), TUTTI_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_averaged_and_all_else_stays),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
