/* base: a wait with a past deadline ends at once.   SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void deadlines_that_are_over(void **state)
{
    _Atomic uint32_t word = 1;
    double begin = tutti__now_ms();

    (void)state;
    alarm(20); /* ends the test if a wait does not */
    for (double late = 0; late < 10; late += 1)
        tutti__futex_wait(&word, 1, tutti__ms_left(begin - late));
    alarm(0);
    assert_true(tutti__ms_left(begin - 1) == 0);
    assert_true(tutti__ms_left(tutti__now_ms() + 1e6) > 9e5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deadlines_that_are_over)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
