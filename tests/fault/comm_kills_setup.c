/* comm: one of many ranks killed while they make a group: all others name it (comm_kills_setup_all.c: 100 times).
 * SPDX-License-Identifier: MIT
 * timeout: 180 */
#include "comm_kills_setup.h"

static void of_33(void **state)
{
    (void)state;
    setup_kills(33, 8, SETUP_SHARED, 29);
}

static void of_20_over_tcp(void **state)
{
    (void)state;
    setup_kills(20, 6, SETUP_TCP, 29);
}

static void of_17_with_the_store_of_one(void **state)
{
    (void)state;
    setup_kills(17, 8, SETUP_HOSTED, 29);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_33), cmocka_unit_test(of_20_over_tcp),
                                       cmocka_unit_test(of_17_with_the_store_of_one)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
