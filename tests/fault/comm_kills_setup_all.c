/* comm: one of 20, 33 or 64 ranks killed while they make a group, 100 times: all others name it.   SPDX-License-Identifier: MIT
 * timeout: 1800   tier: long   run: serial */
#include "comm_kills_setup.h"

static void of_20(void **state)
{
    (void)state;
    setup_kills(20, 15, SETUP_SHARED, 1);
    setup_kills(20, 10, SETUP_TCP, 1);
    setup_kills(20, 10, SETUP_HOSTED, 1);
}

static void of_33(void **state)
{
    (void)state;
    setup_kills(33, 15, SETUP_SHARED, 1);
    setup_kills(33, 10, SETUP_TCP, 1);
    setup_kills(33, 10, SETUP_HOSTED, 1);
}

static void of_64(void **state)
{
    (void)state;
    setup_kills(64, 15, SETUP_SHARED, 1);
    setup_kills(64, 8, SETUP_TCP, 1);
    setup_kills(64, 7, SETUP_HOSTED, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_20), cmocka_unit_test(of_33),
                                       cmocka_unit_test(of_64)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
